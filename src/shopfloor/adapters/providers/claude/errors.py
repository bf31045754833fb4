"""Errors, rate limits and outcomes of Claude Code, mapped to those of a run."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

import msgspec

from shopfloor.adapters.providers.errors import describe_exit, error_class_for_status, error_for_status, run_error
from shopfloor.adapters.providers.json_access import (
    Record,
    int_at,
    list_at,
    number_at,
    parse_timestamp,
    record_at,
    text_at,
)
from shopfloor.errors import (
    AgentFailed,
    AuthenticationFailed,
    BudgetExceeded,
    ExecutionCancelled,
    ProviderError,
    ProviderOverloaded,
    ProviderTimeout,
    ProviderUnreachable,
    RateLimited,
    RequestRejected,
    RunFailed,
    TurnsExceeded,
)
from shopfloor.log import Limit, Note, RunError, Status
from shopfloor.ports import AgentExit

_CLASS_BY_WORD: dict[str | None, type[RunFailed]] = {
    # Values of `api_error`, the most specific field.
    "connection_failed": ProviderUnreachable,
    "computer_slept": ProviderUnreachable,
    "no_response": ProviderTimeout,
    "stream_idle_timeout": ProviderTimeout,
    "usage_limit_reached": RateLimited,
    # Values of `api_error_type`, the type that the API returned.
    "authentication_error": AuthenticationFailed,
    "permission_error": AuthenticationFailed,
    "invalid_request_error": RequestRejected,
    "not_found_error": RequestRejected,
    "overloaded_error": ProviderOverloaded,
    "rate_limit_error": RateLimited,
    "timeout_error": ProviderTimeout,
    # Values of `error`.
    "authentication_failed": AuthenticationFailed,
    "oauth_org_not_allowed": AuthenticationFailed,
    "cloud_credential_error": AuthenticationFailed,
    "billing_error": RequestRejected,
    "invalid_request": RequestRejected,
    "model_not_found": RequestRejected,
    "overloaded": ProviderOverloaded,
    "rate_limit": RateLimited,
    "server_error": ProviderError,
}
_CLASS_BY_SUBTYPE: dict[str | None, type[RunFailed]] = {
    "error_max_turns": TurnsExceeded,
    "error_max_budget_usd": BudgetExceeded,
}
_LIMIT_STATUS: dict[str | None, Literal["allowed", "warning", "rejected"]] = {
    "allowed": "allowed",
    "allowed_warning": "warning",
    "rejected": "rejected",
}


def api_error(record: Record, message: str) -> RunError:
    """Return the error of a message that Claude Code writes in the model's name when a model call failed."""
    status = int_at(record, "api_error_status")
    if status is not None:
        return error_for_status(status, message)
    words = [text_at(record, key) for key in ("api_error", "api_error_type", "error")]
    return run_error(next((_CLASS_BY_WORD[word] for word in words if word in _CLASS_BY_WORD), AgentFailed), message)


def retry_note(record: Record) -> Note:
    """Return the note of a failed model call that is repeated. Without a status there was no response."""
    status = int_at(record, "error_status")
    word = text_at(record, "error") or text_at(record, "error_category")
    code = _CLASS_BY_WORD.get(word, ProviderUnreachable).code if status is None else error_class_for_status(status).code
    retries, delay = int_at(record, "max_retries"), number_at(record, "retry_delay_ms")
    return Note(
        kind="retry",
        message=word,
        code=code,
        status=status,
        try_=int_at(record, "attempt"),
        # The first try is not one of the retries.
        tries=None if retries is None else retries + 1,
        retry_after=None if delay is None else delay / 1000,
    )


def parse_rate_limit(info: Record) -> Limit:
    """Convert the state of a rate limit."""
    window, resets_at_seconds, utilization = (
        text_at(info, "rateLimitType"),
        number_at(info, "resetsAt"),
        number_at(info, "utilization"),
    )
    if utilization is None and window is not None:
        utilization = number_at(record_at(record_at(info, "unifiedWindows"), window), "utilization")
    return Limit(
        status=_LIMIT_STATUS.get(text_at(info, "status"), "allowed"),
        current=utilization,
        reset_at=None if resets_at_seconds is None else parse_timestamp(resets_at_seconds * 1000),
        window=window,
    )


def seconds_until(reset_at: str | None, now: str | None) -> float | None:
    """Return the seconds from `now` until `reset_at`, at least 0; None if either is not known."""
    if reset_at is None or now is None:
        return None
    wait_seconds = datetime.fromisoformat(reset_at) - datetime.fromisoformat(now)
    return max(0.0, wait_seconds.total_seconds())


def outcome(
    result: Record, failure: RunError | None, wait_seconds: float | None, ended: AgentExit | None
) -> tuple[Status, RunError | None]:
    """Return how the session ended, by its last result.

    The traps: a result of a model call that finally failed has the subtype "success" with `is_error`; an interrupted
    run exits with 0; older versions reach the turn limit without `is_error`. `failure` is the error of the last message
    in the model's name, and `wait_seconds` the time until a rate limit is reset.
    """
    subtype = text_at(result, "subtype")
    if subtype == "success" and result.get("is_error") is not True:
        return "completed", None
    if ended is not None and ended.cancelled:
        return "cancelled", run_error(ExecutionCancelled, "claude was stopped")
    message = _message(result)
    if subtype in _CLASS_BY_SUBTYPE:
        return "failed", run_error(_CLASS_BY_SUBTYPE[subtype], message)
    status = int_at(result, "api_error_status")
    if failure is None or failure.message != message or status is not None:
        failure = error_for_status(status, message)
    if failure.code == RateLimited.code and wait_seconds is not None:
        failure = msgspec.structs.replace(failure, retry_after=wait_seconds)
    return "failed", failure


def incomplete_stream_outcome(ended: AgentExit | None, *, started: bool) -> tuple[Status, RunError]:
    """Return how a session ended whose stream has no result."""
    if ended is not None and ended.cancelled:
        return "cancelled", run_error(ExecutionCancelled, "claude was stopped")
    ending = "ended in the middle" if started else "did not start"
    return "failed", run_error(AgentFailed, f"claude {ending}: {describe_exit(ended)}")


def _message(result: Record) -> str:
    reason = text_at(result, "terminal_reason") or ""
    if reason.startswith("aborted"):
        # Claude Code's own message is for its developers.
        return "claude was interrupted"
    errors = "; ".join(error for error in list_at(result, "errors") if isinstance(error, str))
    return text_at(result, "result") or errors or reason or "claude did not end well"
