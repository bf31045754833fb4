"""What a run's log says so far: the checkpoint that its next attempt goes on from."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import NamedTuple

import msgspec

from shopfloor.engine.command_output import TextTail
from shopfloor.engine.watchdog import is_loop_blocked
from shopfloor.errors import ExecutionCancelled, InvalidEvent
from shopfloor.limits import COMMAND_OUTPUT_CHARS, REPLAY_PAGE_EVENTS
from shopfloor.log import (
    AssistantMessage,
    CallCompleted,
    CallStarted,
    Covers,
    Event,
    RunCompleted,
    RunStarted,
    Session,
    StepCompleted,
    StepStarted,
    TextBlock,
    ToolCall,
    ToolResult,
    UserMessage,
    decode,
    is_message_chunk,
)
from shopfloor.ports import LogReader
from shopfloor.views import (
    DEFINITION_CHANGED,
    PartialMessages,
    Spending,
    UsageTotal,
    WaitState,
    format_step_key,
    spending_step,
    wait_state_step,
)

AGENT = "agent"
"""The kind of a step that an agent does."""
COMMAND = "command"
"""The kind of a step that runs a command."""
_FAR = 2**53
"""After any event."""


class StepKey(NamedTuple):
    """Where in a run something happens: the step's path, and which round of the innermost loop."""

    path: str
    iteration: int = 0


ConversationEvent = UserMessage | AssistantMessage | ToolCall | ToolResult


class StepRecord(msgspec.Struct):
    """A step as the log has it: its newest try."""

    name: str
    kind: str
    try_: int
    done: StepCompleted | CallCompleted | None = None
    child_run_id: str | None = None
    started_seq: int = 0
    """The `seq` at which that try began."""
    stopped_by: StepCompleted | CallCompleted | None = None
    """The end of the step whose failure stopped this one."""
    session: Session | None = None
    """For an agent: the session that can be gone on in."""
    has_reported: bool = False
    """For an agent: whether it has said anything, were it only that it is ready."""
    open_calls: dict[str, None] = {}
    """For an agent: its calls of tools without a result."""
    stdout: TextTail = msgspec.field(default_factory=lambda: TextTail(COMMAND_OUTPUT_CHARS))
    """For a command: the end of its standard output."""


class ReplayState(msgspec.Struct):
    """The whole of a log, as far as going on needs it."""

    run_id: str
    parent_run_id: str | None = None
    first: RunStarted | None = None
    started_at: str = ""
    """When the first attempt began; empty where that is this one."""
    attempt: int = 0
    last_seq: int = 0
    steps: dict[StepKey, StepRecord] = {}
    conversation: dict[StepKey, list[ConversationEvent]] = {}
    """Messages and tool calls by the place they belong to, in order."""
    calls: dict[str, tuple[StepKey, ToolCall]] = {}
    """The calls that have no result yet."""
    stale_calls: set[str] = set()
    """Those of them that somebody outside was asked for by a step that has ended."""
    results: dict[str, ToolResult] = {}
    failed: tuple[StepKey, int] | None = None
    """The step that failed last, and the `seq` of that; of steps inside each other the innermost."""
    waits: WaitState = WaitState()
    outcome: RunCompleted | None = None
    spending: Spending = Spending()
    partial: PartialMessages = msgspec.field(default_factory=PartialMessages)
    """Messages of which the log has pieces, but not the whole."""
    covers: Covers | None = None
    """What the usage and the cost of its agents' steps are of."""

    blocked_attempts: int = 0
    """How many attempts in a row, up to the newest, were lost while the run blocked the event loop."""
    is_blocked: bool = False
    """Whether the last event says that the run blocks the event loop."""

    def take(self, event: Event) -> None:
        self.last_seq = event.seq
        # Whatever follows the note shows that the loop went on: then the run is not what ended the host.
        was_blocked, self.is_blocked = self.is_blocked, is_loop_blocked(event.payload)
        self.waits = wait_state_step(self.waits, event)
        self.spending = spending_step(self.spending, event)
        self.partial.feed(event)
        step_key = StepKey(event.path, event.iteration)
        match event.payload:
            case RunStarted() as started:
                self.attempt = started.attempt
                self.blocked_attempts = self.blocked_attempts + 1 if was_blocked else 0
                if self.first is None:
                    self.first, self.parent_run_id, self.started_at = started, event.parent_run_id, event.timestamp
            case RunCompleted() as outcome:
                self.outcome = outcome
            case StepStarted() | CallStarted() as step:
                session = step.session if isinstance(step, StepStarted) else None
                self.steps[step_key] = StepRecord(
                    step.name,
                    step.kind,
                    step.try_,
                    child_run_id=event.child_run_id,
                    started_seq=event.seq,
                    session=session,
                )
            case StepCompleted() | CallCompleted() as step:
                self._end(step_key, step)
            case (UserMessage() | AssistantMessage() | ToolCall() | ToolResult()) as conversation if self._is_agents(
                step_key, conversation
            ):
                self._note_session(step_key, conversation)
            case (UserMessage() | AssistantMessage()) as message:
                self._note_message(step_key, message)
            case ToolCall() as call:
                self.conversation.setdefault(step_key, []).append(call)
                self.calls[call.call_id] = (step_key, call)
                self.stale_calls.discard(call.call_id)
            case ToolResult() as result:
                self.conversation.setdefault(step_key, []).append(result)
                self.calls.pop(result.call_id, None)
                self.results[result.call_id] = result
            case _:
                pass

    def _end(self, step_key: StepKey, step: StepCompleted | CallCompleted) -> None:
        if step_key in self.steps:
            self.steps[step_key].done = step
            self._note_failure(step_key, step)
        # A step that has ended waits for nothing: another try of it asks again, so that the question is seen.
        self.stale_calls |= {
            one for one, (at, call) in self.calls.items() if at == step_key and call.awaits is not None
        }
        if isinstance(step, StepCompleted) and step.kind == AGENT:
            self.covers = self.covers if step.covers in (None, "own") and self.covers else step.covers
            if step.session is not None and step_key in self.steps:
                begun = self.steps[step_key].session
                process = step.session.process or (begun and begun.process)
                self.steps[step_key].session = msgspec.structs.replace(step.session, process=process)

    def _note_failure(self, step_key: StepKey, step: StepCompleted | CallCompleted) -> None:
        if step.error_code == ExecutionCancelled.code:
            failed = self.failed_sibling(step_key)
            self.steps[step_key].stopped_by = self.steps[failed].done if failed is not None else None
        elif step.error is not None and (self.failed is None or not _is_inside(self.failed[0], step_key)):
            self.failed = step_key, self.last_seq

    def failed_sibling(self, step_key: StepKey) -> StepKey | None:
        """Give the step that failed while this one, which is not around it, was going on; None where none did."""
        step = self.steps.get(step_key)
        if step is None or self.failed is None or self.failed[1] < step.started_seq:
            return None
        failed = self.failed[0]
        done = self.steps[failed].done
        is_failure = done is not None and done.error is not None and failed != step_key
        return failed if is_failure and not _is_inside(failed, step_key) else None

    def stop_reason(self, step_key: StepKey) -> str | None:
        """Say which step's failure stopped this one; None where none is known to have."""
        failed = self.failed_sibling(step_key)
        if failed is None:
            return None
        child = self.steps[failed].child_run_id
        return f"stopped because the sibling `{format_step_key(*failed)}`{f' (run {child})' if child else ''} failed"

    def _is_agents(self, step_key: StepKey, conversation: ConversationEvent) -> bool:
        """What an agent said and did need not be known to go on: it knows it itself, and it may be very much."""
        if isinstance(conversation, ToolCall | ToolResult) and conversation.fidelity == "router":
            return False
        return step_key in self.steps and self.steps[step_key].kind == AGENT

    def _note_message(self, step_key: StepKey, message: UserMessage | AssistantMessage) -> None:
        step = self.steps.get(step_key)
        if step is not None and step.kind == COMMAND:
            # Of a command's output only the end: later steps get no more, and the whole may be gigabytes.
            texts = (block for block in message.blocks if isinstance(block, TextBlock))
            for text in (block.text for block in texts if block.stream == "stdout"):
                step.stdout.add(text)
            return
        if isinstance(message, AssistantMessage) and is_message_chunk(message):
            # No part of the thread: the whole message is, if it follows.
            return
        self.conversation.setdefault(step_key, []).append(message)

    def _note_session(self, step_key: StepKey, conversation: ConversationEvent) -> None:
        """An agent may tell only late in which session it is."""
        match conversation:
            case ToolCall(call_id=call_id):
                self.steps[step_key].open_calls[call_id] = None
            case ToolResult(call_id=call_id):
                self.steps[step_key].open_calls.pop(call_id, None)
            case _:
                pass
        if not isinstance(conversation, AssistantMessage):
            return
        told = conversation.session_id or (
            conversation.note and conversation.note.ready and conversation.note.ready.session_id
        )
        step = self.steps[step_key]
        step.has_reported = True
        if told and step.session is not None and step.session.session_id != told:
            step.session = msgspec.structs.replace(step.session, session_id=told)

    def prior_usage(self, step_key: StepKey) -> UsageTotal:
        """What earlier sessions of a step that goes on have spent."""
        return self.spending.of_step(format_step_key(*step_key)).before

    @property
    def pending_call_ids(self) -> set[str]:
        """The open calls that somebody outside has to answer."""
        waiting = {call_id for call_id, (_, call) in self.calls.items() if call.awaits is not None}
        return waiting - set(self.definition_wait_calls)

    @property
    def definition_wait_calls(self) -> list[str]:
        """The open calls by which the whole run waits for its definition: nobody can answer them."""
        calls = [call for _, call in self.calls.values() if call.awaits is not None]
        return [call.call_id for call in calls if call.awaits and call.awaits.kind == DEFINITION_CHANGED]

    def open_steps(self) -> list[tuple[StepKey, StepRecord]]:
        """The innermost last."""
        return [(step_key, step) for step_key, step in self.steps.items() if step.done is None]


def _is_inside(step_key: StepKey, outer: StepKey) -> bool:
    return step_key.path.startswith(f"{outer.path}.")


async def read_replay_state(reader: LogReader, run_id: str) -> ReplayState:
    """The journal of a run; one with no `first` where there is no log, or nothing in it."""
    replay_state = ReplayState(run_id)
    async for event in events_of(reader, run_id):
        replay_state.take(event)
    return replay_state


async def last_event(reader: LogReader, run_id: str) -> Event | None:
    entries = await reader.page(run_id, before=_FAR, limit=1)
    return decode(entries[-1].raw) if entries else None


async def outcome_of(reader: LogReader, run_id: str) -> RunCompleted | None:
    """The outcome of a run; None where it has none, or not yet."""
    event = await last_event(reader, run_id)
    return event.payload if event is not None and isinstance(event.payload, RunCompleted) else None


async def events_of(reader: LogReader, run_id: str) -> AsyncIterator[Event]:
    entries = await reader.page(run_id, limit=REPLAY_PAGE_EVENTS)
    while entries:
        for entry in entries:
            try:
                yield decode(entry.raw)
            except InvalidEvent:
                # No envelope to be read; the file has it, and `verify` names it.
                continue
        if len(entries) < REPLAY_PAGE_EVENTS:
            return
        entries = await reader.page(run_id, after=entries[-1].seq, limit=REPLAY_PAGE_EVENTS)
