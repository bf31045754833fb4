"""Map failures that every provider can report (HTTP statuses, exits of the program) to the errors of a run."""

from __future__ import annotations

from shopfloor.errors import (
    AgentFailed,
    AuthenticationFailed,
    ProviderError,
    ProviderOverloaded,
    ProviderTimeout,
    RateLimited,
    RequestRejected,
    RunFailed,
)
from shopfloor.log import RunError
from shopfloor.ports import AgentExit

_CLASS_BY_STATUS: dict[int, type[RunFailed]] = {
    401: AuthenticationFailed,
    403: AuthenticationFailed,
    408: ProviderTimeout,
    429: RateLimited,
    503: ProviderOverloaded,
    529: ProviderOverloaded,
}
_CLIENT_ERRORS, _SERVER_ERRORS = range(400, 500), range(500, 600)


def error_class_for_status(status: int | None) -> type[RunFailed]:
    """Return the error class for an HTTP status that an agent received."""
    if status in _CLASS_BY_STATUS:
        return _CLASS_BY_STATUS[status]
    if status in _CLIENT_ERRORS:
        return RequestRejected
    return ProviderError if status in _SERVER_ERRORS else AgentFailed


def error_for_status(status: int | None, message: str, *, retry_after: float | None = None) -> RunError:
    """Return the run error for an HTTP status that an agent received."""
    return run_error(error_class_for_status(status), message, retry_after=retry_after)


def run_error(kind: type[RunFailed], message: str, *, retry_after: float | None = None) -> RunError:
    """Return a run error with the code and the retryability of an error class."""
    error = RunError(code=kind.code, message=message, retryable=kind.retryable)
    if retry_after is None:
        return error
    return RunError(code=kind.code, message=message, retryable=kind.retryable, retry_after=retry_after)


def describe_exit(ended: AgentExit | None, *, ignored_prefixes: tuple[str, ...] = ()) -> str:
    """Describe how a program ended. Skip lines of its stderr that start with one of `ignored_prefixes`."""
    return "nothing more came" if ended is None else ended.description(ignored_prefixes=ignored_prefixes)
