"""The files of the built page: read and compressed once, then served from memory."""

from __future__ import annotations

import gzip
import hashlib
import re
from pathlib import Path
from typing import Final

import anyio.to_thread
import msgspec
from starlette.requests import Request
from starlette.responses import Response

from shopfloor.server.limits import PAGE_FILE_BYTES

PAGE_FOLDER: Final = Path(__file__).with_name("page")
"""The folder that `make page` builds the page into."""
INDEX: Final = "index.html"
ASSETS: Final = "assets"

CACHE_IMMUTABLE: Final = "public, max-age=31536000, immutable"
"""For files whose name changes with their content."""
CACHE_REVALIDATE: Final = "no-cache"

_is_name = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*(\.[A-Za-z0-9_-]+)+", re.ASCII).fullmatch
_MEDIA: Final = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".json": "application/json",
    ".map": "application/json",
    ".txt": "text/plain; charset=utf-8",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".webp": "image/webp",
    ".woff2": "font/woff2",
}
_COMPRESSED_FORMATS: Final = frozenset({".png", ".ico", ".webp", ".woff2"})


class _File(msgspec.Struct, frozen=True):
    stamp: tuple[int, int]
    media_type: str
    etag: str
    content: bytes
    gzipped: bytes | None


class PageFiles:
    """Serves the files of the page's folder. A file that was rebuilt is read again."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._files: dict[tuple[str, ...], _File] = {}

    async def response(self, request: Request, *parts: str, cache: str) -> Response | None:
        """Return the file with this path, or status 304 if the client has it already; None if there is no such file."""
        found = await anyio.to_thread.run_sync(self._find, parts)
        if found is None:
            return None
        gzipped = found.gzipped if _accepts_gzip(request.headers.get("accept-encoding", "")) else None
        etag = f'"{found.etag}-gzip"' if gzipped is not None else f'"{found.etag}"'
        headers = {"Cache-Control": cache, "ETag": etag, "Vary": "Accept-Encoding"}
        if _matches(request.headers.get("if-none-match", ""), etag):
            return Response(status_code=304, headers=headers)
        if gzipped is not None:
            headers["Content-Encoding"] = "gzip"
        return Response(found.content if gzipped is None else gzipped, headers=headers, media_type=found.media_type)

    def _find(self, parts: tuple[str, ...]) -> _File | None:
        # `_is_name` accepts plain file names only, so a request cannot leave the folder.
        if self._folder is None or not all(part == ASSETS or _is_name(part) for part in parts):
            return None
        path = self._folder.joinpath(*parts)
        media_type = _MEDIA.get(path.suffix)
        try:
            status = path.lstat()
            stamp = (status.st_mtime_ns, status.st_size)
            known = self._files.get(parts)
            if known is not None and known.stamp == stamp:
                return known
            if parts == (INDEX,):
                # The page was rebuilt: its old files have other names.
                self._files.clear()
            if media_type is None or not path.is_file() or path.is_symlink() or status.st_size > PAGE_FILE_BYTES:
                return None
            content = path.read_bytes()
        except OSError:
            return None
        gzipped = None if path.suffix in _COMPRESSED_FORMATS else gzip.compress(content, 9, mtime=0)
        found = _File(stamp, media_type, hashlib.sha256(content).hexdigest()[:32], content, gzipped)
        self._files[parts] = found
        return found


def _accepts_gzip(accept_encoding: str) -> bool:
    for part in accept_encoding.split(","):
        name, _, weight = part.partition(";")
        if name.strip().lower() in ("gzip", "*"):
            return re.fullmatch(r"\s*q=0(\.0*)?\s*", weight) is None
    return False


def _matches(if_none_match: str, etag: str) -> bool:
    tags = [tag.strip().removeprefix("W/") for tag in if_none_match.split(",")]
    return etag in tags or "*" in tags


def get_page_files(request: Request) -> PageFiles:
    """Return the page files of the app that handles the request."""
    return request.app.state.page
