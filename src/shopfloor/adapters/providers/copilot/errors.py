"""Errors of Copilot: of model calls, and of the session."""

from __future__ import annotations

from shopfloor.adapters.providers.errors import describe_exit, error_class_for_status, error_for_status, run_error
from shopfloor.adapters.providers.json_access import Record, int_at, text_at
from shopfloor.adapters.providers.jsonl import json_object
from shopfloor.errors import (
    AgentFailed,
    AuthenticationFailed,
    ProviderError,
    ProviderUnreachable,
    RateLimited,
    RequestRejected,
    RunFailed,
)
from shopfloor.log import Note, RunError
from shopfloor.ports import AgentExit

_CLASS_BY_TYPE: dict[str | None, type[RunFailed]] = {
    "authentication": AuthenticationFailed,
    "authorization": AuthenticationFailed,
    "policy": RequestRejected,
    "policy_blocked": RequestRejected,
    "context_limit": RequestRejected,
    "compaction_static_context_blocked": RequestRejected,
    "quota": RateLimited,
    "rate_limit": RateLimited,
}
_NON_TERMINAL_ERRORS = frozenset({"model_call", "hook"})
"""Errors after which Copilot continues."""
_TERMINAL_WARNINGS = frozenset({"compaction_static_context_blocked", "policy_blocked"})
"""Warnings after which Copilot stops."""


def call_failure(data: Record) -> Note:
    """Return the note of a failed model call. Whether Copilot repeats the call is only known later."""
    status, attempt = int_at(data, "statusCode"), int_at(data, "retryAttempt")
    message = text_at(data, "errorMessage")
    if status is not None:
        code = error_class_for_status(status).code
    else:
        code = (ProviderUnreachable if data.get("failureKind") == "transport" else ProviderError).code
    try_ = attempt + 1 if attempt is not None else None
    return Note(kind="retry", message=_extract_message(message), code=code, status=status, try_=try_)


def session_error(data: Record, failed_call: Note | None) -> RunError:
    """Return the error of the session. `failed_call` is the last model call, if it failed."""
    message, status = text_at(data, "message") or "copilot failed", int_at(data, "statusCode")
    kind = _CLASS_BY_TYPE.get(text_at(data, "errorType") or text_at(data, "warningType"))
    if kind is not None:
        return run_error(kind, message)
    if status is None and failed_call is not None and failed_call.code == ProviderUnreachable.code:
        return run_error(ProviderUnreachable, message)
    return error_for_status(status, message)


def is_terminal(data: Record) -> bool:
    """Return whether the session ends after this error or warning."""
    error = text_at(data, "errorType")
    return (
        error not in _NON_TERMINAL_ERRORS if error is not None else text_at(data, "warningType") in _TERMINAL_WARNINGS
    )


def incomplete_stream_error(ended: AgentExit | None, *, started: bool) -> RunError:
    """Return the error of a stream without a `result`."""
    ending = "ended in the middle" if started else "did not start"
    return run_error(AgentFailed, f"copilot {ending}: {describe_exit(ended)}")


def _extract_message(message: str | None) -> str | None:
    """Return the model provider's message. Copilot passes on the error as JSON: an object, or a string."""
    if message is None:
        return None
    body = json_object(message.encode(errors="replace")) or {}
    is_quoted = len(message) > 1 and message.startswith('"') and message.endswith('"')
    return text_at(body, "message") or (message[1:-1] if is_quoted else message)
