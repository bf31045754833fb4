"""Replay state: the state of a run rebuilt from its log, from which the next attempt continues."""

from __future__ import annotations

import hashlib
import time
from collections.abc import AsyncIterator
from typing import Any, Final, NamedTuple, cast

import msgspec

from shopfloor.engine.command_output import TextTail
from shopfloor.engine.watchdog import is_loop_blocked
from shopfloor.engine.worker_output import is_worker_output
from shopfloor.errors import ExecutionCancelled, InvalidEvent
from shopfloor.limits import COMMAND_OUTPUT_CHARS, REPLAY_PAGE_EVENTS
from shopfloor.log import (
    AssistantMessage,
    CallCompleted,
    CallStarted,
    CommandBlock,
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
    now,
)
from shopfloor.ports import LogReader
from shopfloor.views import (
    APPROVAL,
    DEFINITION_CHANGED,
    SUBMIT_RESULT,
    PartialMessages,
    Spending,
    UsageTotal,
    WaitState,
    format_step_key,
    ms_between,
    spending_step,
    wait_state_step,
)

AGENT = "agent"
"""The kind of a step that an agent executes."""
PLUGIN_JOB = "plugin"
"""The kind of a step that a plugin executes."""
COMMAND = "command"
"""The kind of a step that runs a command."""
SUBMITTED: Final = {"submitted": True}
"""The output of `submit_result` if the result was accepted."""
_AFTER_ALL = 2**53
"""Greater than the `seq` of any event."""


class StepKey(NamedTuple):
    """The identity of a step in a run: its path, and the iteration of the innermost loop."""

    path: str
    iteration: int = 0


ConversationEvent = UserMessage | AssistantMessage | ToolCall | ToolResult
"""An event of the conversation of a step with a model."""


class StepRecord(msgspec.Struct):
    """The newest try of a step, as recorded in the log."""

    name: str
    kind: str
    try_: int
    done: StepCompleted | CallCompleted | None = None
    child_run_id: str | None = None
    started_seq: int = 0
    """The `seq` of the start of this try."""
    started_at: str = ""
    stopped_by: StepRecord | None = None
    """The step whose failure stopped this one."""
    session: Session | None = None
    """For an agent: the session that can be resumed. For a plugin: its job."""
    has_reported: bool = False
    """For an agent or a plugin: whether it has reported anything yet, even if only that it is ready."""
    open_calls: dict[str, None] = {}
    """For an agent: its tool calls without a result."""
    stdout: TextTail = msgspec.field(default_factory=lambda: TextTail(COMMAND_OUTPUT_CHARS))
    """For a command: the end of its standard output."""
    command: str = ""
    """For a command: its command line."""

    @property
    def started_monotonic(self) -> float:
        """When this try started, possibly in another process, on the monotonic clock of this process."""
        return time.monotonic() - seconds_since(self.started_at)


def elapsed_ms(started_monotonic: float) -> int:
    """Return the milliseconds since a time of the monotonic clock."""
    return round((time.monotonic() - started_monotonic) * 1000)


def seconds_since(timestamp: str) -> float:
    """Return the time since an event of the log. Across processes only the wall clock can measure it."""
    return (ms_between(timestamp, now()) or 0) / 1000


class ApprovalRecord(msgspec.Struct):
    """A request for approval."""

    step_key: StepKey
    pattern: str
    """The pattern because of which the call has to be approved."""
    digest: str
    """The digest of the tool and its input, by which a repeated call is recognized."""
    answered_attempt: int | None = None
    """The attempt in which the decision was recorded."""


def call_digest(tool: str, tool_input: Any) -> str:
    """Return the digest of a call."""
    return hashlib.sha256(msgspec.json.encode((tool, tool_input), order="deterministic")).hexdigest()


class ReplayState(msgspec.Struct):
    """The state that the next attempt needs, built by applying every event of the log in order."""

    run_id: str
    parent_run_id: str | None = None
    first: RunStarted | None = None
    started_at: str = ""
    """When the first attempt started; empty if this is the first attempt."""
    attempt: int = 0
    last_seq: int = 0
    step_events: int = 0
    """The number of events of steps."""
    steps: dict[StepKey, StepRecord] = {}
    conversation: dict[StepKey, list[ConversationEvent]] = {}
    """The messages and tool calls of each step, oldest first."""
    calls: dict[str, tuple[StepKey, ToolCall]] = {}
    """The calls that have no result yet."""
    stale_calls: set[str] = set()
    """Open calls to the outside whose step has ended. Another try of the step makes them again."""
    results: dict[str, ToolResult] = {}
    approvals: dict[str, ApprovalRecord] = {}
    """The approvals that were requested, by their ids."""
    approved_patterns: set[str] = set()
    """The patterns whose calls need no more approvals in this run."""
    submitted_result: str | None = None
    """The text that the worker last submitted as its result."""
    failed: tuple[StepKey, int] | None = None
    """The step that failed last, and the `seq` of its end; of nested steps the innermost."""
    waits: WaitState = WaitState()
    outcome: RunCompleted | None = None
    spending: Spending = Spending()
    partial: PartialMessages = msgspec.field(default_factory=PartialMessages)
    """Messages of which the log has chunks, but not the complete message."""
    covers: Covers | None = None
    """What the usage and cost of the agent steps cover: only the agents themselves, or their sub-agents too."""

    blocked_attempts: int = 0
    """How many attempts in a row, up to the newest, were lost while the run blocked the event loop."""
    is_blocked: bool = False
    """Whether the last event says that the run blocks the event loop."""

    def apply(self, event: Event) -> None:
        """Update the state with the next event of the log."""
        self.last_seq, self.step_events = event.seq, self.step_events + bool(event.path)
        # Any later event shows that the loop went on, so this run did not cause the loss of the host.
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
                    started_at=event.timestamp,
                    session=session,
                )
            case StepCompleted() | CallCompleted() as step:
                self._end(step_key, step)
            case (UserMessage() | AssistantMessage() | ToolCall() | ToolResult()) as payload if self._is_agent_event(
                step_key, payload
            ):
                self._note_session(step_key, payload)
            case (UserMessage() | AssistantMessage()) as message:
                self._note_message(step_key, message)
            case ToolCall() as call:
                self._note_call(step_key, call)
            case ToolResult() as result:
                self._note_result(step_key, result)
            case _:
                pass

    def _end(self, step_key: StepKey, step: StepCompleted | CallCompleted) -> None:
        if step_key in self.steps:
            self.steps[step_key].done = step
            self._note_failure(step_key, step)
        # A step that has ended waits for nothing. Another try makes its calls again, so that viewers see them.
        self.stale_calls |= {
            call_id for call_id, (key, call) in self.calls.items() if key == step_key and call.awaits is not None
        }
        if isinstance(step, StepCompleted) and step.kind == AGENT:
            self.covers = self.covers if step.covers in (None, "own") and self.covers else step.covers
            if step.session is not None and step_key in self.steps:
                started = self.steps[step_key].session
                process = step.session.process or (started and started.process)
                self.steps[step_key].session = msgspec.structs.replace(step.session, process=process)

    def _note_call(self, step_key: StepKey, call: ToolCall) -> None:
        # An approval is not part of the conversation with a model.
        if call.awaits is not None and call.awaits.kind == APPROVAL:
            self.approvals[call.call_id] = _approval_record(step_key, call)
        else:
            self.conversation.setdefault(step_key, []).append(call)
        self.calls[call.call_id] = (step_key, call)
        self.stale_calls.discard(call.call_id)

    def _note_result(self, step_key: StepKey, result: ToolResult) -> None:
        if result.call_id in self.approvals:
            self._note_approval(result)
        else:
            self.conversation.setdefault(step_key, []).append(result)
        self._note_submission(self.calls.pop(result.call_id, None), result)
        self.results[result.call_id] = result

    def _note_approval(self, result: ToolResult) -> None:
        output: Any = result.output
        approval = self.approvals[result.call_id]
        approval.answered_attempt = self.attempt
        if isinstance(output, dict) and cast("dict[str, Any]", output).get("scope") in ("run", "always"):
            self.approved_patterns.add(approval.pattern)

    def _note_submission(self, call: tuple[StepKey, ToolCall] | None, result: ToolResult) -> None:
        is_accepted = result.name == SUBMIT_RESULT and result.fidelity == "router" and result.output == SUBMITTED
        arguments: Any = call[1].input if call is not None and is_accepted else None
        if isinstance(arguments, dict):
            self.submitted_result = str(cast("dict[str, Any]", arguments).get("text"))

    def _note_failure(self, step_key: StepKey, step: StepCompleted | CallCompleted) -> None:
        if step.error_code == ExecutionCancelled.code:
            failed = self.failed_sibling(step_key)
            self.steps[step_key].stopped_by = self.steps[failed] if failed is not None else None
        elif step.error is not None and (self.failed is None or not _is_inner_step(self.failed[0], step_key)):
            self.failed = step_key, self.last_seq

    def failed_sibling(self, step_key: StepKey) -> StepKey | None:
        """Return the step outside this one that failed while this one was open, if any."""
        step = self.steps.get(step_key)
        if step is None or self.failed is None or self.failed[1] < step.started_seq:
            return None
        failed = self.failed[0]
        done = self.steps[failed].done
        is_failure = done is not None and done.error is not None and failed != step_key
        return failed if is_failure and not _is_inner_step(failed, step_key) else None

    def stop_reason(self, step_key: StepKey) -> str | None:
        """Return which failed sibling stopped this step, as a sentence; None if none is known."""
        failed = self.failed_sibling(step_key)
        if failed is None:
            return None
        child = self.steps[failed].child_run_id
        return f"stopped because the sibling `{format_step_key(*failed)}`{f' (run {child})' if child else ''} failed"

    def _is_agent_event(self, step_key: StepKey, payload: ConversationEvent) -> bool:
        """Return whether an agent reported this event.

        Such events are not kept: the agent has its own history, and they may be very many.
        """
        if isinstance(payload, ToolCall | ToolResult) and payload.fidelity == "router":
            return False
        kind = self.steps[step_key].kind if step_key in self.steps else None
        # The notes of a plugin's job are few. They are kept, so that a resumed step does not record them again.
        return kind == AGENT or (kind == PLUGIN_JOB and isinstance(payload, AssistantMessage))

    def _note_message(self, step_key: StepKey, message: UserMessage | AssistantMessage) -> None:
        step = self.steps.get(step_key)
        if step is not None and step.kind == COMMAND:
            # Keep only the end of the output: later steps get no more, and the output may be gigabytes.
            texts = (block for block in message.blocks if isinstance(block, TextBlock))
            for text in (block.text for block in texts if block.stream == "stdout"):
                step.stdout.add(text)
            step.command = next((b.command for b in message.blocks if isinstance(b, CommandBlock)), step.command)
            return
        if isinstance(message, AssistantMessage) and (is_message_chunk(message) or is_worker_output(message)):
            # A chunk is not part of the conversation; the complete message is, if it follows.
            return
        self.conversation.setdefault(step_key, []).append(message)

    def _note_session(self, step_key: StepKey, payload: ConversationEvent) -> None:
        """Update the session and the open calls of an agent, which may report its session id late."""
        match payload:
            case ToolCall(call_id=call_id):
                self.steps[step_key].open_calls[call_id] = None
            case ToolResult(call_id=call_id):
                self.steps[step_key].open_calls.pop(call_id, None)
            case _:
                pass
        if isinstance(payload, UserMessage) and payload.session is not None and (known := self.steps[step_key].session):
            self.steps[step_key].session = msgspec.structs.replace(known, process=payload.session.process)
        if not isinstance(payload, AssistantMessage):
            return
        session_id = payload.session_id or (payload.note and payload.note.ready and payload.note.ready.session_id)
        step = self.steps[step_key]
        step.has_reported = True
        if session_id and step.session is not None and step.session.session_id != session_id:
            step.session = msgspec.structs.replace(step.session, session_id=session_id)

    def prior_usage(self, step_key: StepKey) -> UsageTotal:
        """Return what earlier sessions of a resumed step have spent."""
        return self.spending.of_step(format_step_key(*step_key)).before

    @property
    def pending_call_ids(self) -> set[str]:
        """The open calls that need an answer from outside."""
        waiting = {call_id for call_id, (_, call) in self.calls.items() if call.awaits is not None}
        return waiting - set(self.definition_wait_calls)

    @property
    def definition_wait_calls(self) -> list[str]:
        """The open calls by which the run waits for its definition. They cannot be answered."""
        calls = [call for _, call in self.calls.values() if call.awaits is not None]
        return [call.call_id for call in calls if call.awaits and call.awaits.kind == DEFINITION_CHANGED]

    def open_steps(self) -> list[tuple[StepKey, StepRecord]]:
        """Return the steps without an end, inner steps after outer ones."""
        return [(step_key, step) for step_key, step in self.steps.items() if step.done is None]


def _approval_record(step_key: StepKey, call: ToolCall) -> ApprovalRecord:
    arguments: Any = call.input
    fields = cast("dict[str, Any]", arguments) if isinstance(arguments, dict) else {}
    digest = call_digest(str(fields.get("tool")), fields.get("input"))
    return ApprovalRecord(step_key, str(fields.get("pattern")), digest)


def _is_inner_step(step_key: StepKey, outer: StepKey) -> bool:
    return step_key.path.startswith(f"{outer.path}.")


async def read_replay_state(reader: LogReader, run_id: str) -> ReplayState:
    """Rebuild the replay state of a run from its log. `first` is None if the log is missing or empty."""
    replay_state = ReplayState(run_id)
    async for event in events_of(reader, run_id):
        replay_state.apply(event)
    return replay_state


async def last_event(reader: LogReader, run_id: str) -> Event | None:
    """Return the last event of a log; None if the log is missing or empty."""
    entries = await reader.page(run_id, before=_AFTER_ALL, limit=1)
    return decode(entries[-1].raw) if entries else None


async def outcome_of(reader: LogReader, run_id: str) -> RunCompleted | None:
    """Return the outcome of a run; None if it has not ended."""
    event = await last_event(reader, run_id)
    return event.payload if event is not None and isinstance(event.payload, RunCompleted) else None


async def events_of(reader: LogReader, run_id: str) -> AsyncIterator[Event]:
    """Yield the readable events of a log, oldest first."""
    entries = await reader.page(run_id, limit=REPLAY_PAGE_EVENTS)
    while entries:
        for entry in entries:
            try:
                yield decode(entry.raw)
            except InvalidEvent:
                # The envelope cannot be decoded. The line stays in the file, and `verify` reports it.
                continue
        if len(entries) < REPLAY_PAGE_EVENTS:
            return
        entries = await reader.page(run_id, after=entries[-1].seq, limit=REPLAY_PAGE_EVENTS)
