"""What an API says instead of an answer. Its HTTP status is not in its body, so its words decide."""

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

_KINDS: dict[str, type[RunFailed]] = {
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
_PHRASES: tuple[tuple[str, type[RunFailed]], ...] = (
    ("overloaded", ProviderOverloaded),
    ("rate limit", RateLimited),
    ("timed out", ProviderTimeout),
)
_STATUSES = range(400, 600)


def parse_error(record: Record) -> RunError | None:
    """The error that a record is; None where it is none."""
    error, detail = record.get("error"), record.get("detail")
    if isinstance(error, str) or (isinstance(detail, str) and len(record) == 1):
        return _error(str(error if isinstance(error, str) else detail), [])
    said = record_at(record, "error")
    if not said and "error" in (record.get("object"), record.get("type")):
        said = record
    if not said:
        return None
    return _error(text_at(said, "message") or "the provider failed", [said.get("code"), said.get("type")])


def error_note(error: RunError) -> TranscriptItem:
    return TranscriptItem(
        payload=AssistantMessage(note=Note(kind="error", message=error.message, code=error.code), blocks=[])
    )


def _error(message: str, words: list[Any]) -> RunError:
    message = message[:PROVIDER_MESSAGE_CHARS]
    status = next((int(str(word)) for word in words if str(word).isdecimal() and int(str(word)) in _STATUSES), None)
    if status is not None:
        return error_for_status(status, message)
    known = [_KINDS[word] for word in words if isinstance(word, str) and word in _KINDS]
    lower = message.lower()
    known += [kind for phrase, kind in _PHRASES if phrase in lower]
    return run_error(known[0] if known else ProviderError, message)
