"""The `agent.*` fleet events of a run, as a view of its log: unique by run, `seq` and `n`.

A session of an agent lasts from the `step.started` of an agent step that names its provider to the end of that step.
Its `agentId` is `<run id>:<path>:<iteration>:<try>`, followed by `:<attempt>` if a later attempt resumes the same try,
because that is another process. A sub-agent is a run of its own. If its log has no agent step, the run itself is the
session and `agentId` is the run's id; `agent.spawned` is then sent with its first message, because only then is it
known that no agent step will follow.

A conversation with a model is a session too, without a process. Its `agentId` is `<run id>:<path>:<iteration>` of the
step that started it. It lasts from the first step in which the model answers to the end of its only step, of the loop
that started it, or of the run, or until one of its steps fails for good. It survives a new attempt. Each further try of
a step is part of the same conversation.

Where two events would fit:

- A rate limit is `agent.rate_limited` and never also `agent.error`, even if the session ends with the rate limit.
- An error that the agent reported is sent once it is known what follows: with the end of the step, or the wait for a
  rate limit, or when the session goes on. It is not repeated when the step ends with the same code.
- `agent.ready` of an agent that will report the size of its context is sent with that size, or with the next event of
  the session. Its timestamp is the time at which the agent was ready.
- A session that was ended from outside gets only `agent.terminated`, with a reason. Only the reason `error` is preceded
  by an `agent.error` with the details.
- A session whose step succeeded gets `agent.completed`, however its process was ended afterwards. A failed session
  ended by itself if it left an exit code, or never had a process that could leave one.
- A session that ends with its run or attempt gets its last event then, not again when its step is closed later.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec
from msgspec.structs import replace

from shopfloor.errors import RateLimited
from shopfloor.limits import FLEET_EVENT_FACTS
from shopfloor.log import (
    INTERRUPTED_STOP,
    AssistantMessage,
    Awaits,
    Event,
    Limit,
    RunCompleted,
    RunStarted,
    Session,
    StepCompleted,
    StepStarted,
    ToolCall,
    ToolResult,
    Usage,
    UserMessage,
    is_message_chunk,
)
from shopfloor.views.agent_event_builders import (
    AgentSession,
    file_change_event,
    parse_capabilities,
    rate_limited_event,
    ready_event,
    seconds_until,
    spawned_event,
    thinking_events,
    tool_call_event,
    tool_result_event,
)
from shopfloor.views.agent_sessions import (
    SessionEnd,
    continue_session,
    end_events,
    end_of_run,
    end_of_step,
    end_of_turn,
    handle_note,
    report_ready,
    reported_error_events,
    retried_turn_events,
    run_end_reason,
    termination_events,
)
from shopfloor.views.fleet_event_types import FleetEvent
from shopfloor.views.spending import Spending, UsageTotal, spending_step
from shopfloor.views.wait_state import ENGINE_CALLS, step_key_of

T = TypeVar("T")
_RUN_KEY = "#"
"""The key of a session that is the run itself; no step has this key."""
_RUN_EVENTS = (RunStarted, RunCompleted)
_OPENING = (StepStarted, *_RUN_EVENTS)
"""Events that can matter without an open session."""


class FleetEventState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The state of the fold. Bounded: each dictionary has the newest `FLEET_EVENT_FACTS` entries."""

    host: str | None = None
    sessions: dict[str, AgentSession] = {}
    """The open sessions, by step key; conversations by `@` and their session id."""
    turns: dict[str, str] = {}
    """The keys of conversations, by the step keys of their open steps."""
    calls: dict[str, str] = {}
    """The start times of the open calls, by session and call."""
    files: dict[str, None] = {}
    """The changed files, by session and path: each file is counted once."""
    spending: Spending = Spending()
    """The spending of the current attempt."""
    copies_left: int = 0
    """For a fork: how many of the events that follow were copied from the earlier run, which has their fleet events."""


FoldResult = tuple[FleetEventState, list[FleetEvent]]


def fleet_event_step(state: FleetEventState, event: Event) -> FoldResult:
    """Return the state after the next event of a run, and the fleet events that it causes."""
    if not state.sessions and not state.copies_left and not isinstance(event.payload, _OPENING):
        # Most events of most runs: there is no session that could have an event.
        return state, []
    # A session that this event ends has spent what was known before the event.
    after, events = _events_of(state, event)
    if not isinstance(event.payload, _RUN_EVENTS):
        spending = spending_step(state.spending, event)
        if spending is not state.spending:
            after = replace(after, spending=spending)
    if is_copied(state, event):
        return _after_copy(after), []
    if len(events) > 1:
        events = [replace(fleet_event, n=n) if n else fleet_event for n, fleet_event in enumerate(events)]
    return after, events


def is_copied(state: FleetEventState, event: Event) -> bool:
    """Return whether a fork copied the next event from the earlier run, so that it did not happen in this run."""
    return state.copies_left > 0 and bool(event.path)


def _after_copy(state: FleetEventState) -> FleetEventState:
    """Return the state without sessions that the fork does not continue.

    A conversation whose step is open continues in the fork, and is spawned there with its first event.
    """
    sessions = {
        key: replace(agent, spawned=False, tool_calls=0, files=0)
        for key, agent in state.sessions.items()
        if agent.open_steps
    }
    return replace(state, sessions=sessions, files={}, copies_left=state.copies_left - 1)


def _events_of(state: FleetEventState, event: Event) -> FoldResult:  # noqa: PLR0911 - one case per kind of event
    match event.payload:
        case UserMessage() as message:
            return _handle_user_message(state, event, message)
        case AssistantMessage() as message:
            return _handle_assistant_message(state, event, message)
        case ToolCall(awaits=Awaits(kind="rate_limit", until=until)):
            return _handle_rate_limit_wait(state, event, until)
        case ToolCall() as call if _is_of_agent(state, event, call):
            return _handle_tool_call(state, event, call)
        case ToolResult() as result if _is_of_agent(state, event, result):
            return _handle_tool_result(state, event, result)
        case StepStarted(kind="agent", session=Session() as session) as step:
            return _handle_step_started(state, event, step, session)
        case StepStarted(kind="next-message", session=Session() as session):
            return _handle_turn_started(state, event, session)
        case StepCompleted() as step:
            return _handle_step_completed(state, event, step)
        case RunStarted() as run:
            return _handle_run_started(state, event, run)
        case RunCompleted() as run:
            return FleetEventState(), _close_sessions(state, event, run)
        case _:
            return state, []


def _is_of_agent(state: FleetEventState, event: Event, payload: ToolCall | ToolResult) -> bool:
    """Return whether an agent or a model made this call. The engine executes and records the calls of models."""
    if payload.fidelity == "agent_emitted":
        return True
    # The engine's own waits are recorded as calls too; their results have no other mark than the name.
    return step_key_of(event) in state.turns and payload.name not in ENGINE_CALLS


# Start of sessions.


def _handle_run_started(state: FleetEventState, event: Event, run: RunStarted) -> FoldResult:
    """Start a new attempt.

    The sessions of agents died with the attempt before, though their steps may be resumed. Conversations go on.
    """
    events: list[FleetEvent] = []
    sessions: dict[str, AgentSession] = {}
    for session_key, agent in state.sessions.items():
        if agent.is_conversation:
            sessions[session_key] = replace(agent, spent=_session_usage(state, session_key))
            continue
        if agent.spawned:
            events += termination_events(agent, event, _session_usage(state, session_key), "system")
        sessions[session_key] = _resumed_session(agent, event, run.attempt)
    if run.attempt == 1 and run.kind == "agent" and event.parent_run_id is not None and run.worker_type is not None:
        sessions[_RUN_KEY] = AgentSession(
            name=event.run_id, spawned=False, provider=run.worker_type, started_at=event.timestamp
        )
    copies = state.copies_left
    if run.attempt == 1 and run.based_on is not None:
        copies = run.based_on.events or 0
    return FleetEventState(
        host=run.host, sessions=_keep_newest(sessions), turns=state.turns, copies_left=copies
    ), events


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


def _handle_step_started(state: FleetEventState, event: Event, step: StepStarted, session: Session) -> FoldResult:
    step_key = step_key_of(event)
    events: list[FleetEvent] = []
    if (before := state.sessions.get(step_key)) is not None:
        # Another try, although the log does not have the end of the one before.
        if before.spawned:
            events += termination_events(before, event, _session_usage(state, step_key), "system")
        state = _without_session(state, step_key)
    run = state.sessions.get(_RUN_KEY)
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
    return replace(state, sessions=_keep_newest({**state.sessions, step_key: agent})), events


def _handle_turn_started(state: FleetEventState, event: Event, session: Session) -> FoldResult:
    """Start a step of a conversation, and with its first step the conversation."""
    step_key, own_id = step_key_of(event), f"{event.path}:{event.iteration}"
    session_id = session.session_id or own_id
    key = f"@{session_id}"
    events: list[FleetEvent] = []
    agent = state.sessions.get(key)
    if agent is None:
        agent = AgentSession(
            name=f"{event.run_id}:{session_id}",
            provider=session.provider,
            access_mode=session.access_mode,
            started_at=event.timestamp,
            is_conversation=True,
            ends_with_step=session_id == own_id,
        )
        if len(state.sessions) >= FLEET_EVENT_FACTS:
            state, events = _end_oldest_conversation(state, event)
        events.append(spawned_event(agent, event, state.host))
    if step_key not in state.turns:
        agent = replace(agent, open_steps=agent.open_steps + 1)
    turns = _keep_newest({**state.turns, step_key: key})
    return replace(state, sessions=_keep_newest({**state.sessions, key: agent}), turns=turns), events


def _end_oldest_conversation(state: FleetEventState, event: Event) -> FoldResult:
    """Make room for another conversation, so that none is forgotten without its last event."""
    for key, agent in state.sessions.items():
        if agent.is_conversation and not agent.open_steps:
            return _without_session(state, key), end_events(agent, event, SessionEnd(), agent.spent)
    return state, []


# Messages and calls of a session.


def _find_session(
    state: FleetEventState, event: Event, session: Session | None = None
) -> tuple[FleetEventState, str, list[FleetEvent]]:
    """Return the key of the session that this event belongs to, with `agent.spawned` if that was not sent yet.

    `session` is the session as its new process has it, if the event is the first of a resumed session.
    """
    step_key = step_key_of(event)
    session_key = state.turns.get(step_key, step_key)
    session_key = session_key if session_key in state.sessions else _RUN_KEY
    agent = state.sessions.get(session_key)
    if agent is None or agent.spawned:
        return state, session_key, []
    agent = replace(agent, spawned=True)
    if session is not None:
        agent = replace(agent, access_mode=session.access_mode, process=session.process is not None)
    spawned = spawned_event(agent, event, state.host, session.process if session else None)
    return _with_session(state, session_key, agent), session_key, [spawned]


def _handle_user_message(state: FleetEventState, event: Event, message: UserMessage) -> FoldResult:
    state, session_key, events = _find_session(state, event, message.session)
    agent = state.sessions.get(session_key)
    if agent is not None and agent.error_code is not None and not message.synthetic:
        agent, more = continue_session(agent, event)
        return _with_session(state, session_key, agent), events + more
    return state, events


def _handle_assistant_message(state: FleetEventState, event: Event, message: AssistantMessage) -> FoldResult:
    state, session_key, events = _find_session(state, event)
    before = state.sessions.get(session_key)
    if before is None:
        return state, events
    agent = before
    if message.note is None or message.note.kind != "ready":
        agent, more = report_ready(agent, event)
        events += more
    if message.note is not None:
        agent, more = handle_note(agent, event, message.note)
        events += more
    elif not message.synthetic and message.stop_reason != INTERRUPTED_STOP:
        # An interrupted message was written before the error that stopped the session.
        agent, more = continue_session(agent, event)
        events += more
        if agent.is_conversation and not agent.ready and not is_message_chunk(message):
            events.append(ready_event(agent, event, _context_tokens(message.usage)))
            agent = replace(agent, ready=True)
    events += thinking_events(agent, event, message)
    return state if agent is before else _with_session(state, session_key, agent), events


def _context_tokens(usage: Usage | None) -> int | None:
    """Return the tokens that a model read for a message; None if they are not known."""
    return (usage.input + usage.cache_read + usage.cache_write or None) if usage is not None else None


def _handle_rate_limit_wait(state: FleetEventState, event: Event, until: str | None) -> FoldResult:
    """Report that the step waits for the provider's rate limit before it continues the session."""
    step_key = step_key_of(event)
    session_key = state.turns.get(step_key, step_key)
    agent = state.sessions.get(session_key)
    if agent is None or not agent.spawned:
        return state, []
    if agent.error_note is not None:
        events = reported_error_events(agent, event, {"type": "retry"}, seconds_until(event, until))
    elif agent.error_code != RateLimited.code:
        events = [rate_limited_event(agent, event, Limit(reset_at=until))]
    else:
        events = []
    return _with_session(state, session_key, replace(agent, error_code=RateLimited.code, error_note=None)), events


def _handle_tool_call(state: FleetEventState, event: Event, call: ToolCall) -> FoldResult:
    state, session_key, events = _find_session(state, event)
    agent = state.sessions.get(session_key)
    if agent is None:
        return state, events
    agent, more = report_ready(agent, event)
    calls = _keep_newest({**state.calls, f"{agent.id} {call.call_id}": event.timestamp})
    sessions = {**state.sessions, session_key: replace(agent, tool_calls=agent.tool_calls + 1)}
    events += [*more, tool_call_event(agent, event, call)]
    return replace(state, sessions=sessions, calls=calls), events


def _handle_tool_result(state: FleetEventState, event: Event, result: ToolResult) -> FoldResult:
    state, session_key, events = _find_session(state, event)
    agent = state.sessions.get(session_key)
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
        state = _with_session(state, session_key, replace(agent, files=agent.files + new_files))
        state = replace(state, files=_keep_newest({**state.files, **changed}))
    return state, events


# End of sessions.


def _handle_step_completed(state: FleetEventState, event: Event, step: StepCompleted) -> FoldResult:
    step_key = step_key_of(event)
    if step_key in state.turns:
        return _handle_turn_completed(state, event, step)
    if step.kind == "for_each":
        return _close_loop(state, event)
    agent = state.sessions.get(step_key)
    if agent is None or not agent.name.endswith(f":{step.try_}"):
        return state, []
    if not agent.spawned:
        # The session ended with its attempt; this event only closes its step.
        return _without_session(state, step_key), []
    events = end_events(agent, event, end_of_step(step), _session_usage(state, step_key))
    return _without_session(state, step_key), events


def _handle_turn_completed(state: FleetEventState, event: Event, step: StepCompleted) -> FoldResult:
    """End a step of a conversation. The conversation ends if this is its only step, or if the step failed for good."""
    step_key = step_key_of(event)
    key = state.turns[step_key]
    spawned: list[FleetEvent] = []
    if key in state.sessions:
        state, key, spawned = _find_session(state, event)
    agent = state.sessions.get(key)
    # The state keeps the open steps in the spending; from here on, the conversation itself has what this one spent.
    spent = _step_usage(state, step_key)
    state = replace(state, turns={other: name for other, name in state.turns.items() if other != step_key})
    if agent is None:
        return state, []
    end = end_of_turn(step)
    agent = replace(agent, spent=agent.spent + spent, open_steps=max(0, agent.open_steps - 1))
    if end.decision is not None and end.decision.action == "retry":
        events = spawned + retried_turn_events(agent, event, end)
        return _with_session(state, key, replace(agent, error_code=None, error_note=None)), events
    if end.error is None and not agent.ends_with_step:
        return _with_session(state, key, agent), spawned
    return _without_session(state, key), spawned + end_events(agent, event, end, agent.spent)


def _close_loop(state: FleetEventState, event: Event) -> FoldResult:
    """End the conversations that a loop started: no step outside of the loop can continue them."""
    prefix, events = f"{event.run_id}:{event.path}.", list[FleetEvent]()
    for key, agent in [*state.sessions.items()]:
        if agent.is_conversation and not agent.open_steps and agent.name.startswith(prefix):
            events += end_events(agent, event, SessionEnd(), agent.spent)
            state = _without_session(state, key)
    return state, events


def _close_sessions(state: FleetEventState, event: Event, run: RunCompleted) -> list[FleetEvent]:
    """End all sessions with the run. A session that is the run itself ends with the run's outcome."""
    events: list[FleetEvent] = []
    reason = run_end_reason(run)
    for session_key, agent in state.sessions.items():
        if agent.is_conversation and not agent.open_steps:
            events += end_events(agent, event, SessionEnd(), agent.spent)
        elif session_key != _RUN_KEY:
            spent = _session_usage(state, session_key)
            events += termination_events(agent, event, spent, reason) if agent.spawned else []
        elif agent.spawned or not agent.resumed_attempt:
            events += [] if agent.spawned else [spawned_event(agent, event, state.host)]
            events += end_events(agent, event, end_of_run(run), _session_usage(state, session_key))
    return events


def _step_usage(state: FleetEventState, step_key: str) -> UsageTotal:
    step = state.spending.of_step(step_key)
    return step.before + step.reported


def _session_usage(state: FleetEventState, session_key: str) -> UsageTotal:
    """Return what a session has spent by its own messages; for a session that is the run itself, the run's total."""
    if session_key == _RUN_KEY:
        return state.spending.own
    agent = state.sessions[session_key]
    if not agent.is_conversation:
        return _step_usage(state, session_key)
    return sum((_step_usage(state, step) for step, key in state.turns.items() if key == session_key), agent.spent)


# State.


def _with_session(state: FleetEventState, session_key: str, agent: AgentSession) -> FleetEventState:
    return replace(state, sessions={**state.sessions, session_key: agent})


def _without_session(state: FleetEventState, session_key: str) -> FleetEventState:
    """Remove a session with its open calls and changed files."""
    prefix = f"{state.sessions[session_key].id} "
    return replace(
        state,
        sessions={key: agent for key, agent in state.sessions.items() if key != session_key},
        calls={key: at for key, at in state.calls.items() if not key.startswith(prefix)},
        files={key: None for key in state.files if not key.startswith(prefix)},
    )


def _keep_newest(facts: dict[str, T]) -> dict[str, T]:
    return facts if len(facts) <= FLEET_EVENT_FACTS else dict(list(facts.items())[-FLEET_EVENT_FACTS:])
