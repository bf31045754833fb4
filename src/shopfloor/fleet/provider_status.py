"""The status of a provider, a pure function of its record: checks, what runs observed, and what people decided."""

from __future__ import annotations

from datetime import datetime

import msgspec

from shopfloor.errors import AuthenticationFailed
from shopfloor.fleet.limits import PROVIDER_FAILURE_SECONDS, PROVIDER_LIMIT_SECONDS
from shopfloor.log import format_timestamp
from shopfloor.ports import ProviderInfo, ProviderRecord, ProviderStatus, UnavailableReason
from shopfloor.views import ObservedLimit


class StatusDecision(msgspec.Struct, frozen=True):
    """The status of a provider, and why it is not `available`."""

    status: ProviderStatus
    reason: UnavailableReason | None = None
    error: str | None = None
    estimated_recovery: str | None = None


def decide_status(record: ProviderRecord, now: float) -> StatusDecision:
    """Return the status of a provider at the time `now`, in seconds since the epoch.

    What a person decided comes first, then what checks found, then what runs observed since a session last ended well.
    """
    if (disabled := record.disabled) is not None:
        is_maintenance = disabled.maintenance
        return StatusDecision("disabled", "maintenance" if is_maintenance else "disabled", disabled.reason)
    infos = [check.info for check in record.checks.values()]
    if infos and not any(info.usable for info in infos):
        return StatusDecision("unavailable", "error", _problem_of(infos[-1]))
    failure = record.failure
    if failure is not None and failure.at > _accepted_at(record):
        recovery = None if failure.code == AuthenticationFailed.code else _later(failure.at, PROVIDER_FAILURE_SECONDS)
        if recovery is None or recovery > now:
            return StatusDecision("unavailable", "error", failure.message or failure.code, _format_seconds(recovery))
    answered_at = record.answered_at or ""
    rejected = [limit for limit in record.limits if limit.status == "rejected" and limit.met_at > answered_at]
    resets = [_reset_of(limit) for limit in rejected]
    if resets and max(resets) > now:
        return StatusDecision("rate_limited", "rate_limited", None, _format_seconds(max(resets)))
    return StatusDecision("available")


def _accepted_at(record: ProviderRecord) -> str:
    """Return when the provider last accepted its credentials: a session ended well, or an API answered a check.

    The answer of a program does not count, because a program that knows its login does not know whether it is revoked.
    """
    answers = [check.at for check in record.checks.values() if check.info.answers and check.info.kind == "api"]
    return max([*answers, record.answered_at or ""])


def _problem_of(info: ProviderInfo) -> str:
    if info.problem is not None:
        return info.problem
    if info.kind == "agent" and info.path is None:
        return f"{info.program} is not installed: {info.install}"
    return f"not logged in: {info.install if info.kind == 'api' else f'start `{info.program}` once and log in'}"


def _reset_of(limit: ObservedLimit) -> float:
    """Return when a limit resets; a limit that does not say so counts for a while after a run met it."""
    reset = timestamp_seconds(limit.reset_at)
    return reset if reset is not None else _later(limit.met_at, PROVIDER_LIMIT_SECONDS)


def timestamp_seconds(timestamp: str | None) -> float | None:
    """Return a timestamp in seconds since the epoch; None if it is none. Timestamps of providers may be malformed."""
    try:
        moment = datetime.fromisoformat(timestamp or "")
        return moment.timestamp() if moment.tzinfo is not None else None
    except (ValueError, OverflowError):
        return None


def _later(timestamp: str, seconds: float) -> float:
    return (timestamp_seconds(timestamp) or 0.0) + seconds


def _format_seconds(seconds: float | None) -> str | None:
    return None if seconds is None else format_timestamp(int(seconds * 1000))
