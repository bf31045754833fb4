"""Whether the database can still be used: its file is where it was, and nobody has found it damaged."""

from __future__ import annotations

from pathlib import Path

from shopfloor.errors import DatabaseDamaged, DatabaseLost, ShopfloorError, StorageLost

REBUILD_HINT = "stop the server if one runs, then `shopfloor rebuild`: the logs and all that was acknowledged are kept"


class Health:
    """The health of one open database. Once lost it stays lost, until somebody opens the file anew."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file, self._folder = _identity(path), _identity(path.parent)
        self._damage: str | None = None

    def note(self, error: BaseException) -> None:
        """Remember damage that a query has met: nothing more is written to a database that is not sound."""
        if isinstance(error, DatabaseDamaged):
            self._damage = self._damage or error.message

    def check(self) -> None:
        """Raises where the database is damaged, or is no longer the file that was opened."""
        failure = self.failure()
        if failure is not None:
            raise failure

    def failure(self) -> ShopfloorError | None:
        if self._damage is not None:
            return DatabaseDamaged(self._damage, hint=REBUILD_HINT)
        if _identity(self._path) == self._file:
            return None
        if _identity(self._path.parent) != self._folder:
            return StorageLost(
                f"the storage folder {self._path.parent} was deleted or replaced",
                hint="put it back or name another --storage, then `shopfloor rebuild`",
            )
        return DatabaseLost(f"the database {self._path} was deleted or replaced", hint=REBUILD_HINT)


def _identity(path: Path) -> tuple[int, int] | None:
    """What tells a file from another one under the same name; None where there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino
