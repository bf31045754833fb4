"""What Copilot says of failures: of a call to the model, and of the session."""

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

_KINDS: dict[str | None, type[RunFailed]] = {
    "authentication": AuthenticationFailed,
    "authorization": AuthenticationFailed,
    "policy": RequestRejected,
    "policy_blocked": RequestRejected,
    "context_limit": RequestRejected,
    "compaction_static_context_blocked": RequestRejected,
    "quota": RateLimited,
    "rate_limit": RateLimited,
}
_GOES_ON = frozenset({"model_call", "hook"})
"""Errors that Copilot itself does not take for the end."""
_STOPS = frozenset({"compaction_static_context_blocked", "policy_blocked"})
"""Warnings that it takes for the end."""


def call_failure(data: Record) -> Note:
    """A call to the model that failed. Whether it is made again is told later."""
    status, attempt, said = int_at(data, "statusCode"), int_at(data, "retryAttempt"), text_at(data, "errorMessage")
    if status is not None:
        code = error_class_for_status(status).code
    else:
        code = (ProviderUnreachable if data.get("failureKind") == "transport" else ProviderError).code
    try_ = attempt + 1 if attempt is not None else None
    return Note(kind="retry", message=_sentence(said), code=code, status=status, try_=try_)


def session_error(data: Record, failed: Note | None) -> RunError:
    """`failed`: the last call to the model, where it failed."""
    message, status = text_at(data, "message") or "copilot failed", int_at(data, "statusCode")
    kind = _KINDS.get(text_at(data, "errorType") or text_at(data, "warningType"))
    if kind is not None:
        return run_error(kind, message)
    if status is None and failed is not None and failed.code == ProviderUnreachable.code:
        return run_error(ProviderUnreachable, message)
    return error_for_status(status, message)


def is_terminal(data: Record) -> bool:
    """Whether the session does not go on after an error or a warning."""
    error = text_at(data, "errorType")
    return error not in _GOES_ON if error is not None else text_at(data, "warningType") in _STOPS


def incomplete_stream_error(ended: AgentExit | None, *, started: bool) -> RunError:
    """The error of a stream without its last record."""
    where = "ended in the middle" if started else "did not start"
    return run_error(AgentFailed, f"copilot {where}: {describe_exit(ended)}")


def _sentence(said: str | None) -> str | None:
    """The provider's own sentence: Copilot hands on the answer's error as JSON, an object or a text."""
    if said is None:
        return None
    found = json_object(said.encode(errors="replace")) or {}
    quoted = len(said) > 1 and said.startswith('"') and said.endswith('"')
    return text_at(found, "message") or (said[1:-1] if quoted else said)
