"""Errors as events of a stream: each code of ours has a type that every client knows."""

from __future__ import annotations

from typing import Final

from shopfloor.errors import (
    AccessError,
    AuthenticationFailed,
    BudgetExceeded,
    ConflictError,
    DatabaseBusy,
    InputError,
    NotFoundError,
    ProviderError,
    ProviderOverloaded,
    ProviderTimeout,
    RateLimited,
    RunFailed,
    ShopfloorError,
    StorageError,
    ToolFailed,
    Unauthorized,
    error_of,
)
from shopfloor.views.stream_events import ErrorEvent, ErrorSource, ErrorType

_ERROR_TYPES: Final[dict[type[ShopfloorError], ErrorType]] = {
    InputError: "validation_error",
    ConflictError: "validation_error",
    NotFoundError: "not_found_error",
    AccessError: "permission_error",
    Unauthorized: "authentication_error",
    RunFailed: "execution_error",
    ProviderError: "provider_error",
    RateLimited: "rate_limit_error",
    ProviderOverloaded: "provider_overloaded",
    ProviderTimeout: "provider_timeout",
    AuthenticationFailed: "authentication_error",
    ToolFailed: "tool_error",
    BudgetExceeded: "quota_exceeded_error",
    ShopfloorError: "internal_error",
}
"""The type of an error is that of the nearest class above it which is listed here."""


def error_event(
    message: str,
    code: str,
    *,
    retryable: bool = False,
    retry_after: float | None = None,
    hint: str | None = None,
) -> ErrorEvent:
    """The event of an error with this code. A code that is none of ours is a worker's own failure."""
    kind = error_of(code)
    kind = RunFailed if kind is ShopfloorError and code != ShopfloorError.code else kind
    source: ErrorSource = "platform"
    if issubclass(kind, ProviderError | ToolFailed):
        source = "tool" if issubclass(kind, ToolFailed) else "provider"
    return ErrorEvent(
        message=message,
        error_type=next(_ERROR_TYPES[one] for one in kind.__mro__ if one in _ERROR_TYPES),
        source=source,
        code=code,
        retryable=retryable,
        retry_after=retry_after,
        hint=hint,
    )


def event_of(error: ShopfloorError) -> ErrorEvent:
    """The event that says an error of ours."""
    passing = error.retryable if isinstance(error, RunFailed) else isinstance(error, StorageError | DatabaseBusy)
    after = error.retry_after if isinstance(error, RunFailed) else None
    return error_event(error.message, error.code, retryable=passing, retry_after=after, hint=error.hint)
