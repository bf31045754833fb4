"""Blobs in a dict."""

from __future__ import annotations

import time
from collections.abc import Sequence

from shopfloor.ports import BlobInfo, validate_key


class MemoryBlobs:
    """Implements `Blobs` for the process."""

    def __init__(self) -> None:
        self._contents: dict[str, tuple[bytes, int]] = {}
        """Content and time of each blob, by key."""
        self._last_ns = 0

    async def put(self, key: str, content: bytes) -> None:
        # Strictly increasing, so that the newest is known.
        self._last_ns = max(time.time_ns(), self._last_ns + 1)
        self._contents[validate_key(key)] = (content, self._last_ns)

    async def get(self, key: str) -> bytes | None:
        content, _ = self._contents.get(validate_key(key), (None, 0))
        return content

    async def list(self, folder: str) -> Sequence[BlobInfo]:
        prefix = f"{validate_key(folder)}/"
        found = [
            BlobInfo(key.removeprefix(prefix), len(content), modified)
            for key, (content, modified) in self._contents.items()
            if key.startswith(prefix) and "/" not in key.removeprefix(prefix)
        ]
        return sorted(found, key=lambda info: info.modified_ns, reverse=True)

    async def delete(self, key: str) -> None:
        validate_key(key)
        inside = f"{key}/"
        self._contents = {
            known: stored for known, stored in self._contents.items() if known != key and not known.startswith(inside)
        }
