"""The files of the built page: read once, packed once, and given by names that are looked at first."""

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
"""Where `make page` puts it."""
INDEX: Final = "index.html"
ASSETS: Final = "assets"

CACHE_IMMUTABLE: Final = "public, max-age=31536000, immutable"
"""For files whose name changes with what is in them."""
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
_PACKED_ALREADY: Final = frozenset({".png", ".ico", ".webp", ".woff2"})


class _File(msgspec.Struct, frozen=True):
    stamp: tuple[int, int]
    media_type: str
    etag: str
    plain: bytes
    packed: bytes | None


class PageFiles:
    """What the folder has. A file that was built anew is read anew."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._read: dict[tuple[str, ...], _File] = {}

    async def answer(self, request: Request, *parts: str, cache: str) -> Response | None:
        """The file under that name, or that it has not changed; None where there is none."""
        found = await anyio.to_thread.run_sync(self._find, parts)
        if found is None:
            return None
        packed = found.packed if _takes_gzip(request.headers.get("accept-encoding", "")) else None
        etag = f'"{found.etag}-gzip"' if packed is not None else f'"{found.etag}"'
        headers = {"Cache-Control": cache, "ETag": etag, "Vary": "Accept-Encoding"}
        if _has(request.headers.get("if-none-match", ""), etag):
            return Response(status_code=304, headers=headers)
        if packed is not None:
            headers["Content-Encoding"] = "gzip"
        return Response(found.plain if packed is None else packed, headers=headers, media_type=found.media_type)

    def _find(self, parts: tuple[str, ...]) -> _File | None:
        # A name is a name and nothing else: there is no way out of the folder by it.
        if self._folder is None or not all(part == ASSETS or _is_name(part) for part in parts):
            return None
        path = self._folder.joinpath(*parts)
        media_type = _MEDIA.get(path.suffix)
        try:
            status = path.lstat()
            stamp = (status.st_mtime_ns, status.st_size)
            known = self._read.get(parts)
            if known is not None and known.stamp == stamp:
                return known
            if parts == (INDEX,):
                # Built anew: the files of before go by other names.
                self._read.clear()
            if media_type is None or not path.is_file() or path.is_symlink() or status.st_size > PAGE_FILE_BYTES:
                return None
            plain = path.read_bytes()
        except OSError:
            return None
        packed = None if path.suffix in _PACKED_ALREADY else gzip.compress(plain, 9, mtime=0)
        found = _File(stamp, media_type, hashlib.sha256(plain).hexdigest()[:32], plain, packed)
        self._read[parts] = found
        return found


def _takes_gzip(said: str) -> bool:
    for one in said.split(","):
        name, _, weight = one.partition(";")
        if name.strip().lower() in ("gzip", "*"):
            return re.fullmatch(r"\s*q=0(\.0*)?\s*", weight) is None
    return False


def _has(said: str, etag: str) -> bool:
    tags = [one.strip().removeprefix("W/") for one in said.split(",")]
    return etag in tags or "*" in tags


def get_page_files(request: Request) -> PageFiles:
    return request.app.state.page
