"""The health of an open database: its file is still in place, and no query has found damage."""

from __future__ import annotations

from pathlib import Path

from shopfloor.errors import DatabaseDamaged, DatabaseLost, ShopfloorError, StorageLost

REBUILD_HINT = "stop the server if it is running, then run `shopfloor rebuild`: no log or accepted request is lost"


class Health:
    """The health of one open database. A failure is final until the file is opened again."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file, self._folder = _identity(path), _identity(path.parent)
        self._damage: str | None = None

    def note(self, error: BaseException) -> None:
        """Remember an error if it means damage: nothing more is written to a damaged database."""
        if isinstance(error, DatabaseDamaged):
            self._damage = self._damage or error.message

    def check(self) -> None:
        """Raise if the database is damaged, or is no longer the file that was opened."""
        failure = self.failure()
        if failure is not None:
            raise failure

    def failure(self) -> ShopfloorError | None:
        """Return the error that `check` raises, or None."""
        if self._damage is not None:
            return DatabaseDamaged(self._damage, hint=REBUILD_HINT)
        if _identity(self._path) == self._file:
            return None
        if _identity(self._path.parent) != self._folder:
            return StorageLost(
                f"the storage folder {self._path.parent} was deleted or replaced",
                hint="restore it or use another --storage, then run `shopfloor rebuild`",
            )
        return DatabaseLost(f"the database {self._path} was deleted or replaced", hint=REBUILD_HINT)


def _identity(path: Path) -> tuple[int, int] | None:
    """Return what distinguishes a file from another one of the same name; None if it does not exist."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino
