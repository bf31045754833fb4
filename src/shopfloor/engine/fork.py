"""Forks: which events of an earlier run a new run starts with, and copying them into its log.

The copies replay like events of an earlier attempt (ADR 29): completed steps are not executed again, and a conversation
with a model continues after its last message. A step that had not completed, or had failed, is executed again.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

import msgspec
from msgspec.structs import replace

from shopfloor.engine.attempt import Attempt
from shopfloor.engine.replay_state import AGENT, COMMAND, PLUGIN_JOB, StepKey, events_of
from shopfloor.errors import ConflictError, InvalidParameter, StepFailed
from shopfloor.log import (
    INTERRUPTED_STOP,
    AssistantMessage,
    BasedOn,
    CallCompleted,
    CallStarted,
    Event,
    Payload,
    RunCompleted,
    StepCompleted,
    StepStarted,
    ToolCall,
    ToolResult,
    UserMessage,
    is_message_chunk,
)
from shopfloor.ports import LogReader
from shopfloor.views import ENGINE_CALLS

_EXECUTED_WHOLE: Final = frozenset({"step", COMMAND, AGENT, PLUGIN_JOB, "call_workflow"})
"""The kinds of steps that have no part to continue from: unless they completed, they are executed again."""
_SINGLE_CALLS: Final = frozenset({"tool-call", "operation"})
"""The kinds of steps that are one tool call."""


class _Step(msgspec.Struct):
    """A step of the earlier run, as it was at the last event of the fork."""

    name: str
    kind: str
    first_seq: int
    """The event that started the first try."""
    newest_seq: int
    """The event that started the newest try."""
    is_open: bool = True
    is_completed: bool = False
    last_call_id: str | None = None


class ForkPlan(msgspec.Struct):
    """What a fork at an event copies. Built by `add` from the events up to that event; then `copy` returns the copies.

    Memory grows with the number of steps and of calls by the engine, not with the size of the log.
    """

    last_seq: int = 0
    is_ended: bool = False
    steps: dict[StepKey, _Step] = {}
    results: dict[str, bool] = {}
    """The calls that have a result, and whether the call succeeded."""

    def add(self, event: Event) -> None:
        """Take note of the next event of the earlier run."""
        self.last_seq = event.seq
        step_key = StepKey(event.path, event.iteration)
        step = self.steps.get(step_key)
        match event.payload:
            case StepStarted() | CallStarted() as started:
                first_seq = event.seq if step is None else step.first_seq
                self.steps[step_key] = _Step(started.name, started.kind, first_seq, event.seq)
            case StepCompleted() | CallCompleted() as ended if step is not None:
                step.is_open, step.is_completed = False, ended.error is None
            case ToolCall(fidelity="router") as call if step is not None and call.name not in ENGINE_CALLS:
                step.last_call_id = call.call_id
            case ToolResult(fidelity="router") as result:
                self.results[result.call_id] = result.error is None
            case RunCompleted():
                self.is_ended = True
            case _:
                pass

    def open_agent(self) -> _Step | None:
        """Return the agent step that is open at the last event, if there is one."""
        return next((step for step in self.steps.values() if step.kind == AGENT and step.is_open), None)

    def copy(self, event: Event) -> Payload | None:
        """Return the copy of an event, or None if the fork does without it.

        Usage and cost stay with the earlier run.
        """
        payload, step_key = event.payload, StepKey(event.path, event.iteration)
        if not event.path or (isinstance(payload, ToolCall | ToolResult) and payload.name in ENGINE_CALLS):
            # A fork does not wait for what the earlier run has waited for.
            return None
        step = self.steps.get(step_key)
        if isinstance(payload, ToolCall) and payload.fidelity == "router" and payload.call_id not in self.results:
            # The fork makes the call again.
            return None
        if step is None or step.is_completed:
            return None if self._is_inside_dropped(step_key) else _copy_payload(payload)
        if step.kind in _EXECUTED_WHOLE or self._is_inside_dropped(step_key):
            return None
        if step.kind in _SINGLE_CALLS and not self._has_succeeded(step, payload):
            return None
        return _copy_open(payload) if not _is_start(payload) or event.seq == step.first_seq else None

    def _has_succeeded(self, step: _Step, payload: object) -> bool:
        """Return whether the last call of a step has succeeded and this event is that call, its result or the start."""
        is_of_last = not isinstance(payload, ToolCall | ToolResult) or payload.call_id == step.last_call_id
        return is_of_last and step.last_call_id is not None and self.results.get(step.last_call_id, False)

    def _is_inside_dropped(self, step_key: StepKey) -> bool:
        """Return whether an enclosing step is executed again as a whole, as an agent with its sub-agents."""
        parts = step_key.path.split(".")
        outer = (self.steps.get(StepKey(".".join(parts[:n]), step_key.iteration)) for n in range(1, len(parts)))
        return any(step is not None and step.kind in _EXECUTED_WHOLE and not step.is_completed for step in outer)


def _is_start(payload: object) -> bool:
    return isinstance(payload, StepStarted | CallStarted)


def _copy_open(payload: object) -> Payload | None:
    """Return the copy of an event of a step that continues in the fork: its first start, and its conversation."""
    if isinstance(payload, StepCompleted | CallCompleted):
        return None
    if isinstance(payload, AssistantMessage) and payload.stop_reason == INTERRUPTED_STOP:
        return None
    copied = _copy_payload(payload)
    return replace(copied, try_=1) if isinstance(copied, StepStarted) else copied


def _copy_payload(payload: object) -> Payload | None:
    match payload:
        case AssistantMessage() if is_message_chunk(payload) or not (payload.blocks or payload.note):
            return None
        case AssistantMessage():
            return replace(payload, usage=None, cost=None)
        case StepStarted():
            # The process belongs to the earlier run.
            return replace(payload, process=None)
        case CallStarted():
            # The sub-run stays a sub-run of the earlier run: a run has one parent.
            return StepStarted(name=payload.name, kind=payload.kind, try_=payload.try_)
        case StepCompleted() | CallCompleted():
            return StepCompleted(
                name=payload.name,
                kind=payload.kind,
                try_=payload.try_,
                error=payload.error,
                error_code=payload.error_code,
                error_hint=payload.error_hint,
                retryable=payload.retryable,
                result=payload.result,
                session=payload.session,
                duration_ms=payload.duration_ms,
            )
        case UserMessage() | ToolCall() | ToolResult():
            return payload
        case _:
            return None


async def _events_to(reader: LogReader, run_id: str, seq: int) -> AsyncIterator[Event]:
    async for event in events_of(reader, run_id):
        if event.seq > seq:
            return
        yield event


async def _read_plan(reader: LogReader, run_id: str, seq: int) -> ForkPlan:
    plan = ForkPlan()
    async for event in _events_to(reader, run_id, seq):
        plan.add(event)
    return plan


async def _copies(reader: LogReader, plan: ForkPlan, run_id: str, seq: int) -> AsyncIterator[tuple[StepKey, Payload]]:
    async for event in _events_to(reader, run_id, seq):
        payload = plan.copy(event)
        if payload is not None:
            yield StepKey(event.path, event.iteration), payload


async def plan_fork(reader: LogReader, run_id: str, seq: int) -> BasedOn:
    """Return what a fork of a run at an event is based on.

    Raises `InvalidParameter` if the run has no such event, and `ConflictError` if it cannot be forked there.
    """
    plan = await _read_plan(reader, run_id, seq)
    if seq < 1 or plan.last_seq < seq:
        raise InvalidParameter(
            f"the run {run_id} has no event {seq:,}: its events are 1 to {plan.last_seq:,}",
            hint=f"`shopfloor show {run_id[:8]} --json` lists the events with their `seq`",
        )
    if plan.is_ended:
        raise ConflictError(
            f"event {seq:,} is the end of the run {run_id}: there is nothing to do after it",
            hint="name an earlier event; `shopfloor rerun` repeats the whole run, `shopfloor reply` continues an agent",
        )
    agent = plan.open_agent()
    if agent is not None:
        raise ConflictError(
            f"event {seq:,} is inside the session of the agent step {agent.name!r}, which cannot be cut",
            hint=f"fork before it, at {agent.newest_seq - 1:,}, or after its end; "
            "`shopfloor reply` continues the session of an agent at its end",
        )
    copied = 0
    async for _ in _copies(reader, plan, run_id, seq):
        copied += 1
    return BasedOn(run_id=run_id, kind="fork", seq=seq, events=copied)


async def copy_events(attempt: Attempt, reader: LogReader) -> None:
    """Copy the events that a fork starts with into its log. An attempt that was interrupted has copied some already.

    Fails the attempt if the earlier run no longer exists.
    """
    first = attempt.replay_state.first
    based_on = first.based_on if first is not None else None
    if based_on is None or based_on.seq is None or attempt.replay_state.step_events >= (based_on.events or 0):
        return
    plan = await _read_plan(reader, based_on.run_id, based_on.seq)
    # Only copies are events of steps now; the log may also have notes of the host.
    skipped = attempt.replay_state.step_events
    if plan.last_seq < based_on.seq:
        attempt.fail(StepFailed(f"the run {based_on.run_id} was deleted before its events were copied"))
        return
    async for step_key, payload in _copies(reader, plan, based_on.run_id, based_on.seq):
        if skipped:
            skipped -= 1
        else:
            await attempt.append(payload, step_key)
