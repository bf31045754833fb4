"""Every error that Shopfloor says to somebody, as one tree.

    ShopfloorError
    ├── InputError                  what was asked cannot be done as asked
    │   ├── UsageError              the words of a command line are off
    │   ├── InvalidEvent            an event that the format does not allow
    │   ├── InvalidRunId            not a UUID v4
    │   ├── AmbiguousRun            the first characters fit more than one run
    │   └── InvalidSecret           a value that cannot be masked
    ├── NotFoundError               what was named is not there
    │   ├── RunNotFound             no run of that name
    │   └── FileMissing             no transcript file of that name
    ├── ConflictError               what was asked does not fit how things stand
    │   ├── LogBusy                 another process writes this log
    │   ├── LogExists               a new run asked for a log that is already there
    │   ├── LogClosed               the recorder was closed
    │   └── RunEnded                the log has its outcome; nothing follows it
    ├── StorageError                the record cannot be written or read
    │   ├── StorageFull             no room, or below the low-water mark
    │   ├── StorageUnwritable       no permission
    │   └── StorageFailed           any other failure of the disk
    ├── TranscriptBroken            a file that breaks a rule of the format
    ├── ProcessError                a process cannot be started, or not be ended
    │   ├── CommandNotFound         the program to run is not there
    │   └── MinderLost              the process that guards the children cannot be started
    └── UnexpectedError             a defect of ours, said without a traceback

Each class has a stable `code`, an HTTP `status` and an `exit_code`; each error a message that says what happened and,
where there is something to do, a `hint` that says what.
"""

from __future__ import annotations

import errno
from typing import ClassVar


class ShopfloorError(Exception):
    code: ClassVar[str] = "error"
    status: ClassVar[int] = 500
    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class InputError(ShopfloorError):
    code = "invalid_input"
    status = 400
    exit_code = 2


class UsageError(InputError):
    code = "usage"


class InvalidEvent(InputError):
    code = "invalid_event"


class InvalidRunId(InputError):
    code = "invalid_run_id"


class AmbiguousRun(InputError):
    code = "ambiguous_run"
    status = 409


class InvalidSecret(InputError):
    code = "invalid_secret"


class NotFoundError(ShopfloorError):
    code = "not_found"
    status = 404
    exit_code = 4


class RunNotFound(NotFoundError):
    code = "run_not_found"


class FileMissing(NotFoundError):
    code = "file_not_found"


class ConflictError(ShopfloorError):
    code = "conflict"
    status = 409
    exit_code = 5


class LogBusy(ConflictError):
    code = "log_busy"


class LogExists(ConflictError):
    code = "log_exists"


class LogClosed(ConflictError):
    code = "log_closed"


class RunEnded(ConflictError):
    code = "run_ended"


class StorageError(ShopfloorError):
    code = "storage_error"
    exit_code = 6


class StorageFull(StorageError):
    code = "storage_full"
    status = 507


class StorageUnwritable(StorageError):
    code = "storage_unwritable"


class StorageFailed(StorageError):
    code = "storage_failed"


class TranscriptBroken(ShopfloorError):
    code = "transcript_broken"
    status = 422


class ProcessError(ShopfloorError):
    code = "process_error"


class CommandNotFound(ProcessError):
    code = "command_not_found"
    status = 400
    exit_code = 127


class MinderLost(ProcessError):
    code = "minder_lost"


class UnexpectedError(ShopfloorError):
    code = "unexpected"
    exit_code = 70


_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_NOT_ALLOWED = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})


def storage_error(error: OSError, doing: str) -> StorageError:
    """The error of ours that an `OSError` of the storage means."""
    reason = f"{doing}: {error.strerror or error}"
    if error.errno in _NO_ROOM:
        return StorageFull(reason, hint="free some space, or point SHOPFLOOR_STORAGE at a disk that has room")
    if error.errno in _NOT_ALLOWED:
        return StorageUnwritable(reason, hint="make the folder writable, or point SHOPFLOOR_STORAGE at one that is")
    return StorageFailed(reason, hint="check the disk and the folder that SHOPFLOOR_STORAGE names")


def every_error() -> list[type[ShopfloorError]]:
    """The tree, parents before children, in the order it is written above."""
    found: list[type[ShopfloorError]] = []
    todo: list[type[ShopfloorError]] = [ShopfloorError]
    while todo:
        cls = todo.pop()
        found.append(cls)
        todo.extend(reversed(cls.__subclasses__()))
    return found


def exit_code_of(code: str) -> int:
    """The exit code of the error with this code; 1 where it is none of ours, as for a run's own failure."""
    return next((error.exit_code for error in every_error() if error.code == code), ShopfloorError.exit_code)
