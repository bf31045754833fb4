"""Events of a stream as the errors that they tell of."""

from __future__ import annotations

from shopfloor.errors import RunFailed, RunNotFound, ShopfloorError, error_of
from shopfloor.log import is_run_id
from shopfloor.views import ErrorEvent


def failure_of(event: ErrorEvent) -> ShopfloorError:
    """The error that an event tells of, as the error it is; `RunFailed` where it is a worker's own."""
    kind = error_of(event.code)
    if issubclass(kind, RunFailed):
        return kind(event.message, hint=event.hint, retry_after=event.retry_after)
    if kind is ShopfloorError:
        return RunFailed(event.message, hint=event.hint, retry_after=event.retry_after)
    return kind(event.message, hint=event.hint)


def no_such_run(run_id: object) -> RunNotFound:
    """The error for a text that can be no run's id: the same as for an id that no run has."""
    return RunNotFound(f"there is no run {run_id!r}", hint="a run id is a UUID v4 in lower case")


def checked_run(run_id: str) -> str:
    """The id, if a run can have it. Raises `RunNotFound`."""
    if not is_run_id(run_id):
        raise no_such_run(run_id)
    return run_id
