"""The stream of a run: its log, and what is being typed, as the events that a client reads."""

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
_LOG_QUESTION = "log_question"
_CALL_ID_SEPARATOR = ":"


class OpenCall(msgspec.Struct, frozen=True, omit_defaults=True):
    """A call that waits for somebody outside."""

    kind: str
    tool: str
    arguments: Any = None


class StreamState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The state of the fold. Bounded: see `TextState` and `WaitState`; keeps the newest thousand open calls."""

    seq: int = 0
    """The last event that was folded in. Those up to it are passed over if they come again."""
    started: bool = False
    ended: bool = False
    texts: TextState = TextState()
    waits: WaitState = WaitState()
    calls: dict[str, OpenCall] = {}
    requested_calls: tuple[str, ...] = ()
    """The open calls for which this stream has finished already: it asks for each once."""
    requested_sub_run_calls: tuple[str, ...] = ()
    """The open calls of sub-runs for which this stream has finished already."""
    shown: tuple[str, ...] = ()
    """The calls whose results the client has shown itself: they are not told again."""
    early_deltas: tuple[Delta, ...] = ()
    """Pieces that came before the events they follow."""


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
    """The first event of every stream, also of one that goes on in the middle."""
    return Start(execution_id=run_id)


async def replay(
    entries: AsyncIterable[Entry], *, to: int | None = None, answered: Collection[str] = (), runs: Collection[str] = ()
) -> StreamState:
    """Return the state of a stream that has told a log from its beginning.

    Stops after the event `to`, and before the first result of the calls `answered` or of the sub-runs `runs`.
    """
    state = StreamState()
    async for entry in entries:
        if (to is not None and entry.seq > to) or _answers(entry, answered, runs):
            break
        state, _ = entry_step(state, entry)
    return state


def resume_stream(state: StreamState, answered: Collection[str], shown: Collection[str] = ()) -> StreamState:
    """The state for a stream that goes on where another one finished, with results for the calls `answered`.

    Calls that got no result are asked for again, once the run waits for nothing but them. Results of the calls `shown`
    are not told: the client has done so.
    """
    requested_calls = tuple(one for one in state.calls if one in answered)
    return msgspec.structs.replace(state, requested_calls=requested_calls, shown=tuple(shown))


def stream_step(state: StreamState, one: Event | Delta | SubRunCalls) -> Step:
    if state.ended:
        return state, []
    if isinstance(one, Delta):
        return _delta(state, one)
    if isinstance(one, SubRunCalls):
        return _below(state, one)
    if one.seq <= state.seq:
        return state, []
    state = msgspec.structs.replace(state, seq=one.seq, waits=wait_state_step(state.waits, one))
    state, told = _event(state, one)
    state, requested_calls = _asking(state)
    state, caught = _caught_up(state)
    return state, [*told, *requested_calls, *caught]


def _delta(state: StreamState, delta: Delta) -> Step:
    if delta.after > state.seq:
        # It is told when the log has got there: a piece lost for want of room is one that never came.
        early_deltas = (*state.early_deltas, delta)[:STREAM_EARLY_DELTAS]
        return msgspec.structs.replace(state, early_deltas=early_deltas), []
    texts, told = stream_delta(state.texts, delta)
    return msgspec.structs.replace(state, texts=texts), told


def _caught_up(state: StreamState) -> Step:
    told: list[StreamEvent] = []
    due = [delta for delta in state.early_deltas if delta.after <= state.seq]
    if due:
        rest = tuple(delta for delta in state.early_deltas if delta.after > state.seq)
        state = msgspec.structs.replace(state, early_deltas=rest)
    for delta in due:
        state, more = _delta(state, delta)
        told += more
    return state, told


def _event(state: StreamState, event: Event) -> Step:
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
            texts, told = close_step(state.texts, format_step_key(event.path, event.iteration), event.seq)
            block_id = _block_id(event, step.try_)
            end = BlockEnd(block_id=block_id, block_name=step.name, block_type=step.kind, error=step.error)
            # With what its sub-agents spent: nobody else tells of that.
            spent = _usage(None, step.usage, step.cost) + _usage(None, step.sub_usage, step.sub_cost)
            spent = spent if step.kind == "agent" else []
            return msgspec.structs.replace(state, texts=texts), [*told, *spent, end]
        case AssistantMessage(note=note) if note is not None and note.kind not in ("ready", "left"):
            return state, [
                Notice(kind=note.kind, message=format_note(note), code=note.code, retry_after=note.retry_after)
            ]
        case AssistantMessage() as message:
            texts, told = stream_message(state.texts, event, message)
            # What an agent's session spends is told at its end, once.
            spent = _usage(message.model, message.usage, message.cost) if message.session_id is None else []
            return msgspec.structs.replace(state, texts=texts), [*told, *spent]
        case ToolCall() as call:
            return _called(state, event, call)
        case ToolResult() as result:
            return _answered(state, result)
        case RunCompleted() as run:
            _, told = close_texts(state.texts)
            return StreamState(seq=event.seq, started=True, ended=True), [*told, *_outcome(event.run_id, run)]
        case _:
            return state, []


def _called(state: StreamState, event: Event, call: ToolCall) -> Step:
    if call.awaits is not None and call.awaits.kind == RATE_LIMIT:
        return state, [Notice(kind="limit", message=f"waits for a rate limit, until {call.awaits.until}")]
    if call.awaits is not None and call.awaits.kind == DEFINITION_CHANGED:
        # Nobody who follows can give what it waits for: the stream is over for now.
        notice = Notice(kind=DEFINITION_CHANGED, message=definition_wait_message(call.input))
        return state, [notice, finish("waiting")]
    texts, told = stream_call_input(state.texts, call.call_id, call.name, call.input)
    state = msgspec.structs.replace(state, texts=texts)
    if call.awaits is not None:
        opened = OpenCall(call.awaits.kind, call.name, call.input if call.awaits.kind == CLIENT_TOOL else None)
        state = msgspec.structs.replace(state, calls=keep_newest({**state.calls, call.call_id: opened}))
        if call.awaits.kind == QUESTION:
            told = [*told, _question(event.run_id, call)]
    elif call.name == _LOG_QUESTION:
        told = [*told, _question(event.run_id, call)]
    return state, told


def _answered(state: StreamState, result: ToolResult) -> Step:
    if result.name in (RATE_LIMIT, DEFINITION_CHANGED) and result.fidelity == "router":
        return state, []
    state = msgspec.structs.replace(
        state,
        texts=close_call(state.texts, result.call_id),
        calls={one: call for one, call in state.calls.items() if one != result.call_id},
        requested_calls=tuple(one for one in state.requested_calls if one != result.call_id),
    )
    if result.call_id in state.shown:
        return state, []
    if result.error is not None:
        return state, [ToolOutputError(tool_call_id=result.call_id, tool_name=result.name, error=result.error)]
    return state, [ToolOutputAvailable(tool_call_id=result.call_id, tool_name=result.name, output=result.output)]


def _asking(state: StreamState, *, settled: bool = False) -> Step:
    """Ask whoever is outside for what the run waits for, and finish the stream for now.

    Client tools are requested as soon as the run itself waits. For a question the stream is over only once nothing in
    the run's tree works any more (`settled`), which the log of the run alone does not tell.
    """
    fresh = {one: call for one, call in state.calls.items() if one not in state.requested_calls}
    if not fresh or not state.waits.is_waiting or state.waits.awaits_definition:
        return state, []
    wanted = {one: call for one, call in fresh.items() if call.kind == CLIENT_TOOL}
    if wanted:
        state = msgspec.structs.replace(state, requested_calls=(*state.requested_calls, *wanted))
        return state, _request(_requested(wanted))
    if any(state.calls[one].kind == CLIENT_TOOL for one in state.requested_calls):
        # Their results are on the way; only then is it known whether the run waits for the others alone.
        return state, []
    if not settled:
        return state, []
    state = msgspec.structs.replace(state, requested_calls=tuple(state.calls))
    reason: FinishReason = "question" if any(call.kind == QUESTION for call in fresh.values()) else "waiting"
    return state, [finish(reason)]


def _args(arguments: Any) -> dict[str, Any]:
    """The arguments of a call as an object, which is what clients take: a value that is none is its `input`."""
    if arguments is None:
        return {}
    return cast("dict[str, Any]", arguments) if isinstance(arguments, dict) else {"input": arguments}


def _below(state: StreamState, below: SubRunCalls) -> Step:
    """Request the client tools of sub-runs, each once, with those of the run itself; else finish for a question."""
    fresh = [call for call in below.tool_calls if call.tool_call_id not in state.requested_sub_run_calls]
    # Only open calls are listed: those that are listed no more have been answered.
    state = msgspec.structs.replace(
        state, requested_sub_run_calls=tuple(call.tool_call_id for call in below.tool_calls)
    )
    if not fresh:
        return _asking(state, settled=True) if below.waits else (state, [])
    own = {
        one: call for one, call in state.calls.items() if call.kind == CLIENT_TOOL and one not in state.requested_calls
    }
    state = msgspec.structs.replace(state, requested_calls=(*state.requested_calls, *own))
    return state, _request([*_requested(own), *fresh])


def _requested(calls: dict[str, OpenCall]) -> list[RequestedCall]:
    return [
        RequestedCall(tool_call_id=one, tool_name=call.tool, args=_args(call.arguments)) for one, call in calls.items()
    ]


def _request(calls: list[RequestedCall]) -> list[StreamEvent]:
    """Request calls from the client, each with its place in the request."""
    placed = [msgspec.structs.replace(call, block_index=place) for place, call in enumerate(calls)]
    return [ToolRequest(tool_calls=placed), finish("tool-calls")]


def _outcome(run_id: str, run: RunCompleted) -> list[StreamEvent]:
    if run.status == "completed":
        return [WorkerResult(worker_id=run_id, output=run.result), finish("stop")]
    message = run.error.message if run.error else f"the run has {run.status}"
    if run.status == "cancelled":
        message = run.error.message if run.error else "the run was cancelled"
        return [WorkerResult(worker_id=run_id, error=message), finish("cancelled")]
    after = run.error.retry_after if run.error else None
    error = error_event(
        message,
        run.error.code if run.error else "run_failed",
        retryable=run.error is not None and run.error.retryable,
        retry_after=None if isinstance(after, msgspec.UnsetType) else after,
        hint=(run.error.hint or None) if run.error else None,
    )
    return [error, WorkerResult(worker_id=run_id, error=message), finish("error")]


def _question(run_id: str, call: ToolCall) -> Question:
    said: Any = call.input
    arguments = cast("dict[str, Any]", said) if isinstance(said, dict) else {"question": said or ""}
    options: Any = arguments.get("options")
    return Question(
        execution_id=run_id,
        call_id=call.call_id,
        question=str(arguments.get("question", "")),
        options=[str(one) for one in cast("list[Any]", options)] if isinstance(options, list) else None,
        waits=call.awaits is not None,
        until=call.awaits.until if call.awaits else None,
    )


def format_note(note: Note) -> str:
    """What a program noted, on one line: `retry 1 of 3: rate_limit_error 429, in 1 s`."""
    times = f" {note.try_}{f' of {note.tries}' if note.tries else ''}" if note.try_ else ""
    limit = note.limit
    about = [f"{limit.window or limit.kind} {limit.status}"] if limit else []
    why = [*about, *(part for part in (note.code, str(note.status) if note.status else None) if part)]
    words = " ".join([*why, *([f"({note.message})"] if note.message and why else [note.message or ""])]).strip()
    later = f", in {note.retry_after:g} s" if note.retry_after is not None else ""
    return f"{note.kind}{times}{': ' if words else ''}{words}{later}"


def _usage(model: str | None, usage: Usage | None, cost: Cost | None) -> list[StreamEvent]:
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
    again = f"~{attempt}" if attempt > 1 else ""
    return f"{format_step_key(event.path, event.iteration)}{again}"


def _description(definition: Any) -> str | None:
    if not isinstance(definition, dict):
        return None
    said: Any = cast("dict[str, Any]", definition).get("description")
    return said if isinstance(said, str) else None


def entry_step(state: StreamState, one: Entry | Delta | SubRunCalls) -> tuple[StreamState, list[StreamEvent]]:
    """The same of a line that is not decoded yet. One that cannot be read is passed over: the log has it."""
    if isinstance(one, Delta | SubRunCalls):
        return stream_step(state, one)
    try:
        return stream_step(state, decode(one.raw))
    except InvalidEvent:
        return msgspec.structs.replace(state, seq=max(state.seq, one.seq)), []


def _answers(entry: Entry, calls: Collection[str], runs: Collection[str]) -> bool:
    """Whether a line has the result of one of these calls, or of one of these sub-runs."""
    if entry.type not in (ToolResult.event_type, CallCompleted.event_type):
        return False
    try:
        event = decode(entry.raw)
    except InvalidEvent:
        return False
    if isinstance(event.payload, ToolResult):
        return event.payload.call_id in calls
    return event.child_run_id in runs
