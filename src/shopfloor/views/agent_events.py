"""The `agent.*` fleet events of a run, as a view of its log: unique by run, `seq` and `n`.

A session lasts from the `step.started` of an agent step that names its provider to the end of that step. Its `agentId`
is `<run id>:<path>:<iteration>:<try>`, followed by `:<attempt>` if a later attempt resumes the same try, because that
is another process. A sub-agent is a run of its own. If its log has no agent step, the run itself is the session and
`agentId` is the run's id; `agent.spawned` is then sent with its first message, because only then is it known that no
agent step will follow.

Where two events would fit:

- A rate limit is `agent.rate_limited` and never also `agent.error`, even if the session ends with the rate limit.
- An error that the agent reported is not repeated when the step ends with the same code, nor a rate limit when the step
  waits for its reset, unless the session continued in between.
- A session that was ended from outside gets only `agent.terminated`, with a reason. Only the reason `error` is preceded
  by an `agent.error` with the details.
- A session whose step succeeded gets `agent.completed`, however its process was ended afterwards. A failed session
  ended by itself if it left an exit code, or never had a process that could leave one.
- A session that ends with its run or attempt gets its last event then, not again when its step is closed later.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar, cast

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
from shopfloor.limits import FLEET_EVENT_FACTS
from shopfloor.log import (
    INTERRUPTED_STOP,
    AssistantMessage,
    Awaits,
    Cost,
    Event,
    Limit,
    Note,
    RunCompleted,
    RunStarted,
    StepCompleted,
    StepStarted,
    ToolCall,
    ToolResult,
    Usage,
    UserMessage,
)
from shopfloor.views.agent_event_types import (
    AgentSession,
    Metrics,
    completed_event,
    failure_event,
    fatal_error_event,
    file_change_event,
    is_rate_limit,
    parse_capabilities,
    rate_limited_event,
    ready_event,
    retry_event,
    spawned_event,
    terminated_event,
    thinking_events,
    tool_call_event,
    tool_result_event,
)
from shopfloor.views.agent_payloads import Reason
from shopfloor.views.fleet_event_types import FleetEvent
from shopfloor.views.spending import NO_USAGE, Spending, UsageTotal, spending_step
from shopfloor.views.truncation import ms_between
from shopfloor.views.wait_state import step_key_of

T = TypeVar("T")
_RUN_KEY = "#"
"""The key of a session that is the run itself; no step has this key."""
_TERMINATION_REASONS: Final[dict[str, Reason]] = {
    ExecutionCancelled.code: "user_cancel",
    BudgetExceeded.code: "error",
    HostStopped.code: "system",
    OutcomeUnknown.code: "system",
    "host_lost": "system",
}
_RUN_EVENTS = (RunStarted, RunCompleted)
_OPENING = (StepStarted, *_RUN_EVENTS)
"""Events that can matter without an open session."""
_CRASH_SIGNALS = frozenset({"SIGABRT", "SIGBUS", "SIGFPE", "SIGILL", "SIGSEGV", "SIGSYS", "SIGTRAP"})
"""Signals that kill a crashing program; any other signal was sent from outside."""


class FleetEventState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The state of the fold. Bounded: each dictionary has the newest `FLEET_EVENT_FACTS` entries."""

    host: str | None = None
    agents: dict[str, AgentSession] = {}
    """The open sessions, by step key."""
    calls: dict[str, str] = {}
    """The start times of the open calls, by session and call."""
    files: dict[str, None] = {}
    """The changed files, by session and path: each file is counted once."""
    spending: Spending = Spending()
    """The spending of the current attempt."""


Step = tuple[FleetEventState, list[FleetEvent]]


def fleet_event_step(state: FleetEventState, event: Event) -> Step:
    """Return the state after the next event of a run, and the fleet events that it causes."""
    # A session that this event ends has spent what was known before the event.
    if not state.agents and not isinstance(event.payload, _OPENING):
        # Most events of most runs: there is no session that could have an event.
        return state, []
    after, events = _events_of(state, event)
    if not isinstance(event.payload, _RUN_EVENTS):
        spending = spending_step(state.spending, event)
        if spending is not state.spending:
            after = replace(after, spending=spending)
    if len(events) > 1:
        events = [replace(fleet_event, n=n) if n else fleet_event for n, fleet_event in enumerate(events)]
    return after, events


def _events_of(state: FleetEventState, event: Event) -> Step:
    match event.payload:
        case UserMessage() as message:
            return _handle_user_message(state, event, message)
        case AssistantMessage() as message:
            return _handle_assistant_message(state, event, message)
        case ToolCall(fidelity="agent_emitted") as call:
            return _handle_tool_call(state, event, call)
        case ToolCall(awaits=Awaits(kind="rate_limit", until=until)):
            return _handle_rate_limit_wait(state, event, until)
        case ToolResult(fidelity="agent_emitted") as result:
            return _handle_tool_result(state, event, result)
        case StepStarted(kind="agent") as step:
            return _handle_step_started(state, event, step)
        case StepCompleted() as step:
            return _handle_step_completed(state, event, step)
        case RunStarted() as run:
            return _handle_run_started(state, event, run)
        case RunCompleted() as run:
            return FleetEventState(), _close_sessions(state, event, run)
        case _:
            return state, []


# Start of sessions.


def _handle_run_started(state: FleetEventState, event: Event, run: RunStarted) -> Step:
    """Start a new attempt. The open sessions died with the attempt before, though their steps may be resumed."""
    events = [_terminate(state, step_key, event, "system") for step_key, agent in state.agents.items() if agent.spawned]
    agents = {step_key: _resumed_session(agent, event, run.attempt) for step_key, agent in state.agents.items()}
    if run.attempt == 1 and run.kind == "agent" and event.parent_run_id is not None and run.worker_type is not None:
        agents[_RUN_KEY] = AgentSession(
            name=event.run_id, spawned=False, provider=run.worker_type, started_at=event.timestamp
        )
    return FleetEventState(host=run.host, agents=_keep_newest(agents)), events


def _resumed_session(agent: AgentSession, event: Event, attempt: int) -> AgentSession:
    return AgentSession(
        name=agent.name,
        resumed_attempt=attempt,
        spawned=False,
        provider=agent.provider,
        access_mode=agent.access_mode,
        capabilities=agent.capabilities,
        process=agent.process,
        started_at=event.timestamp,
    )


def _handle_step_started(state: FleetEventState, event: Event, step: StepStarted) -> Step:
    session = step.session
    if session is None:
        return state, []
    step_key = step_key_of(event)
    events: list[FleetEvent] = []
    if (before := state.agents.get(step_key)) is not None:
        # Another try, although the log does not have the end of the one before.
        events += [_terminate(state, step_key, event, "system")] if before.spawned else []
        state = _without_session(state, step_key)
    run = state.agents.get(_RUN_KEY)
    if run is not None and not run.spawned:
        # The run's session has a step after all.
        state = _without_session(state, _RUN_KEY)
    agent = AgentSession(
        name=f"{event.run_id}:{event.path}:{event.iteration}:{step.try_}",
        provider=session.provider,
        access_mode=session.access_mode,
        capabilities=parse_capabilities(session.capabilities),
        process=session.process is not None,
        started_at=event.timestamp,
    )
    events.append(spawned_event(agent, event, state.host, session.process))
    return replace(state, agents=_keep_newest({**state.agents, step_key: agent})), events


# Messages and calls of a session.


def _find_session(state: FleetEventState, event: Event) -> tuple[FleetEventState, str, list[FleetEvent]]:
    """Return the key of the session that this event belongs to, with `agent.spawned` if that was not sent yet."""
    step_key = step_key_of(event)
    step_key = step_key if step_key in state.agents else _RUN_KEY
    agent = state.agents.get(step_key)
    if agent is None or agent.spawned:
        return state, step_key, []
    agent = replace(agent, spawned=True)
    return _with_session(state, step_key, agent), step_key, [spawned_event(agent, event, state.host)]


def _handle_user_message(state: FleetEventState, event: Event, message: UserMessage) -> Step:
    state, step_key, events = _find_session(state, event)
    agent = state.agents.get(step_key)
    if agent is not None and agent.error_code is not None and not message.synthetic:
        # The session continues; if the same error stops it again, the error is reported again.
        state = _with_session(state, step_key, replace(agent, error_code=None))
    return state, events


def _handle_assistant_message(state: FleetEventState, event: Event, message: AssistantMessage) -> Step:
    state, step_key, events = _find_session(state, event)
    before = state.agents.get(step_key)
    if before is None:
        return state, events
    agent = before
    if message.note is not None:
        agent, note_events = _handle_note(agent, event, message.note)
        events += note_events
    elif agent.error_code is not None and not message.synthetic and message.stop_reason != INTERRUPTED_STOP:
        # The session recovered from the error. An interrupted message was written before the error.
        agent = replace(agent, error_code=None)
    events += thinking_events(agent, event, message)
    return state if agent is before else _with_session(state, step_key, agent), events


def _handle_note(agent: AgentSession, event: Event, note: Note) -> tuple[AgentSession, list[FleetEvent]]:
    match note.kind:
        case "ready" if not agent.ready:
            # A session may report this more than once.
            return replace(agent, ready=True), [ready_event(agent, event, note)]
        case "retry" if is_rate_limit(note):
            return agent, [rate_limited_event(agent, event, note.limit, note.retry_after)]
        case "retry":
            return agent, [retry_event(agent, event, note)]
        case "limit" | "error" if is_rate_limit(note) or (note.kind == "limit" and _is_near_or_over(note.limit)):
            if note.kind == "error" or note.limit is None or note.limit.status == "rejected":
                agent = replace(agent, error_code=RateLimited.code)
            return agent, [rate_limited_event(agent, event, note.limit, note.retry_after)]
        case "error":
            return replace(agent, error_code=note.code or AgentFailed.code), [fatal_error_event(agent, event, note)]
        case _:
            return agent, []


def _is_near_or_over(limit: Limit | None) -> bool:
    return limit is not None and limit.status != "allowed"


def _handle_rate_limit_wait(state: FleetEventState, event: Event, until: str | None) -> Step:
    """Report that the step waits for the provider's rate limit before it continues the session."""
    step_key = step_key_of(event)
    agent = state.agents.get(step_key)
    if agent is None or not agent.spawned or agent.error_code == RateLimited.code:
        return state, []
    limited = rate_limited_event(agent, event, Limit(reset_at=until))
    return _with_session(state, step_key, replace(agent, error_code=RateLimited.code)), [limited]


def _handle_tool_call(state: FleetEventState, event: Event, call: ToolCall) -> Step:
    state, step_key, events = _find_session(state, event)
    agent = state.agents.get(step_key)
    if agent is None:
        return state, events
    calls = _keep_newest({**state.calls, f"{agent.id} {call.call_id}": event.timestamp})
    agents = {**state.agents, step_key: replace(agent, tool_calls=agent.tool_calls + 1)}
    events.append(tool_call_event(agent, event, call))
    return replace(state, agents=agents, calls=calls), events


def _handle_tool_result(state: FleetEventState, event: Event, result: ToolResult) -> Step:
    state, step_key, events = _find_session(state, event)
    agent = state.agents.get(step_key)
    if agent is None:
        return state, events
    key = f"{agent.id} {result.call_id}"
    started_at = state.calls.get(key)
    if started_at is not None:
        state = replace(state, calls={other: at for other, at in state.calls.items() if other != key})
    events.append(tool_result_event(agent, event, result, started_at))
    if result.files:
        events += [file_change_event(agent, event, change) for change in result.files]
        changed = dict.fromkeys(f"{agent.id} {change.path}" for change in result.files)
        new_files = sum(file not in state.files for file in changed)
        state = _with_session(state, step_key, replace(agent, files=agent.files + new_files))
        state = replace(state, files=_keep_newest({**state.files, **changed}))
    return state, events


# End of sessions.


class _SessionEnd(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a session, as its step or its run has it."""

    error: str | None = None
    code: str | None = None
    recoverable: bool | None = None
    wait: float | None = None
    limits: list[Limit] | None = None
    exit_code: int | None = None
    signal: str | None = None
    usage: Usage | None = None
    cost: Cost | None = None
    duration_ms: int | None = None


def _handle_step_completed(state: FleetEventState, event: Event, step: StepCompleted) -> Step:
    step_key = step_key_of(event)
    agent = state.agents.get(step_key)
    if agent is None or not agent.name.endswith(f":{step.try_}"):
        return state, []
    if not agent.spawned:
        # The session ended with its attempt; this event only closes its step.
        return _without_session(state, step_key), []
    step_result: Any = step.result
    result = cast("dict[str, Any]", step_result) if isinstance(step_result, dict) else {}
    code, signal = result.get("exit_code"), result.get("signal")
    end = _SessionEnd(
        error=step.error,
        code=step.error_code,
        recoverable=step.retryable,
        limits=step.rate_limits,
        exit_code=code if isinstance(code, int) and not isinstance(code, bool) else None,
        signal=signal if isinstance(signal, str) else None,
        usage=step.usage,
        cost=step.cost,
        duration_ms=step.duration_ms,
    )
    return _without_session(state, step_key), _end_session(agent, event, end, _session_usage(state, step_key))


def _close_sessions(state: FleetEventState, event: Event, run: RunCompleted) -> list[FleetEvent]:
    """End all sessions with the run. A session that is the run itself ends with the run's outcome."""
    events: list[FleetEvent] = []
    reason = (
        "user_cancel"
        if run.status == "cancelled"
        else _TERMINATION_REASONS.get(run.error.code if run.error else "", "system")
    )
    for step_key, agent in state.agents.items():
        if step_key != _RUN_KEY:
            events += [_terminate(state, step_key, event, reason)] if agent.spawned else []
        elif agent.spawned or not agent.resumed_attempt:
            events += [] if agent.spawned else [spawned_event(agent, event, state.host)]
            events += _end_session(agent, event, _end_from_run(run), _session_usage(state, step_key))
    return events


def _end_from_run(run: RunCompleted) -> _SessionEnd:
    code = ExecutionCancelled.code if run.status == "cancelled" else run.error.code if run.error else AgentFailed.code
    message = run.error.message if run.error else f"the run has {run.status}"
    retry_after = run.error.retry_after if run.error else None
    is_completed = run.status == "completed"
    return _SessionEnd(
        error=None if is_completed else message,
        code=None if is_completed else code,
        recoverable=run.error.retryable if run.error else None,
        wait=None if isinstance(retry_after, msgspec.UnsetType) else retry_after,
        usage=run.usage,
        cost=run.cost,
        duration_ms=run.duration_ms,
    )


def _end_session(agent: AgentSession, event: Event, end: _SessionEnd, spent: UsageTotal) -> list[FleetEvent]:
    events: list[FleetEvent] = []
    reason = _termination_reason(agent, end)
    if end.error is not None and (end.code or AgentFailed.code) != agent.error_code:
        if end.code == RateLimited.code:
            rejected = [limit for limit in end.limits or [] if limit.status == "rejected"]
            events.append(rate_limited_event(agent, event, rejected[-1] if rejected else None, end.wait))
        elif reason in {None, "error"}:
            events.append(failure_event(agent, event, end.code, end.error, recoverable=end.recoverable))
    metrics = _metrics(agent, event, spent, end)
    if reason is None:
        events.append(completed_event(agent, event, metrics, success=end.error is None, exit_code=end.exit_code))
    else:
        events.append(terminated_event(agent, event, metrics, reason, end.signal))
    return events


def _termination_reason(agent: AgentSession, end: _SessionEnd) -> Reason | None:
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


def _terminate(state: FleetEventState, step_key: str, event: Event, reason: Reason) -> FleetEvent:
    """Report a session whose end is not in the log. Its metrics come from its messages alone."""
    agent = state.agents[step_key]
    return terminated_event(
        agent, event, _metrics(agent, event, _session_usage(state, step_key), _SessionEnd()), reason
    )


def _session_usage(state: FleetEventState, step_key: str) -> UsageTotal:
    """Return what a session has spent by its own messages; for a session that is the run itself, the run's total."""
    step = state.spending.of_step(step_key)
    return state.spending.own if step_key == _RUN_KEY else step.before + step.reported


def _metrics(agent: AgentSession, event: Event, spent: UsageTotal, end: _SessionEnd) -> Metrics:
    message_usage = None if spent == NO_USAGE else spent.usage
    # A partial sum would be read as the total.
    cost_usd = spent.cost_usd if spent.is_priced else None
    return Metrics(
        duration_ms=ms_between(agent.started_at, event.timestamp) if end.duration_ms is None else end.duration_ms,
        usage=end.usage or message_usage,
        cost_usd=end.cost.usd if end.cost else cost_usd,
    )


# State.


def _with_session(state: FleetEventState, step_key: str, agent: AgentSession) -> FleetEventState:
    return replace(state, agents={**state.agents, step_key: agent})


def _without_session(state: FleetEventState, step_key: str) -> FleetEventState:
    """Remove a session with its open calls and changed files."""
    prefix = f"{state.agents[step_key].id} "
    return replace(
        state,
        agents={key: agent for key, agent in state.agents.items() if key != step_key},
        calls={key: at for key, at in state.calls.items() if not key.startswith(prefix)},
        files={key: None for key in state.files if not key.startswith(prefix)},
    )


def _keep_newest(facts: dict[str, T]) -> dict[str, T]:
    return facts if len(facts) <= FLEET_EVENT_FACTS else dict(list(facts.items())[-FLEET_EVENT_FACTS:])
