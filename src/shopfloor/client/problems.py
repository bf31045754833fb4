"""Errors as events of a stream, and events of a stream as errors."""

from __future__ import annotations

from shopfloor.errors import RunFailed, ShopfloorError, error_of
from shopfloor.views import ErrorEvent


def told(error: ShopfloorError) -> ErrorEvent:
    retryable, after = (error.retryable, error.retry_after) if isinstance(error, RunFailed) else (False, None)
    return ErrorEvent(
        message=error.message, error_type=error.code, retryable=retryable, retry_after=after, hint=error.hint
    )


def failure_of(event: ErrorEvent) -> ShopfloorError:
    """The error that an event tells of, as the error it is; `RunFailed` where it is a worker's own."""
    kind = error_of(event.error_type)
    if issubclass(kind, RunFailed):
        return kind(event.message, hint=event.hint, retry_after=event.retry_after)
    if kind is ShopfloorError:
        return RunFailed(event.message, hint=event.hint, retry_after=event.retry_after)
    return kind(event.message, hint=event.hint)
