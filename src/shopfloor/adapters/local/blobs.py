"""Blobs in files: the key is the path below `blobs/` in the storage folder."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio.to_thread

from shopfloor.error_factories import storage_error
from shopfloor.ports import BlobInfo, validate_key
from shopfloor.record import make_folder, write_private


class LocalBlobs:
    """Implements `Blobs`. Several processes may use the same folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def put(self, key: str, content: bytes) -> None:
        await anyio.to_thread.run_sync(_write, self._path(key), content)

    async def get(self, key: str) -> bytes | None:
        return await anyio.to_thread.run_sync(_read, self._path(key))

    async def list(self, folder: str) -> Sequence[BlobInfo]:
        return await anyio.to_thread.run_sync(_list, self._path(folder))

    async def delete(self, key: str) -> None:
        await anyio.to_thread.run_sync(_delete, self._path(key))

    def _path(self, key: str) -> Path:
        return self._folder / validate_key(key)


def _write(path: Path, content: bytes) -> None:
    make_folder(path.parent)
    write_private(path, content, durable=True)
    # The clock of the file system ticks slowly; this time orders blobs that were written right after each other.
    now = time.time_ns()
    try:
        os.utime(path, ns=(now, now))
    except FileNotFoundError:
        return  # Deleted meanwhile.
    except OSError as error:
        raise storage_error(error, f"cannot write {path}") from error


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None
    except OSError as error:
        raise storage_error(error, f"cannot read {path}", reading=True) from error


def _list(folder: Path) -> list[BlobInfo]:
    found: list[BlobInfo] = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                # Names with a dot are files that a crash left half-written.
                if entry.name.startswith(".") or not entry.is_file():
                    continue
                with contextlib.suppress(FileNotFoundError):  # Deleted meanwhile.
                    state = entry.stat()
                    found.append(BlobInfo(entry.name, state.st_size, state.st_mtime_ns))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise storage_error(error, f"cannot read {folder}", reading=True) from error
    return sorted(found, key=lambda info: info.modified_ns, reverse=True)


def _delete(path: Path) -> None:
    try:
        if path.is_dir():
            shutil.rmtree(path, onerror=_ignore_missing)
        else:
            path.unlink(missing_ok=True)
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise storage_error(error, f"cannot delete {path}") from error


def _ignore_missing(_function: Any, _path: str, failure: Any) -> None:
    """Go on after a file that another process has deleted."""
    if not isinstance(failure[1], FileNotFoundError):
        raise failure[1]
