"""What went wrong, in our words: calls of the model that failed, limits, and how it all ended."""

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

_BY_WORD: dict[str | None, type[RunFailed]] = {
    # Of `api_error`, which tells more.
    "connection_failed": ProviderUnreachable,
    "computer_slept": ProviderUnreachable,
    "no_response": ProviderTimeout,
    "stream_idle_timeout": ProviderTimeout,
    "usage_limit_reached": RateLimited,
    # Of `api_error_type`, which is the API's own.
    "authentication_error": AuthenticationFailed,
    "permission_error": AuthenticationFailed,
    "invalid_request_error": RequestRejected,
    "not_found_error": RequestRejected,
    "overloaded_error": ProviderOverloaded,
    "rate_limit_error": RateLimited,
    "timeout_error": ProviderTimeout,
    # Of `error`.
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
_BY_SUBTYPE: dict[str | None, type[RunFailed]] = {
    "error_max_turns": TurnsExceeded,
    "error_max_budget_usd": BudgetExceeded,
}
_LIMIT_STATUS: dict[str | None, Literal["allowed", "warning", "rejected"]] = {
    "allowed": "allowed",
    "allowed_warning": "warning",
    "rejected": "rejected",
}


def api_error(record: Record, message: str) -> RunError:
    """What a message in the model's name means that says why there is none."""
    status = int_at(record, "api_error_status")
    if status is not None:
        return error_for_status(status, message)
    words = [text_at(record, key) for key in ("api_error", "api_error_type", "error")]
    return run_error(next((_BY_WORD[word] for word in words if word in _BY_WORD), AgentFailed), message)


def retry_note(record: Record) -> Note:
    """A call of the model failed and is made again. No status: there was no answer."""
    status = int_at(record, "error_status")
    word = text_at(record, "error") or text_at(record, "error_category")
    code = _BY_WORD.get(word, ProviderUnreachable).code if status is None else error_class_for_status(status).code
    retries, delay = int_at(record, "max_retries"), number_at(record, "retry_delay_ms")
    return Note(
        kind="retry",
        message=word,
        code=code,
        status=status,
        try_=int_at(record, "attempt"),
        # The first try is none of the retries.
        tries=None if retries is None else retries + 1,
        retry_after=None if delay is None else delay / 1000,
    )


def parse_rate_limit(info: Record) -> Limit:
    window, resets, used = text_at(info, "rateLimitType"), number_at(info, "resetsAt"), number_at(info, "utilization")
    if used is None and window is not None:
        used = number_at(record_at(record_at(info, "unifiedWindows"), window), "utilization")
    return Limit(
        status=_LIMIT_STATUS.get(text_at(info, "status"), "allowed"),
        current=used,
        reset_at=None if resets is None else parse_timestamp(resets * 1000),
        window=window,
    )


def seconds_until(reset_at: str | None, now: str | None) -> float | None:
    if reset_at is None or now is None:
        return None
    wait = datetime.fromisoformat(reset_at) - datetime.fromisoformat(now)
    return max(0.0, wait.total_seconds())


def outcome(
    result: Record, failure: RunError | None, wait: float | None, ended: AgentExit | None
) -> tuple[Status, RunError | None]:
    """How it ended by its last result.

    A call of the model that failed for good calls itself a success with `is_error`, and an interrupted run exits with
    0; older versions end by too many turns without `is_error`. `failure` is the last that was said in the model's name,
    `wait` the seconds until a limit is reset.
    """
    subtype = text_at(result, "subtype")
    if subtype == "success" and result.get("is_error") is not True:
        return "completed", None
    if ended is not None and ended.cancelled:
        return "cancelled", run_error(ExecutionCancelled, "claude was stopped")
    message = _message(result)
    if subtype in _BY_SUBTYPE:
        return "failed", run_error(_BY_SUBTYPE[subtype], message)
    status = int_at(result, "api_error_status")
    if failure is None or failure.message != message or status is not None:
        failure = error_for_status(status, message)
    if failure.code == RateLimited.code and wait is not None:
        failure = msgspec.structs.replace(failure, retry_after=wait)
    return "failed", failure


def incomplete_stream_outcome(ended: AgentExit | None, *, started: bool) -> tuple[Status, RunError]:
    """The stream stops without a result."""
    if ended is not None and ended.cancelled:
        return "cancelled", run_error(ExecutionCancelled, "claude was stopped")
    where = "ended in the middle" if started else "did not start"
    return "failed", run_error(AgentFailed, f"claude {where}: {describe_exit(ended)}")


def _message(result: Record) -> str:
    reason = text_at(result, "terminal_reason") or ""
    if reason.startswith("aborted"):
        # What it says itself is for its makers.
        return "claude was interrupted"
    errors = "; ".join(error for error in list_at(result, "errors") if isinstance(error, str))
    return text_at(result, "result") or errors or reason or "claude did not end well"
