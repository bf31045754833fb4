"""Errors that several packages raise, with their messages and hints."""

from __future__ import annotations

import errno
from collections.abc import Sequence

from shopfloor.errors import (
    AmbiguousRun,
    StorageError,
    StorageFailed,
    StorageFull,
    StorageUnreadable,
    StorageUnwritable,
    UsageError,
)

_LISTED_RUNS, _EXTRA_CHARS = 5, 6
"""How many matching runs an ambiguous prefix lists, and how many characters of each beyond the prefix."""
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_NOT_ALLOWED = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})


def storage_error(error: OSError, doing: str, *, reading: bool = False) -> StorageError:
    """Return the `StorageError` for an `OSError`; `doing` starts the message, as in `cannot write /path`."""
    reason = f"{doing}: {error.strerror or error}"
    if error.errno in _NO_ROOM:
        return StorageFull(reason, hint="free some space, or set SHOPFLOOR_STORAGE to a folder on another disk")
    if error.errno in _NOT_ALLOWED and reading:
        return StorageUnreadable(reason, hint="run the command as a user who may read it")
    if error.errno in _NOT_ALLOWED:
        return StorageUnwritable(reason, hint="make the folder writable, or set SHOPFLOOR_STORAGE to another folder")
    return StorageFailed(reason, hint="check the disk and the folder that SHOPFLOOR_STORAGE names")


def missing_working_directory() -> UsageError:
    """Return the error for a working directory that was deleted."""
    return UsageError("the current folder does not exist any more", hint="change to an existing folder")


def ambiguous_run(prefix: str, run_ids: Sequence[str]) -> AmbiguousRun:
    """Return the error for a prefix of several run ids. The message lists the first few of them, shortened."""
    listed = [run_id[: len(prefix) + _EXTRA_CHARS] for run_id in sorted(run_ids)[:_LISTED_RUNS]]
    more = ["…"] if len(run_ids) > len(listed) else []
    return AmbiguousRun(
        f"{len(run_ids)} runs begin with {prefix!r}: {', '.join([*listed, *more])}",
        hint="type more characters of the run id",
    )
