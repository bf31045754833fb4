"""Errors of OpenCode, which reports them by name, by HTTP status, or as sentences."""

from __future__ import annotations

import re

from shopfloor.adapters.providers.errors import describe_exit, error_for_status, run_error
from shopfloor.adapters.providers.json_access import Record, int_at, record_at, text_at
from shopfloor.errors import (
    AgentFailed,
    AuthenticationFailed,
    ExecutionCancelled,
    ProviderError,
    ProviderTimeout,
    ProviderUnreachable,
    RequestRejected,
    RunFailed,
)
from shopfloor.limits import PROVIDER_MESSAGE_CHARS
from shopfloor.log import Note, RunError
from shopfloor.ports import AgentExit

_CLASS_BY_NAME: dict[str, type[RunFailed]] = {
    "ProviderAuthError": AuthenticationFailed,
    "ContextOverflowError": RequestRejected,
    "ContentFilterError": RequestRejected,
    "MessageOutputLengthError": ProviderError,
    "MessageAbortedError": ExecutionCancelled,
}
_API_ERROR = "APIError"
_CLASS_BY_PHRASE: tuple[tuple[str, type[RunFailed]], ...] = (
    ("timed out", ProviderTimeout),
    ("timeout", ProviderTimeout),
    ("connect", ProviderUnreachable),
    ("socket", ProviderUnreachable),
)
_DENIED_PREFIXES = ("The user rejected permission", "The user has specified a rule which prevents you")
_NO_SESSION = "Session not found"
_SECONDS = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,9})?")


def parse_error(error: Record) -> RunError:
    """Return the run error of an error record."""
    name, data = text_at(error, "name") or "", record_at(error, "data")
    text = (text_at(data, "message") or text_at(error, "message") or name or "opencode failed")[:PROVIDER_MESSAGE_CHARS]
    status = int_at(data, "statusCode")
    if name in _CLASS_BY_NAME:
        return run_error(_CLASS_BY_NAME[name], text)
    if status is not None:
        return error_for_status(status, text, retry_after=_retry_after(data))
    if name != _API_ERROR:
        return run_error(AgentFailed, text)
    # An API error without a status: there was no response.
    lower = text.lower()
    return run_error(next((kind for phrase, kind in _CLASS_BY_PHRASE if phrase in lower), ProviderError), text)


def error_note(error: Record, failure: RunError) -> Note:
    """Return the note of an error record and its run error."""
    data = record_at(error, "data")
    return Note(
        kind="error",
        message=failure.message,
        code=failure.code,
        status=int_at(data, "statusCode"),
        retry_after=_retry_after(data),
    )


def is_permission_denied(error: str | None) -> bool:
    """Return whether the error of a tool means that the tool was not allowed."""
    return error is not None and error.startswith(_DENIED_PREFIXES)


def incomplete_stream_error(ended: AgentExit | None, *, started: bool) -> RunError:
    """Return the error of a stream without a final step."""
    message = f"opencode {'ended in the middle' if started else 'did not start'}: {describe_exit(ended)}"
    return run_error(RequestRejected if not started and _NO_SESSION in message else AgentFailed, message)


def _retry_after(data: Record) -> float | None:
    seconds = (text_at(record_at(data, "responseHeaders"), "retry-after") or "").strip()
    return float(seconds) if _SECONDS.fullmatch(seconds) else None
