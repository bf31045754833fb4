"""The plugin folders that the user has allowed: `plugins.json` in the storage folder."""

from __future__ import annotations

import logging
from pathlib import Path

import msgspec

from shopfloor.decoding import decode_json
from shopfloor.error_factories import storage_error
from shopfloor.errors import StorageError, StorageFailed
from shopfloor.record import Storage, lock_file, make_folder, write_private

_log = logging.getLogger("shopfloor.plugins")


class _File(msgspec.Struct, frozen=True):
    allowed: tuple[str, ...] = ()


class Allowances:
    """Which plugins of projects may be started. A plugin is code, so each folder is allowed once by the user."""

    def __init__(self, storage: Storage) -> None:
        self._path = storage.projects.with_name("plugins.json")

    def contains(self, folder: Path) -> bool:
        """Return whether the folder was allowed. A link counts as the folder that it points to.

        While the file cannot be read, nothing counts as allowed.
        """
        try:
            return str(folder.resolve()) in self._read().allowed
        except StorageError as error:
            _log.warning("no plugin of a project is allowed: %s", error.message)
            return False

    def add(self, folder: Path) -> None:
        """Allow a folder."""
        make_folder(self._path.parent)
        with lock_file(self._path.with_suffix(".lock")):
            allowed = self._read().allowed
            if str(folder.resolve()) not in allowed:
                content = msgspec.json.encode(_File((*allowed, str(folder.resolve()))))
                write_private(self._path, content + b"\n", durable=True)

    def _read(self) -> _File:
        try:
            return decode_json(self._path.read_bytes(), _File)
        except FileNotFoundError:
            return _File()
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise StorageFailed(
                f"cannot read {self._path}: {error}", hint="repair the file, or delete it and allow the plugins again"
            ) from error
        except OSError as error:
            raise storage_error(error, f"cannot read {self._path}", reading=True) from error
