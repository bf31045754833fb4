"""The `agent.*` signals of a run, as a view of its log: unique by run, `seq` and `n`.

Whose they are: a session is told of from the `step.started` of an agent step that says what serves it, to that step's
end. Its `agentId` is `<run id>:<path>:<iteration>:<try>`, with `:<attempt>` behind it where a later attempt goes on
with the same try: that is another process. A sub-agent is a run of its own; where its log has no such step, the run
itself is the session, and `agentId` is the run's id. It is told of with the first that it says or is told, as only then
it is known that no step will come.

What is told where two would fit:

- A rate limit is `agent.rate_limited` and never also `agent.error`, also where the session ends with it.
- An error that the agent's program has told of is not told again when the step ends with the same code, nor a limit
  when the step waits for its reset; unless the session had gone on in between.
- A session that was ended from outside is `agent.terminated` alone, whose reason says why; only before the reason
  `error` there is an `agent.error` that says which.
- A session whose step ended well is `agent.completed`, however its process was got rid of afterwards. Where it failed,
  it ended by itself if it left an exit code, or never had a process that could leave one.
- What ends with the run, or with the attempt, is told of then, and not once more when somebody closes its step.
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
from shopfloor.views import agent_event_types as tell
from shopfloor.views.agent_event_types import Agent, FleetEvent, Metrics, Reason
from shopfloor.views.spending import NO_USAGE, Spending, UsageTotal, spending_step
from shopfloor.views.wait_state import step_key_of

T = TypeVar("T")
_RUN = "#"
"""The place of a session that is the run itself; no step has it."""
_REASONS: Final[dict[str, Reason]] = {
    ExecutionCancelled.code: "user_cancel",
    BudgetExceeded.code: "error",
    HostStopped.code: "system",
    OutcomeUnknown.code: "system",
    "host_lost": "system",
}
_OWN_FAULT = frozenset({"SIGABRT", "SIGBUS", "SIGFPE", "SIGILL", "SIGSEGV", "SIGSYS", "SIGTRAP"})
"""What a program that breaks is killed by; any other signal somebody has sent."""


class FleetEventState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The state of the fold. Bounded: of each kind of fact the newest thousand are known."""

    host: str | None = None
    agents: dict[str, Agent] = {}
    """The sessions that are open, by their place."""
    calls: dict[str, str] = {}
    """When the calls that are open began, by session and call."""
    files: dict[str, None] = {}
    """The files that were changed, by session and path: each is counted once."""
    spending: Spending = Spending()
    """Of the attempt that goes on."""


Step = tuple[FleetEventState, list[FleetEvent]]


def fleet_event_step(state: FleetEventState, event: Event) -> Step:
    """The state after the event, the next of its run, and what it tells."""
    # What an event ends has spent what was known before it.
    after, told = _step(state, event)
    if not isinstance(event.payload, RunStarted | RunCompleted):
        after = replace(after, spending=spending_step(state.spending, event))
    return after, [replace(signal, n=n) if n else signal for n, signal in enumerate(told)]


def _step(state: FleetEventState, event: Event) -> Step:
    match event.payload:
        case UserMessage() as message:
            return _heard(state, event, message)
        case AssistantMessage() as message:
            return _said(state, event, message)
        case ToolCall(fidelity="agent_emitted") as call:
            return _called(state, event, call)
        case ToolCall(awaits=Awaits(kind="rate_limit", until=until)):
            return _rests(state, event, until)
        case ToolResult(fidelity="agent_emitted") as result:
            return _answered(state, event, result)
        case StepStarted(kind="agent") as step:
            return _started(state, event, step)
        case StepCompleted() as step:
            return _ended(state, event, step)
        case RunStarted() as run:
            return _attempted(state, event, run)
        case RunCompleted() as run:
            return FleetEventState(), _outcome(state, event, run)
        case _:
            return state, []


# Beginning.


def _attempted(state: FleetEventState, event: Event, run: RunStarted) -> Step:
    """A new attempt: what the one before had open died with it, though the step may be gone on with."""
    told = [_cut(state, place, event, "system") for place, agent in state.agents.items() if agent.spawned]
    agents = {place: _again(agent, event, run.attempt) for place, agent in state.agents.items()}
    if run.attempt == 1 and run.kind == "agent" and event.parent_run_id is not None and run.worker_type is not None:
        agents[_RUN] = Agent(name=event.run_id, spawned=False, provider=run.worker_type, began=event.timestamp)
    return FleetEventState(host=run.host, agents=_bounded(agents)), told


def _again(agent: Agent, event: Event, attempt: int) -> Agent:
    return Agent(
        name=agent.name,
        resumed_attempt=attempt,
        spawned=False,
        provider=agent.provider,
        access_mode=agent.access_mode,
        capabilities=agent.capabilities,
        process=agent.process,
        began=event.timestamp,
    )


def _started(state: FleetEventState, event: Event, step: StepStarted) -> Step:
    session = step.session
    if session is None:
        return state, []
    place = step_key_of(event)
    told: list[FleetEvent] = []
    if (before := state.agents.get(place)) is not None:
        # A further try, though nobody wrote how the one before ended.
        told += [_cut(state, place, event, "system")] if before.spawned else []
        state = _without(state, place)
    run = state.agents.get(_RUN)
    if run is not None and not run.spawned:
        # The run's session has a step after all.
        state = _without(state, _RUN)
    agent = Agent(
        name=f"{event.run_id}:{event.path}:{event.iteration}:{step.try_}",
        provider=session.provider,
        access_mode=session.access_mode,
        capabilities=tell.capabilities_of(session.capabilities),
        process=session.process is not None,
        began=event.timestamp,
    )
    told.append(tell.spawned(agent, event, state.host, session.process))
    return replace(state, agents=_bounded({**state.agents, place: agent})), told


# Being there.


def _speaking(state: FleetEventState, event: Event) -> tuple[FleetEventState, str, list[FleetEvent]]:
    """Where the session stands that this event is of; it is told of where that was not done yet."""
    place = step_key_of(event)
    place = place if place in state.agents else _RUN
    agent = state.agents.get(place)
    if agent is None or agent.spawned:
        return state, place, []
    agent = replace(agent, spawned=True)
    return _with(state, place, agent), place, [tell.spawned(agent, event, state.host)]


def _heard(state: FleetEventState, event: Event, message: UserMessage) -> Step:
    state, place, told = _speaking(state, event)
    agent = state.agents.get(place)
    if agent is not None and agent.failed is not None and not message.synthetic:
        # It is to go on; should the same stop it again, that is news.
        state = _with(state, place, replace(agent, failed=None))
    return state, told


def _said(state: FleetEventState, event: Event, message: AssistantMessage) -> Step:
    state, place, told = _speaking(state, event)
    before = state.agents.get(place)
    if before is None:
        return state, told
    agent = before
    if message.note is not None:
        agent, more = _noted(agent, event, message.note)
        told += more
    elif agent.failed is not None and not message.synthetic and message.stop_reason != INTERRUPTED_STOP:
        # It got over it after all. What was cut off had come before.
        agent = replace(agent, failed=None)
    told += tell.thinking(agent, event, message)
    return state if agent is before else _with(state, place, agent), told


def _noted(agent: Agent, event: Event, note: Note) -> tuple[Agent, list[FleetEvent]]:
    match note.kind:
        case "ready" if not agent.ready:
            # A session may say so more than once.
            return replace(agent, ready=True), [tell.ready(agent, event, note)]
        case "retry" if tell.is_rate_limit(note):
            return agent, [tell.rate_limited(agent, event, note.limit, note.retry_after)]
        case "retry":
            return agent, [tell.retried_error(agent, event, note)]
        case "limit" | "error" if tell.is_rate_limit(note) or (note.kind == "limit" and _presses(note.limit)):
            if note.kind == "error" or note.limit is None or note.limit.status == "rejected":
                agent = replace(agent, failed=RateLimited.code)
            return agent, [tell.rate_limited(agent, event, note.limit, note.retry_after)]
        case "error":
            told = tell.fatal_error(agent, event, note)
            return replace(agent, failed=note.code or AgentFailed.code), [told]
        case _:
            return agent, []


def _presses(limit: Limit | None) -> bool:
    return limit is not None and limit.status != "allowed"


def _rests(state: FleetEventState, event: Event, until: str | None) -> Step:
    """We wait for the provider, to go on with the session then."""
    place = step_key_of(event)
    agent = state.agents.get(place)
    if agent is None or not agent.spawned or agent.failed == RateLimited.code:
        return state, []
    told = tell.rate_limited(agent, event, Limit(reset_at=until))
    return _with(state, place, replace(agent, failed=RateLimited.code)), [told]


def _called(state: FleetEventState, event: Event, call: ToolCall) -> Step:
    state, place, told = _speaking(state, event)
    agent = state.agents.get(place)
    if agent is None:
        return state, told
    calls = _bounded({**state.calls, f"{agent.id} {call.call_id}": event.timestamp})
    state = replace(_with(state, place, replace(agent, tool_calls=agent.tool_calls + 1)), calls=calls)
    return state, [*told, tell.tool_call(agent, event, call)]


def _answered(state: FleetEventState, event: Event, result: ToolResult) -> Step:
    state, place, told = _speaking(state, event)
    agent = state.agents.get(place)
    if agent is None:
        return state, told
    key = f"{agent.id} {result.call_id}"
    began = state.calls.get(key)
    if began is not None:
        state = replace(state, calls={one: at for one, at in state.calls.items() if one != key})
    told.append(tell.tool_result(agent, event, result, began))
    if result.files:
        told += [tell.file_change(agent, event, change) for change in result.files]
        changed = dict.fromkeys(f"{agent.id} {change.path}" for change in result.files)
        fresh = sum(one not in state.files for one in changed)
        state = _with(state, place, replace(agent, files=agent.files + fresh))
        state = replace(state, files=_bounded({**state.files, **changed}))
    return state, told


# Ending.


class _End(msgspec.Struct, frozen=True, kw_only=True):
    """How a session ended, by its step or by its run."""

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


def _ended(state: FleetEventState, event: Event, step: StepCompleted) -> Step:
    place = step_key_of(event)
    agent = state.agents.get(place)
    if agent is None or not agent.name.endswith(f":{step.try_}"):
        return state, []
    if not agent.spawned:
        # It ended with its attempt; now somebody tidies up.
        return _without(state, place), []
    said: Any = step.result
    result = cast("dict[str, Any]", said) if isinstance(said, dict) else {}
    code, signal = result.get("exit_code"), result.get("signal")
    end = _End(
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
    return _without(state, place), _end(agent, event, end, _spent(state, place))


def _outcome(state: FleetEventState, event: Event, run: RunCompleted) -> list[FleetEvent]:
    """Nothing outlives the run. A session that is the run itself ends as the run says."""
    told: list[FleetEvent] = []
    reason = "user_cancel" if run.status == "cancelled" else _REASONS.get(run.error.code if run.error else "", "system")
    for place, agent in state.agents.items():
        if place != _RUN:
            told += [_cut(state, place, event, reason)] if agent.spawned else []
        elif agent.spawned or not agent.resumed_attempt:
            told += [] if agent.spawned else [tell.spawned(agent, event, state.host)]
            told += _end(agent, event, _end_of(run), _spent(state, place))
    return told


def _end_of(run: RunCompleted) -> _End:
    code = ExecutionCancelled.code if run.status == "cancelled" else run.error.code if run.error else AgentFailed.code
    message = run.error.message if run.error else f"the run has {run.status}"
    after = run.error.retry_after if run.error else None
    well = run.status == "completed"
    return _End(
        error=None if well else message,
        code=None if well else code,
        recoverable=run.error.retryable if run.error else None,
        wait=None if isinstance(after, msgspec.UnsetType) else after,
        usage=run.usage,
        cost=run.cost,
        duration_ms=run.duration_ms,
    )


def _end(agent: Agent, event: Event, end: _End, spent: UsageTotal) -> list[FleetEvent]:
    told: list[FleetEvent] = []
    reason = _reason(agent, end)
    if end.error is not None and (end.code or AgentFailed.code) != agent.failed:
        if end.code == RateLimited.code:
            rejected = [limit for limit in end.limits or [] if limit.status == "rejected"]
            told.append(tell.rate_limited(agent, event, rejected[-1] if rejected else None, end.wait))
        elif reason in {None, "error"}:
            told.append(tell.failed(agent, event, end.code, end.error, recoverable=end.recoverable))
    metrics = _metrics(agent, event, spent, end)
    if reason is None:
        told.append(tell.completed(agent, event, metrics, success=end.error is None, exit_code=end.exit_code))
    else:
        told.append(tell.terminated(agent, event, metrics, reason, end.signal))
    return told


def _reason(agent: Agent, end: _End) -> Reason | None:
    """Why it was ended from outside; None where it ended by itself."""
    if end.error is None:
        return None
    code = end.code or ""
    if code in _REASONS:
        return _REASONS[code]
    exited = end.signal is None and (end.exit_code is not None or not agent.process)
    if code.endswith("timeout") and not (exited and code == ProviderTimeout.code):
        return "timeout"
    if end.signal is not None:
        return "error" if end.signal in _OWN_FAULT else "system"
    if not code and end.exit_code is None:
        # Whoever was there would have said what it was: this was written when they were gone.
        return "system"
    return None if exited else "error"


def _cut(state: FleetEventState, place: str, event: Event, reason: Reason) -> FleetEvent:
    """A session whose end nobody wrote: of what it took there is what its messages say."""
    agent = state.agents[place]
    return tell.terminated(agent, event, _metrics(agent, event, _spent(state, place), _End()), reason)


def _spent(state: FleetEventState, place: str) -> UsageTotal:
    """What a session has spent, by what it says itself: one that is the run itself, all of it."""
    step = state.spending.of_step(place)
    return state.spending.own if place == _RUN else step.before + step.told


def _metrics(agent: Agent, event: Event, spent: UsageTotal, end: _End) -> Metrics:
    told = None if spent == NO_USAGE else spent.usage
    # A sum of which a part is not known would be read as the whole.
    cost_usd = spent.cost_usd if spent.is_priced else None
    return Metrics(
        duration_ms=tell.ms_between(agent.began, event.timestamp) if end.duration_ms is None else end.duration_ms,
        usage=end.usage or told,
        cost_usd=end.cost.usd if end.cost else cost_usd,
    )


# Keeping.


def _with(state: FleetEventState, place: str, agent: Agent) -> FleetEventState:
    return replace(state, agents={**state.agents, place: agent})


def _without(state: FleetEventState, place: str) -> FleetEventState:
    """What a session had open goes with it."""
    own = f"{state.agents[place].id} "
    return replace(
        state,
        agents={one: agent for one, agent in state.agents.items() if one != place},
        calls={one: at for one, at in state.calls.items() if not one.startswith(own)},
        files={one: None for one in state.files if not one.startswith(own)},
    )


def _bounded(known: dict[str, T]) -> dict[str, T]:
    return known if len(known) <= FLEET_EVENT_FACTS else dict(list(known.items())[-FLEET_EVENT_FACTS:])
