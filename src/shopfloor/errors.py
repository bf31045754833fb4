"""Every error that Shopfloor reports, as one tree; docs/reference/errors.md draws it.

Each class has a stable `code`, an HTTP `status` and an `exit_code`; each error a message that says what happened and,
where there is something to do, a `hint` that says what.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from typing import ClassVar, cast


class ShopfloorError(Exception):
    code: ClassVar[str] = "error"
    status: ClassVar[int] = 500
    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.run_id: str | None = None
        """The run that the error is about, where the SDK raises it."""


class MethodNotAllowed(ShopfloorError):
    code = "method_not_allowed"
    status = 405


class BodyTooLarge(ShopfloorError):
    code = "body_too_large"
    status = 413


class RequestRefused(ShopfloorError):
    code = "request_refused"
    status = 400


class MalformedRequest(RequestRefused):
    code = "malformed_request"


class AddressTooLong(RequestRefused):
    code = "address_too_long"
    status = 414


class HeadersTooLarge(RequestRefused):
    code = "headers_too_large"
    status = 431


class RequestTimeout(RequestRefused):
    code = "request_timeout"
    status = 408


class TooManyConnections(RequestRefused):
    code = "too_many_connections"
    status = 503


class TooManyLogins(ShopfloorError):
    code = "too_many_logins"
    status = 429
    exit_code = 3

    def __init__(self, message: str, *, hint: str | None = None, retry_after_seconds: int = 1) -> None:
        super().__init__(message, hint=hint)
        self.retry_after_seconds = retry_after_seconds


class ResourceLimit(ShopfloorError):
    code = "resource_limit"
    exit_code = 8


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


class InvalidParameter(InputError):
    code = "invalid_parameter"


class AmbiguousRun(InputError):
    code = "ambiguous_run"
    status = 409


class InvalidSecret(InputError):
    code = "invalid_secret"


class InvalidInput(InputError):
    code = "validation_error"


class InvalidWorker(InputError):
    code = "invalid_worker"
    status = 422


class UnknownModel(InputError):
    code = "unknown_model"
    problems: tuple[tuple[str, int, str], ...] = ()
    """For a script: what is wrong with it, each with file, line and reason."""


class UnsupportedOption(InputError):
    code = "unsupported_option"


class MultipleRuns(InputError):
    code = "several_runs"


class UnknownCall(InputError):
    code = "unknown_call"
    status = 409


class NotFoundError(ShopfloorError):
    code = "not_found"
    status = 404
    exit_code = 4


class ProviderNotFound(NotFoundError):
    code = "provider_not_found"


class RunNotFound(NotFoundError):
    code = "run_not_found"


class WorkerNotFound(NotFoundError):
    code = "not_found_error"


class ProjectNotFound(NotFoundError):
    code = "project_not_found"


class FileMissing(NotFoundError):
    code = "file_not_found"


class ConflictError(ShopfloorError):
    code = "conflict"
    status = 409
    exit_code = 5


class AmbiguousWorker(ConflictError):
    code = "ambiguous_worker"


class LogBusy(ConflictError):
    code = "log_busy"


class LogExists(ConflictError):
    code = "log_exists"


class LogClosed(ConflictError):
    code = "log_closed"


class RunRunning(ConflictError):
    code = "run_running"


class NeedsForce(ConflictError):
    code = "needs_force"


class ServerRunning(ConflictError):
    code = "server_running"


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


class StorageUnreadable(StorageError):
    code = "storage_unreadable"


class StorageUnsafe(StorageError):
    code = "storage_unsafe"


class StorageLost(StorageError):
    code = "storage_lost"
    status = 503


class StorageFailed(StorageError):
    code = "storage_failed"


class AccessError(ShopfloorError):
    code = "access_denied"
    status = 403
    exit_code = 3


class Unauthorized(AccessError):
    code = "unauthorized"
    status = 401


class Forbidden(AccessError):
    code = "forbidden"


class ServerUnreachable(ShopfloorError):
    code = "server_unreachable"
    status = 502
    exit_code = 7


class StoreError(ShopfloorError):
    code = "store_error"
    exit_code = 6


class DatabaseTooNew(StoreError):
    code = "database_too_new"


class DatabaseTooOld(StoreError):
    code = "database_too_old"


class DatabaseDamaged(StoreError):
    code = "database_damaged"
    status = 503


class DatabaseLost(StoreError):
    code = "database_lost"
    status = 503


class DatabaseBusy(StoreError):
    code = "database_busy"
    status = 503


class RunFailed(ShopfloorError):
    code = "run_failed"
    status = 502
    retryable: ClassVar[bool] = False
    """Whether the same could end well another time."""
    default_hint: ClassVar[str | None] = None
    """What can be done about any such failure, where whoever raises it knows nothing better."""

    def __init__(self, message: str, *, hint: str | None = None, retry_after: float | None = None) -> None:
        super().__init__(message, hint=hint or self.default_hint)
        self.retry_after = retry_after
        """Seconds until it makes sense to try again, where that is known."""


class ProviderError(RunFailed):
    code = "provider_error"
    retryable = True


class RateLimited(ProviderError):
    code = "rate_limit_error"
    status = 429


class ProviderOverloaded(ProviderError):
    code = "provider_overloaded"
    status = 503


class ProviderTimeout(ProviderError):
    code = "provider_timeout"
    status = 504


class ProviderUnreachable(ProviderError):
    code = "provider_unreachable"


class AuthenticationFailed(ProviderError):
    code = "authentication_error"
    retryable = False
    default_hint = "check the key or the login; `shopfloor doctor` says what each agent has"


class RequestRejected(ProviderError):
    code = "invalid_request_error"
    retryable = False


class ToolFailed(RunFailed):
    code = "tool_error"


class StepFailed(RunFailed):
    code = "execution_error"


class AgentFailed(RunFailed):
    code = "agent_error"


class AgentMissing(RunFailed):
    code = "agent_not_installed"
    exit_code = 127


class BudgetExceeded(RunFailed):
    code = "budget_exceeded"
    default_hint = "give it more with --max-budget, and go on where it stopped with --resume"


class TurnsExceeded(RunFailed):
    code = "max_turns_exceeded"
    default_hint = "give it more with --max-turns, and go on where it stopped with --resume"


class OutcomeUnknown(RunFailed):
    code = "outcome_unknown"


class TreeLimit(RunFailed):
    code = "tree_limit"


class Poisoned(RunFailed):
    code = "poisoned"


class DefinitionChanged(RunFailed):
    code = "definition_changed"
    status = 409


class AnswerTimeout(RunFailed):
    code = "answer_timeout"


class HostStopped(RunFailed):
    code = "host_stopped"
    retryable = True


class ExecutionCancelled(RunFailed):
    code = "cancelled"
    status = 409


class TranscriptBroken(ShopfloorError):
    code = "transcript_broken"
    status = 422


class ProcessError(ShopfloorError):
    code = "process_error"


class CommandNotFound(ProcessError):
    code = "command_not_found"
    status = 400
    exit_code = 127


class ReaperLost(ProcessError):
    code = "minder_lost"


class UnexpectedError(ShopfloorError):
    code = "unexpected"
    exit_code = 70


_CANDIDATES, _TELLING = 5, 6
"""How many runs that may be meant are named, and by how many characters more."""
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_NOT_ALLOWED = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})


def sole_error(error: BaseException) -> BaseException:
    """Return the only error inside an exception group, however deep; with several errors, the group as it is."""
    inside = error
    while isinstance(inside, BaseExceptionGroup):
        first, *others = cast("BaseExceptionGroup[BaseException]", inside).exceptions
        if others:
            return error
        inside = first
    return inside


def storage_error(error: OSError, doing: str, *, reading: bool = False) -> StorageError:
    """The error of ours that an `OSError` of the storage means."""
    reason = f"{doing}: {error.strerror or error}"
    if error.errno in _NO_ROOM:
        return StorageFull(reason, hint="free some space, or point SHOPFLOOR_STORAGE at a disk that has room")
    if error.errno in _NOT_ALLOWED and reading:
        return StorageUnreadable(reason, hint="ask as somebody who may read it")
    if error.errno in _NOT_ALLOWED:
        return StorageUnwritable(reason, hint="make the folder writable, or point SHOPFLOOR_STORAGE at one that is")
    return StorageFailed(reason, hint="check the disk and the folder that SHOPFLOOR_STORAGE names")


def missing_working_directory() -> UsageError:
    """The error where the folder that we were started in has been deleted."""
    return UsageError("the folder that you are in is gone", hint="go to one that is there")


def ambiguous_run(said: str, fitting: Sequence[str]) -> AmbiguousRun:
    """The error where these runs fit what somebody said, with as much of each as tells some of them apart."""
    some = [run_id[: len(said) + _TELLING] for run_id in sorted(fitting)[:_CANDIDATES]]
    more = ["…"] if len(fitting) > len(some) else []
    return AmbiguousRun(
        f"{len(fitting)} runs begin with {said!r}: {', '.join([*some, *more])}", hint="give more characters"
    )


def all_error_types() -> list[type[ShopfloorError]]:
    """The tree, parents before children, in the order it is written above."""
    found: list[type[ShopfloorError]] = []
    todo: list[type[ShopfloorError]] = [ShopfloorError]
    while todo:
        cls = todo.pop()
        found.append(cls)
        todo.extend(reversed(cls.__subclasses__()))
    return found


def error_class(code: str) -> type[ShopfloorError]:
    """The kind of error with this code; the root of them all where it is none of ours, as for a run's own failure."""
    return next((error for error in all_error_types() if error.code == code), ShopfloorError)


def exit_code_of(code: str) -> int:
    return error_class(code).exit_code
