"""The stream of a run: its log and its live text deltas, as the events that a client reads."""

from __future__ import annotations

from collections.abc import AsyncIterable, Collection
from typing import Any, cast

import msgspec

from shopfloor.errors import InvalidEvent
from shopfloor.limits import STREAM_EARLY_DELTAS
from shopfloor.log import (
    AssistantMessage,
    CallCompleted,
    CallStarted,
    Cost,
    Delta,
    Entry,
    Event,
    Note,
    RunCompleted,
    RunStarted,
    StepCompleted,
    StepStarted,
    ToolCall,
    ToolResult,
    Usage,
    decode,
    is_run_id,
)
from shopfloor.views.approvals import approval_question
from shopfloor.views.notes import LOG_QUESTION
from shopfloor.views.spending import SESSION_KINDS
from shopfloor.views.stream_events import (
    BlockEnd,
    BlockStart,
    FinishReason,
    Notice,
    Question,
    RequestedCall,
    Start,
    StreamEvent,
    ToolOutputAvailable,
    ToolOutputError,
    ToolRequest,
    UsageEvent,
    WorkerResult,
    WorkerStart,
    error_event,
    finish,
)
from shopfloor.views.text_deltas import (
    TextState,
    close_call,
    close_step,
    close_texts,
    stream_call_input,
    stream_delta,
    stream_message,
)
from shopfloor.views.wait_state import (
    APPROVAL,
    DEFINITION_CHANGED,
    QUESTION,
    RATE_LIMIT,
    WaitState,
    definition_wait_message,
    format_step_key,
    keep_newest,
    wait_state_step,
)

CLIENT_TOOL = "client_tool"
_CALL_ID_SEPARATOR = ":"


class OpenCall(msgspec.Struct, frozen=True, omit_defaults=True):
    """A call that a client or a person has to answer."""

    kind: str
    tool: str
    arguments: Any = None


class StreamState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The state of the fold. Bounded: see `TextState` and `WaitState`; has the newest `OPEN_BRANCHES` open calls."""

    seq: int = 0
    """The last event in the state. Events up to it are ignored if they come again."""
    started: bool = False
    ended: bool = False
    texts: TextState = TextState()
    waits: WaitState = WaitState()
    calls: dict[str, OpenCall] = {}
    requested_calls: tuple[str, ...] = ()
    """The open calls that this stream has requested: each is requested once."""
    requested_sub_run_calls: tuple[str, ...] = ()
    """The open calls of sub-runs that this stream has requested."""
    shown: tuple[str, ...] = ()
    """The calls whose results the client has already shown: the stream does not repeat them."""
    early_deltas: tuple[Delta, ...] = ()
    """Deltas that came before the log events they follow."""


class SubRunCalls(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The client tools that the sub-runs of a run wait for, at a time when its whole tree waits.

    No single log has this information, so the stream of the run receives it beside the log. The id of each call names
    its run.
    """

    tool_calls: list[RequestedCall]
    waits: bool = False
    """True if there are no such calls, nothing in the tree is active, and the run's log has been silent for a while."""


def join_call_id(run_id: str, call_id: str) -> str:
    """Return the id by which the client of a run knows a call of one of its sub-runs."""
    return f"{run_id}{_CALL_ID_SEPARATOR}{call_id}"


def split_call_id(text: str) -> tuple[str | None, str]:
    """Return the sub-run that made a call, or None if the id names no run, and the call's id in that run."""
    run_id, separator, call_id = text.partition(_CALL_ID_SEPARATOR)
    return (run_id, call_id) if separator and call_id and is_run_id(run_id) else (None, text)


Step = tuple[StreamState, list[StreamEvent]]


def start_event(run_id: str) -> Start:
    """Return the first event of every stream, including a resumed stream."""
    return Start(execution_id=run_id)


async def replay(
    entries: AsyncIterable[Entry], *, to: int | None = None, answered: Collection[str] = (), runs: Collection[str] = ()
) -> StreamState:
    """Return the state of a stream that has read a log from its start.

    Stops after the event `to`, and before the first result of the calls `answered` or of the sub-runs `runs`.
    """
    state = StreamState()
    async for entry in entries:
        if (to is not None and entry.seq > to) or _is_result_of(entry, answered, runs):
            break
        state, _ = entry_step(state, entry)
    return state


def resume_stream(state: StreamState, answered: Collection[str], shown: Collection[str] = ()) -> StreamState:
    """Return the state for a stream that continues where another stream finished, with results for `answered` calls.

    Calls without a result are requested again once the run waits for nothing else. Results of the calls `shown` are not
    streamed: the client has already shown them.
    """
    requested_calls = tuple(call_id for call_id in state.calls if call_id in answered)
    return msgspec.structs.replace(state, requested_calls=requested_calls, shown=tuple(shown))


def stream_step(state: StreamState, item: Event | Delta | SubRunCalls) -> Step:
    """Return the state after the next item, and the stream events that it causes."""
    if state.ended:
        return state, []
    if isinstance(item, Delta):
        return _stream_or_hold_delta(state, item)
    if isinstance(item, SubRunCalls):
        return _request_sub_run_calls(state, item)
    if item.seq <= state.seq:
        return state, []
    state = msgspec.structs.replace(state, seq=item.seq, waits=wait_state_step(state.waits, item))
    state, events = _handle_event(state, item)
    state, requested_calls = _request_open_calls(state)
    state, due_deltas = _stream_due_deltas(state)
    return state, [*events, *requested_calls, *due_deltas]


def _stream_or_hold_delta(state: StreamState, delta: Delta) -> Step:
    if delta.after > state.seq:
        # Hold the delta until the log has reached its event. Dropping a delta for lack of space is harmless: the
        # message in the log has the text.
        early_deltas = (*state.early_deltas, delta)[:STREAM_EARLY_DELTAS]
        return msgspec.structs.replace(state, early_deltas=early_deltas), []
    texts, events = stream_delta(state.texts, delta)
    return msgspec.structs.replace(state, texts=texts), events


def _stream_due_deltas(state: StreamState) -> Step:
    events: list[StreamEvent] = []
    due = [delta for delta in state.early_deltas if delta.after <= state.seq]
    if due:
        rest = tuple(delta for delta in state.early_deltas if delta.after > state.seq)
        state = msgspec.structs.replace(state, early_deltas=rest)
    for delta in due:
        state, delta_events = _stream_or_hold_delta(state, delta)
        events += delta_events
    return state, events


def _handle_event(state: StreamState, event: Event) -> Step:
    match event.payload:
        case RunStarted() as run:
            if state.started:
                return state, []
            start = WorkerStart(worker_id=event.run_id, worker_slug=run.name, description=_description(run.definition))
            return msgspec.structs.replace(state, started=True), [start]
        case StepStarted() | CallStarted() as step:
            return state, [
                BlockStart(
                    block_id=_block_id(event, step.try_),
                    block_name=step.name,
                    block_type=step.kind,
                    child_id=event.child_run_id,
                )
            ]
        case StepCompleted() | CallCompleted() as step:
            texts, events = close_step(state.texts, format_step_key(event.path, event.iteration), event.seq)
            block_id = _block_id(event, step.try_)
            end = BlockEnd(
                block_id=block_id,
                block_name=step.name,
                block_type=step.kind,
                error=step.error,
                duration_ms=step.duration_ms,
            )
            # Including the spending of its sub-agents, which no other event has.
            spent = _usage_events(None, step.usage, step.cost) + _usage_events(None, step.sub_usage, step.sub_cost)
            spent = spent if step.kind in SESSION_KINDS else []
            return msgspec.structs.replace(state, texts=texts), [*events, *spent, end]
        case AssistantMessage(note=note) if note is not None and note.kind not in ("ready", "left"):
            return state, [
                Notice(kind=note.kind, message=format_note(note), code=note.code, retry_after=note.retry_after)
            ]
        case AssistantMessage() as message:
            texts, events = stream_message(state.texts, event, message)
            # The spending of an agent's session is reported once, at its end.
            spent = _usage_events(message.model, message.usage, message.cost) if message.session_id is None else []
            return msgspec.structs.replace(state, texts=texts), [*events, *spent]
        case ToolCall() as call:
            return _handle_tool_call(state, event, call)
        case ToolResult() as result:
            return _handle_tool_result(state, result)
        case RunCompleted() as run:
            _, events = close_texts(state.texts)
            return StreamState(seq=event.seq, started=True, ended=True), [*events, *_outcome_events(event.run_id, run)]
        case _:
            return state, []


def _handle_tool_call(state: StreamState, event: Event, call: ToolCall) -> Step:
    if call.awaits is not None and call.awaits.kind == RATE_LIMIT:
        return state, [Notice(kind="limit", message=f"waits for a rate limit until {call.awaits.until}")]
    if call.awaits is not None and call.awaits.kind == DEFINITION_CHANGED:
        # No client of the stream can answer this call, so the stream finishes for now.
        notice = Notice(kind=DEFINITION_CHANGED, message=definition_wait_message(call.input))
        return state, [notice, finish("waiting")]
    if call.awaits is not None and call.awaits.kind == APPROVAL:
        opened = OpenCall(APPROVAL, call.name, None)
        state = msgspec.structs.replace(state, calls=keep_newest({**state.calls, call.call_id: opened}))
        return state, [_question_event(event.run_id, call)]
    texts, events = stream_call_input(state.texts, call.call_id, call.name, call.input)
    state = msgspec.structs.replace(state, texts=texts)
    if call.awaits is not None:
        opened = OpenCall(call.awaits.kind, call.name, call.input if call.awaits.kind == CLIENT_TOOL else None)
        state = msgspec.structs.replace(state, calls=keep_newest({**state.calls, call.call_id: opened}))
        if call.awaits.kind == QUESTION:
            events = [*events, _question_event(event.run_id, call)]
    elif call.name == LOG_QUESTION:
        events = [*events, _question_event(event.run_id, call)]
    return state, events


def _handle_tool_result(state: StreamState, result: ToolResult) -> Step:
    if result.name in (RATE_LIMIT, DEFINITION_CHANGED) and result.fidelity == "router":
        return state, []
    state = msgspec.structs.replace(
        state,
        texts=close_call(state.texts, result.call_id),
        calls={call_id: call for call_id, call in state.calls.items() if call_id != result.call_id},
        requested_calls=tuple(call_id for call_id in state.requested_calls if call_id != result.call_id),
    )
    if result.call_id in state.shown:
        return state, []
    if result.error is not None:
        return state, [ToolOutputError(tool_call_id=result.call_id, tool_name=result.name, error=result.error)]
    return state, [ToolOutputAvailable(tool_call_id=result.call_id, tool_name=result.name, output=result.output)]


def _request_open_calls(state: StreamState, *, settled: bool = False) -> Step:
    """Request what the run waits for from the client, and finish the stream for now.

    Client tools are requested as soon as the run itself waits. For a question the stream finishes only once nothing in
    the run's tree is active (`settled`), which the log of the run alone does not show.
    """
    unrequested = {call_id: call for call_id, call in state.calls.items() if call_id not in state.requested_calls}
    if not unrequested or not state.waits.is_waiting or state.waits.awaits_definition:
        return state, []
    client_tools = {call_id: call for call_id, call in unrequested.items() if call.kind == CLIENT_TOOL}
    if client_tools:
        state = msgspec.structs.replace(state, requested_calls=(*state.requested_calls, *client_tools))
        return state, _request_events(_to_requested_calls(client_tools))
    if any(state.calls[call_id].kind == CLIENT_TOOL for call_id in state.requested_calls):
        # The client is still executing these calls; only their results show whether the run waits for the others alone.
        return state, []
    if not settled:
        return state, []
    state = msgspec.structs.replace(state, requested_calls=tuple(state.calls))
    asks = any(call.kind in (QUESTION, APPROVAL) for call in unrequested.values())
    reason: FinishReason = "question" if asks else "waiting"
    return state, [finish(reason)]


def _arguments_object(arguments: Any) -> dict[str, Any]:
    """Return the arguments of a call as an object, as clients expect: any other value becomes its field `input`."""
    if arguments is None:
        return {}
    return cast("dict[str, Any]", arguments) if isinstance(arguments, dict) else {"input": arguments}


def _request_sub_run_calls(state: StreamState, below: SubRunCalls) -> Step:
    """Request the client tools of sub-runs, each once, with those of the run itself, or finish for a question."""
    unrequested = [call for call in below.tool_calls if call.tool_call_id not in state.requested_sub_run_calls]
    # Only open calls are listed: a call that is no longer listed has been answered.
    state = msgspec.structs.replace(
        state, requested_sub_run_calls=tuple(call.tool_call_id for call in below.tool_calls)
    )
    if not unrequested:
        return _request_open_calls(state, settled=True) if below.waits else (state, [])
    own = {
        call_id: call
        for call_id, call in state.calls.items()
        if call.kind == CLIENT_TOOL and call_id not in state.requested_calls
    }
    state = msgspec.structs.replace(state, requested_calls=(*state.requested_calls, *own))
    return state, _request_events([*_to_requested_calls(own), *unrequested])


def _to_requested_calls(calls: dict[str, OpenCall]) -> list[RequestedCall]:
    return [
        RequestedCall(tool_call_id=call_id, tool_name=call.tool, args=_arguments_object(call.arguments))
        for call_id, call in calls.items()
    ]


def _request_events(calls: list[RequestedCall]) -> list[StreamEvent]:
    """Return the events that request calls from the client, each with its index in the request."""
    indexed = [msgspec.structs.replace(call, block_index=index) for index, call in enumerate(calls)]
    return [ToolRequest(tool_calls=indexed), finish("tool-calls")]


def _outcome_events(run_id: str, run: RunCompleted) -> list[StreamEvent]:
    if run.status == "completed":
        return [WorkerResult(worker_id=run_id, output=run.result, duration_ms=run.duration_ms), finish("stop")]
    message = run.error.message if run.error else f"the run has {run.status}"
    if run.status == "cancelled":
        message = run.error.message if run.error else "the run was cancelled"
        return [WorkerResult(worker_id=run_id, error=message, duration_ms=run.duration_ms), finish("cancelled")]
    retry_after = run.error.retry_after if run.error else None
    error = error_event(
        message,
        run.error.code if run.error else "run_failed",
        retryable=run.error is not None and run.error.retryable,
        retry_after=None if isinstance(retry_after, msgspec.UnsetType) else retry_after,
        hint=(run.error.hint or None) if run.error else None,
    )
    return [error, WorkerResult(worker_id=run_id, error=message, duration_ms=run.duration_ms), finish("error")]


def _question_event(run_id: str, call: ToolCall) -> Question:
    value: Any = call.input
    arguments = cast("dict[str, Any]", value) if isinstance(value, dict) else {"question": value or ""}
    options: Any = arguments.get("options")
    is_approval = call.awaits is not None and call.awaits.kind == APPROVAL
    return Question(
        execution_id=run_id,
        call_id=call.call_id,
        question=approval_question(arguments) if is_approval else str(arguments.get("question", "")),
        options=[str(option) for option in cast("list[Any]", options)] if isinstance(options, list) else None,
        waits=call.awaits is not None,
        until=call.awaits.until if call.awaits else None,
    )


def format_note(note: Note) -> str:
    """Return a program's note on one line: `retry 1 of 3: rate_limit_error 429, in 1 s`."""
    tries = f" {note.try_}{f' of {note.tries}' if note.tries else ''}" if note.try_ else ""
    limits = [f"{note.limit.window or note.limit.kind} {note.limit.status}"] if note.limit else []
    cause = [*limits, *(part for part in (note.code, str(note.status) if note.status else None) if part)]
    text = " ".join([*cause, *([f"({note.message})"] if note.message and cause else [note.message or ""])]).strip()
    delay = f", in {note.retry_after:g} s" if note.retry_after is not None else ""
    return f"{note.kind}{tries}{': ' if text else ''}{text}{delay}"


def _usage_events(model: str | None, usage: Usage | None, cost: Cost | None) -> list[StreamEvent]:
    if usage is None and cost is None:
        return []
    used = usage or Usage()
    return [
        UsageEvent(
            model=model,
            cost_usd=cost.usd if cost else None,
            input_tokens=used.input,
            output_tokens=used.output,
            cache_read_tokens=used.cache_read,
            cache_write_tokens=used.cache_write,
            reasoning_tokens=used.reasoning,
        )
    ]


def _block_id(event: Event, attempt: int) -> str:
    suffix = f"~{attempt}" if attempt > 1 else ""
    return f"{format_step_key(event.path, event.iteration)}{suffix}"


def _description(definition: Any) -> str | None:
    if not isinstance(definition, dict):
        return None
    value: Any = cast("dict[str, Any]", definition).get("description")
    return value if isinstance(value, str) else None


def entry_step(state: StreamState, item: Entry | Delta | SubRunCalls) -> tuple[StreamState, list[StreamEvent]]:
    """Apply `stream_step` to a log line that is not decoded yet. A line that cannot be decoded is skipped."""
    if isinstance(item, Delta | SubRunCalls):
        return stream_step(state, item)
    try:
        return stream_step(state, decode(item.raw))
    except InvalidEvent:
        return msgspec.structs.replace(state, seq=max(state.seq, item.seq)), []


def _is_result_of(entry: Entry, calls: Collection[str], runs: Collection[str]) -> bool:
    """Return True if a log line has the result of one of these calls or of one of these sub-runs."""
    if entry.type not in (ToolResult.event_type, CallCompleted.event_type):
        return False
    try:
        event = decode(entry.raw)
    except InvalidEvent:
        return False
    if isinstance(event.payload, ToolResult):
        return event.payload.call_id in calls
    return event.child_run_id in runs
