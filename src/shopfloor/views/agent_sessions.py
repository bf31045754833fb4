"""Changes of a session: the status messages of its program, its errors with what follows them, and its end."""

from __future__ import annotations

from typing import Any, Final, cast

import msgspec
from msgspec.structs import replace

from shopfloor.errors import (
    AgentFailed,
    BudgetExceeded,
    ExecutionCancelled,
    HostStopped,
    OutcomeUnknown,
    ProviderTimeout,
    RateLimited,
)
from shopfloor.log import Cost, Event, FailureDecision, Limit, Note, RunCompleted, StepCompleted, Usage
from shopfloor.views.agent_event_builders import (
    AgentSession,
    Metrics,
    action_of,
    completed_event,
    failure_event,
    fatal_error_event,
    is_rate_limit,
    rate_limited_event,
    ready_event,
    retry_event,
    terminated_event,
)
from shopfloor.views.agent_payloads import ErrorActionFields, Reason
from shopfloor.views.fleet_event_types import FleetEvent
from shopfloor.views.spending import NO_USAGE, UsageTotal
from shopfloor.views.truncation import ms_between

_TERMINATION_REASONS: Final[dict[str, Reason]] = {
    ExecutionCancelled.code: "user_cancel",
    BudgetExceeded.code: "error",
    HostStopped.code: "system",
    OutcomeUnknown.code: "system",
    "host_lost": "system",
}
_CRASH_SIGNALS = frozenset({"SIGABRT", "SIGBUS", "SIGFPE", "SIGILL", "SIGSEGV", "SIGSYS", "SIGTRAP"})
"""Signals that kill a crashing program; any other signal was sent from outside."""


def continue_session(agent: AgentSession, event: Event) -> tuple[AgentSession, list[FleetEvent]]:
    """Report an error that the session has recovered from. If the same error stops it again, it is reported again."""
    if agent.error_code is None:
        return agent, []
    events = reported_error_events(agent, event, {"type": "retry"})
    return replace(agent, error_code=None, error_note=None), events


def report_ready(agent: AgentSession, event: Event) -> tuple[AgentSession, list[FleetEvent]]:
    """Report a session as ready if that was put off until the size of its context is known."""
    events = awaited_ready_events(agent, event)
    return (replace(agent, ready=True, ready_at=None), events) if events else (agent, events)


def handle_note(agent: AgentSession, event: Event, note: Note) -> tuple[AgentSession, list[FleetEvent]]:
    """Return the session after a status message of its program, and the events that it causes."""
    match note.kind:
        case "ready" if not agent.ready:
            # A session may report this more than once.
            tokens = note.ready.context_tokens if note.ready else None
            if note.ready is not None and note.ready.context_follows and tokens is None:
                return replace(agent, ready_at=agent.ready_at or event.timestamp), []
            ready = ready_event(agent, event, tokens, is_context_loaded=note.ready is not None)
            return replace(agent, ready=True, ready_at=None), [ready]
        case "retry" if is_rate_limit(note):
            return agent, [rate_limited_event(agent, event, note.limit, note.retry_after)]
        case "retry":
            return agent, [retry_event(agent, event, note)]
        case "limit" if note.limit is not None and note.limit.status == "warning":
            return agent, [rate_limited_event(agent, event, note.limit, note.retry_after)]
        case "limit" | "error" if is_rate_limit(note) or (note.limit is not None and note.limit.status == "rejected"):
            return _with_rate_limit(agent, event, note)
        case "error":
            return _with_error(agent, event, note, note.code or AgentFailed.code)
        case _:
            return agent, []


def _with_rate_limit(agent: AgentSession, event: Event, note: Note) -> tuple[AgentSession, list[FleetEvent]]:
    """Report a rate limit, or keep it until the delay is known. The same limit again is not reported again."""
    if agent.error_code == RateLimited.code and (agent.error_note is None or note.kind == "error"):
        return agent, []
    has_delay = note.retry_after is not None or (note.limit is not None and note.limit.reset_at is not None)
    if note.kind == "error" and not has_delay:
        return _with_error(agent, event, note, RateLimited.code)
    agent, events = continue_session(agent, event) if agent.error_code != RateLimited.code else (agent, [])
    events.append(rate_limited_event(agent, event, note.limit, note.retry_after))
    return replace(agent, error_code=RateLimited.code, error_note=None), events


def _with_error(agent: AgentSession, event: Event, note: Note, code: str) -> tuple[AgentSession, list[FleetEvent]]:
    """Keep an error until it is known what follows. A further error means that the session went on after the first."""
    agent, events = continue_session(agent, event)
    return replace(agent, error_code=code, error_note=note), events


class SessionEnd(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a session, or of one try in a conversation, as its step or its run has it."""

    error: str | None = None
    code: str | None = None
    recoverable: bool | None = None
    decision: FailureDecision | None = None
    wait: float | None = None
    limits: list[Limit] | None = None
    exit_code: int | None = None
    signal: str | None = None
    usage: Usage | None = None
    cost: Cost | None = None
    duration_ms: int | None = None


def end_of_step(step: StepCompleted) -> SessionEnd:
    """Return the end of an agent's session, which is the end of its step."""
    step_result: Any = step.result
    result = cast("dict[str, Any]", step_result) if isinstance(step_result, dict) else {}
    code, signal = result.get("exit_code"), result.get("signal")
    return SessionEnd(
        error=step.error,
        code=step.error_code,
        recoverable=step.retryable,
        decision=step.decision,
        limits=step.rate_limits,
        exit_code=code if isinstance(code, int) and not isinstance(code, bool) else None,
        signal=signal if isinstance(signal, str) else None,
        usage=step.usage,
        cost=step.cost,
        duration_ms=step.duration_ms,
    )


def end_of_turn(step: StepCompleted) -> SessionEnd:
    """Return the end of a step of a conversation. Its metrics are those of the whole conversation, not of the step."""
    return SessionEnd(error=step.error, code=step.error_code, recoverable=step.retryable, decision=step.decision)


def end_of_run(run: RunCompleted) -> SessionEnd:
    """Return the end of a session that is the run itself."""
    code = ExecutionCancelled.code if run.status == "cancelled" else run.error.code if run.error else AgentFailed.code
    message = run.error.message if run.error else f"the run has {run.status}"
    retry_after = run.error.retry_after if run.error else None
    is_completed = run.status == "completed"
    return SessionEnd(
        error=None if is_completed else message,
        code=None if is_completed else code,
        recoverable=run.error.retryable if run.error else None,
        wait=None if isinstance(retry_after, msgspec.UnsetType) else retry_after,
        usage=run.usage,
        cost=run.cost,
        duration_ms=run.duration_ms,
    )


def run_end_reason(run: RunCompleted) -> Reason:
    """Return why a session that is open at the end of its run was ended."""
    if run.status == "cancelled":
        return "user_cancel"
    return _TERMINATION_REASONS.get(run.error.code if run.error else "", "system")


def end_events(agent: AgentSession, event: Event, end: SessionEnd, spent: UsageTotal) -> list[FleetEvent]:
    """Return the last events of a session."""
    reason = _termination_reason(agent, end)
    events = [*awaited_ready_events(agent, event), *_failure_events(agent, event, end, reason)]
    metrics = _metrics(agent, event, spent, end)
    if reason is None:
        events.append(completed_event(agent, event, metrics, success=end.error is None, exit_code=end.exit_code))
    else:
        events.append(terminated_event(agent, event, metrics, reason, end.signal))
    return events


def retried_turn_events(agent: AgentSession, event: Event, end: SessionEnd) -> list[FleetEvent]:
    """Return the events of a failed try in a conversation that continues with the next try."""
    return _failure_events(agent, event, end, None)


def termination_events(agent: AgentSession, event: Event, spent: UsageTotal, reason: Reason) -> list[FleetEvent]:
    """Return the last events of a session whose end is not in the log. Its metrics come from its messages alone."""
    metrics = _metrics(agent, event, spent, SessionEnd())
    return [
        *awaited_ready_events(agent, event),
        *reported_error_events(agent, event, {"type": "abort"}),
        terminated_event(agent, event, metrics, reason),
    ]


def awaited_ready_events(agent: AgentSession, event: Event) -> list[FleetEvent]:
    """Return the `agent.ready` that was delayed for the size of the context, now that the size will not follow."""
    return [ready_event(agent, event)] if agent.ready_at is not None and not agent.ready else []


def reported_error_events(
    agent: AgentSession, event: Event, action: ErrorActionFields, wait: float | None = None
) -> list[FleetEvent]:
    """Return the error that the agent reported, now that it is known what follows. `wait` is the delay in seconds."""
    note = agent.error_note
    if note is None:
        return []
    if is_rate_limit(note) or note.kind == "limit":
        return [rate_limited_event(agent, event, note.limit, note.retry_after if wait is None else wait)]
    return [fatal_error_event(agent, event, note, action)]


def _failure_events(agent: AgentSession, event: Event, end: SessionEnd, reason: Reason | None) -> list[FleetEvent]:
    action = action_of(end.decision)
    # The engine's own delay counts: it does not wait as long as the provider asks for.
    delay = end.decision.delay_seconds if end.decision else None
    events = reported_error_events(agent, event, action, delay)
    if end.error is None or (end.code or AgentFailed.code) == agent.error_code:
        return events
    if end.code == RateLimited.code:
        rejected = [limit for limit in end.limits or [] if limit.status == "rejected"]
        wait = end.wait if delay is None else delay
        events.append(rate_limited_event(agent, event, rejected[-1] if rejected else None, wait))
    elif reason in {None, "error"}:
        events.append(failure_event(agent, event, end.code, end.error, action, recoverable=end.recoverable))
    return events


def _termination_reason(agent: AgentSession, end: SessionEnd) -> Reason | None:
    """Return why a session was ended from outside, or None if it ended by itself."""
    if end.error is None:
        return None
    code = end.code or ""
    if code in _TERMINATION_REASONS:
        return _TERMINATION_REASONS[code]
    exited = end.signal is None and (end.exit_code is not None or not agent.process)
    if code.endswith("timeout") and not (exited and code == ProviderTimeout.code):
        return "timeout"
    if end.signal is not None:
        return "error" if end.signal in _CRASH_SIGNALS else "system"
    if not code and end.exit_code is None:
        # The session's host would have written a code: the step was closed after the host was lost.
        return "system"
    return None if exited else "error"


def _metrics(agent: AgentSession, event: Event, spent: UsageTotal, end: SessionEnd) -> Metrics:
    message_usage = None if spent == NO_USAGE else spent.usage
    # A partial sum would be read as the total.
    cost_usd = spent.cost_usd if spent.is_priced else None
    # A resumed try has lasted since the attempt that started it, the session only since its own attempt.
    duration_ms = None if agent.resumed_attempt else end.duration_ms
    return Metrics(
        duration_ms=ms_between(agent.started_at, event.timestamp) if duration_ms is None else duration_ms,
        usage=end.usage or message_usage,
        cost_usd=end.cost.usd if end.cost else cost_usd,
    )
