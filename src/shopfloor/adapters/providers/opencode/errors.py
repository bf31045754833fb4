"""What OpenCode says of failures: errors with names and, where a model's provider failed, what it answered."""

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

_NAMES: dict[str, type[RunFailed]] = {
    "ProviderAuthError": AuthenticationFailed,
    "ContextOverflowError": RequestRejected,
    "ContentFilterError": RequestRejected,
    "MessageOutputLengthError": ProviderError,
    "MessageAbortedError": ExecutionCancelled,
}
_API = "APIError"
_PHRASES: tuple[tuple[str, type[RunFailed]], ...] = (
    ("timed out", ProviderTimeout),
    ("timeout", ProviderTimeout),
    ("connect", ProviderUnreachable),
    ("socket", ProviderUnreachable),
)
_REFUSALS = ("The user rejected permission", "The user has specified a rule which prevents you")
_NO_SESSION = "Session not found"
_SECONDS = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,9})?")


def parse_error(error: Record) -> RunError:
    name, data = text_at(error, "name") or "", record_at(error, "data")
    words = (text_at(data, "message") or text_at(error, "message") or name or "opencode failed")[
        :PROVIDER_MESSAGE_CHARS
    ]
    status = int_at(data, "statusCode")
    if name in _NAMES:
        return run_error(_NAMES[name], words)
    if status is not None:
        return error_for_status(status, words, retry_after=_retry_after(data))
    if name != _API:
        return run_error(AgentFailed, words)
    # Nobody answered.
    lower = words.lower()
    return run_error(next((kind for phrase, kind in _PHRASES if phrase in lower), ProviderError), words)


def error_note(error: Record, failed: RunError) -> Note:
    data = record_at(error, "data")
    return Note(
        kind="error",
        message=failed.message,
        code=failed.code,
        status=int_at(data, "statusCode"),
        retry_after=_retry_after(data),
    )


def is_permission_denied(error: str | None) -> bool:
    """Whether a tool failed because it was not allowed."""
    return error is not None and error.startswith(_REFUSALS)


def incomplete_stream_error(ended: AgentExit | None, *, started: bool) -> RunError:
    message = f"opencode {'ended in the middle' if started else 'did not start'}: {describe_exit(ended)}"
    return run_error(RequestRejected if not started and _NO_SESSION in message else AgentFailed, message)


def _retry_after(data: Record) -> float | None:
    after = (text_at(record_at(data, "responseHeaders"), "retry-after") or "").strip()
    return float(after) if _SECONDS.fullmatch(after) else None
