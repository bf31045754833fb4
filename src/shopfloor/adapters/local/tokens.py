"""The tokens of a storage, in its file `tokens.json`."""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

import anyio
import anyio.to_thread
import msgspec

from shopfloor.decoding import decode_json
from shopfloor.error_factories import storage_error
from shopfloor.errors import StorageFailed, StorageLost
from shopfloor.ports import Access
from shopfloor.record import lock_file, make_folder, write_private

_MODE = 0o600
_NAME_CHARS = 8
_log = logging.getLogger("shopfloor.adapters")

T = TypeVar("T")
_Stamp = tuple[int, int, int]


class LocalTokens:
    """Implements `Tokens` with a file, which is read again after another process has changed it.

    Use an instance in one event loop only.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = path.with_suffix(".lock")
        self._cached: tuple[_Stamp | None, Access] = (None, Access())
        self._folder: int | None = None
        """The inode of the folder in which the file was first found."""
        # Changes of this process queue up at this limiter, not in threads that block on the file's lock.
        self._thread = anyio.CapacityLimiter(1)

    @property
    def storage_name(self) -> str:
        return hashlib.sha256(os.fsencode(self._path.parent.resolve())).hexdigest()[:_NAME_CHARS]

    async def read(self) -> Access:
        # Called for every request: a `stat` takes less time than a thread hand-over.
        return self._read()

    async def update(self, change: Callable[[Access], tuple[Access, T]]) -> T:
        return await anyio.to_thread.run_sync(partial(self._update, change), limiter=self._thread)

    def _update(self, change: Callable[[Access], tuple[Access, T]]) -> T:
        make_folder(self._path.parent)
        try:
            with lock_file(self._lock):
                access = self._read(use_cache=False)
                changed, result = change(access)
                if changed != access:
                    content = msgspec.json.format(msgspec.json.encode(changed), indent=2) + b"\n"
                    write_private(self._path, content)
                return result
        except OSError as error:
            raise storage_error(error, f"cannot write {self._path}") from error

    def _read(self, *, use_cache: bool = True) -> Access:
        try:
            status = self._path.stat()
            stamp = (status.st_mtime_ns, status.st_size, status.st_ino)
            if use_cache and stamp == self._cached[0]:
                return self._cached[1]
            if status.st_mode & 0o077:
                _log.warning("%s was readable by other users; its mode is now 0600", self._path)
                self._path.chmod(_MODE)
            access = decode_json(self._path.read_bytes(), Access)
        except FileNotFoundError as error:
            if self._folder not in (None, _inode(self._path.parent)):
                raise StorageLost(
                    f"the storage folder {self._path.parent} was deleted or replaced",
                    hint="restore it or use another --storage, then run `shopfloor rebuild`",
                ) from error
            return Access()
        except OSError as error:
            raise storage_error(error, f"cannot read {self._path}") from error
        except msgspec.MsgspecError as error:
            raise StorageFailed(
                f"{self._path} is not a list of tokens: {error}", hint="delete the file; a new one is created"
            ) from error
        self._cached = (stamp, access)
        self._folder = self._folder or _inode(self._path.parent)
        return access


def _inode(path: Path) -> int | None:
    try:
        return path.stat().st_ino
    except OSError:
        return None
