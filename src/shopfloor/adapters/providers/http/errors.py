"""Errors in the bodies of responses. The HTTP status is not in the body, so codes, types and phrases decide."""

from __future__ import annotations

from typing import Any

from shopfloor.adapters.providers.errors import error_for_status, run_error
from shopfloor.adapters.providers.json_access import Record, record_at, text_at
from shopfloor.errors import (
    AuthenticationFailed,
    ProviderError,
    ProviderOverloaded,
    ProviderTimeout,
    RateLimited,
    RequestRejected,
    RunFailed,
)
from shopfloor.limits import PROVIDER_MESSAGE_CHARS
from shopfloor.log import AssistantMessage, Note, RunError
from shopfloor.ports import TranscriptItem

_CLASS_BY_CODE: dict[str, type[RunFailed]] = {
    "authentication_error": AuthenticationFailed,
    "invalid_api_key": AuthenticationFailed,
    "permission_error": AuthenticationFailed,
    "rate_limit_error": RateLimited,
    "rate_limit_exceeded": RateLimited,
    "insufficient_quota": RequestRejected,
    "overloaded_error": ProviderOverloaded,
    "server_is_overloaded": ProviderOverloaded,
    "slow_down": ProviderOverloaded,
    "timeout_error": ProviderTimeout,
    "request_timeout": ProviderTimeout,
    "billing_error": RequestRejected,
    "invalid_prompt": RequestRejected,
    "invalid_request_error": RequestRejected,
    "not_found_error": RequestRejected,
    "request_too_large": RequestRejected,
}
_CLASS_BY_PHRASE: tuple[tuple[str, type[RunFailed]], ...] = (
    ("overloaded", ProviderOverloaded),
    ("rate limit", RateLimited),
    ("timed out", ProviderTimeout),
)
_STATUSES = range(400, 600)


def parse_error(record: Record) -> RunError | None:
    """Return the run error of an error record; None if the record is not an error."""
    error, detail = record.get("error"), record.get("detail")
    if isinstance(error, str) or (isinstance(detail, str) and len(record) == 1):
        return _error(str(error if isinstance(error, str) else detail), [])
    body = record_at(record, "error")
    if not body and "error" in (record.get("object"), record.get("type")):
        body = record
    if not body:
        return None
    return _error(text_at(body, "message") or "the provider failed", [body.get("code"), body.get("type")])


def error_note(error: RunError) -> TranscriptItem:
    """Return the report of an error."""
    return TranscriptItem(
        payload=AssistantMessage(note=Note(kind="error", message=error.message, code=error.code), blocks=[])
    )


def _error(message: str, codes: list[Any]) -> RunError:
    message = message[:PROVIDER_MESSAGE_CHARS]
    status = next((int(str(code)) for code in codes if str(code).isdecimal() and int(str(code)) in _STATUSES), None)
    if status is not None:
        return error_for_status(status, message)
    classes = [_CLASS_BY_CODE[code] for code in codes if isinstance(code, str) and code in _CLASS_BY_CODE]
    lower = message.lower()
    classes += [kind for phrase, kind in _CLASS_BY_PHRASE if phrase in lower]
    return run_error(classes[0] if classes else ProviderError, message)
