"""Events of a stream as the errors that they tell of."""

from __future__ import annotations

from shopfloor.errors import RunFailed, ShopfloorError, error_of
from shopfloor.views import ErrorEvent


def failure_of(event: ErrorEvent) -> ShopfloorError:
    """The error that an event tells of, as the error it is; `RunFailed` where it is a worker's own."""
    kind = error_of(event.code)
    if issubclass(kind, RunFailed):
        return kind(event.message, hint=event.hint, retry_after=event.retry_after)
    if kind is ShopfloorError:
        return RunFailed(event.message, hint=event.hint, retry_after=event.retry_after)
    return kind(event.message, hint=event.hint)
