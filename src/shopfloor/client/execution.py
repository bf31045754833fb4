"""One execution of a worker: a single stream for the caller, made from any number of requests and connections."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any, Final
from urllib.parse import quote

import msgspec

from shopfloor.client.api import Api, encoding_error, error_from_response, read_body, run_not_found
from shopfloor.client.resumable_stream import ReconnectBackoff, follow_log, replay_log, retry_unreachable, with_seq
from shopfloor.client.sse import Frame, frames
from shopfloor.client.tools import CallResult, ToolHandlers, executed
from shopfloor.client.transport import ConnectError
from shopfloor.errors import InvalidInput, OutcomeUnknown, ServerUnreachable
from shopfloor.log import ClientInfo, is_run_id
from shopfloor.views import (
    DONE,
    ClientToolRequest,
    ErrorEvent,
    Finish,
    ReasoningDelta,
    ReasoningEnd,
    ReasoningStart,
    RequestedCall,
    Start,
    StreamedBlock,
    StreamedInput,
    StreamEvent,
    StreamState,
    TextDelta,
    TextEnd,
    TextStart,
    ToolInputAvailable,
    ToolInputDelta,
    ToolInputStart,
    ToolOutputAvailable,
    ToolOutputError,
    ToolRequest,
    UnknownEvent,
    WorkerResult,
    decode_event,
    encode_event,
    finish,
    resume_stream,
    split_call_id,
    start_event,
    to_error_event,
)

_TEXT_ID = re.compile(r"(?P<key>(?P<message>.*):[0-9]+?)(?::r(?P<round>[0-9]+))?", re.DOTALL)


class Progress:
    """Records the events that a caller has received, and recognizes them when they are replayed from the log."""

    def __init__(self, run_id: str | None = None) -> None:
        self.run_id = run_id
        self.seq: int | None = None
        """The caller has everything up to this event of the log. None if unknown: the run was continued by its id."""
        self._since: Counter[bytes] = Counter()
        """Other events received after `seq`, with their number."""
        self._ended: dict[str, StreamedBlock] = {}
        """Texts that ended after `seq`."""
        self._open: dict[str, StreamedBlock] = {}
        self._inputs: dict[str, StreamedInput] = {}
        """The received part of inputs that are not complete, by the call's id."""
        self._complete_inputs: set[str] = set()
        """Calls whose input was completed after `seq`."""

    def advance_to(self, seq: int) -> None:
        """Record that the caller has everything up to this event of the log."""
        self.seq = seq
        self._since.clear()
        self._ended.clear()
        self._complete_inputs.clear()

    def record(self, event: StreamEvent | UnknownEvent) -> None:
        """Record an event that the caller receives."""
        match event:
            case Start(execution_id=run_id):
                self.run_id = run_id
            case TextStart(id=name) | ReasoningStart(id=name):
                kind = "text" if isinstance(event, TextStart) else "thinking"
                self._open[name] = StreamedBlock(id=name, kind=kind, step_key="", message_id=_message_id(name))
            case TextDelta(id=name, delta=text) | ReasoningDelta(id=name, delta=text):
                if name in self._open:
                    self._open[name] = self._open[name].with_text(text)
            case TextEnd(id=name) | ReasoningEnd(id=name):
                if name in self._open:
                    self._ended[name] = self._open.pop(name)
            case ToolInputStart(tool_call_id=call_id):
                self._inputs[call_id] = StreamedInput(broken=True)
            case ToolInputDelta(tool_call_id=call_id, input_text_delta=text):
                if call_id in self._inputs:
                    self._inputs[call_id] = self._inputs[call_id].with_text(text)
            case _:
                self._since[encode_event(event)] += 1
                if isinstance(event, ToolInputAvailable):
                    self._inputs.pop(event.tool_call_id, None)
                    self._complete_inputs.add(event.tool_call_id)

    def was_delivered(self, event: StreamEvent) -> bool:
        """Return whether the caller already has this event. Each received event matches once only."""
        match event:
            case TextStart(id=name) | ReasoningStart(id=name):
                return name in self._ended
            case TextDelta(id=name, delta=text) | ReasoningDelta(id=name, delta=text):
                # A text that broke off may differ from the final one, which the caller then gets as well.
                return name in self._ended and self._ended[name].is_prefix_of(text)
            case TextEnd(id=name) | ReasoningEnd(id=name):
                return self._ended.pop(name, None) is not None
            case ToolInputStart(tool_call_id=call_id) | ToolInputDelta(tool_call_id=call_id):
                return call_id in self._complete_inputs
            case _:
                raw = encode_event(event)
                known = self._since[raw] > 0
                self._since[raw] -= known
                return known

    def with_open_texts(self, state: StreamState) -> StreamState:
        """Return the state of a stream that has also sent the texts and inputs which the caller has in part."""
        open_, rounds = dict(state.texts.open), dict(state.texts.restarts)
        for name, block in self._open.items():
            if found := _TEXT_ID.fullmatch(name):
                open_[found["key"]] = block
                if found["round"]:
                    rounds[found["key"]] = int(found["round"]) - 1
        inputs = {**state.texts.inputs, **self._inputs}
        texts = msgspec.structs.replace(state.texts, open=open_, restarts=rounds, inputs=inputs)
        return msgspec.structs.replace(state, texts=texts)


def _message_id(name: str) -> str:
    found = _TEXT_ID.fullmatch(name)
    return found["message"] if found else name


ReceivedEvent = StreamEvent | UnknownEvent
_SSE: Final = "text/event-stream"


class StartRequest(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, tag="start"):
    """A request for a new run."""

    input: dict[str, Any]
    task: str | None = None
    owner: str | None = None
    channel_id: str | None = None
    channel_name: str | None = None
    idempotency_key: str | None = None
    detach: bool = False
    cwd: str | None = None
    client: ClientInfo | None = None
    approve: list[str] = []
    approve_timeout: float | None = None
    priority: int = 0
    labels: dict[str, str] = {}


class ContinueRequest(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, tag="continue"):
    """A request to continue a run, with results of calls that the run waits for."""

    execution_id: str
    tool_results: Sequence[CallResult]
    detach: bool = False


class ResumedRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run that is being resumed, and followed from the event after `after`."""

    execution_id: str
    after: int
    answered: frozenset[str] = frozenset()
    """The calls that have an answer which the run has not processed yet."""
    detach: bool = False


class AnsweredCalls(msgspec.Struct, frozen=True):
    """Calls of a waiting run that the caller has answered by a separate request."""

    calls: frozenset[str]


FirstSegment = StartRequest | ContinueRequest | ResumedRun
Segment = FirstSegment | AnsweredCalls
"""How a part of the execution starts. Each part ends with a `finish`; the caller sees one stream."""


class Execution:
    """Runs a worker, calls handlers for the client tools it requests, and reconnects when a connection breaks."""

    def __init__(self, api: Api, slug: str, first: FirstSegment, tools: ToolHandlers) -> None:
        self._api = api
        self._path = f"/api/agents/{_quote_slug(slug)}/execute"
        self._first = first
        self._tools = tools
        self._progress = Progress(None if isinstance(first, StartRequest) else first.execution_id)
        if isinstance(first, ResumedRun) and first.after:
            self._progress.advance_to(first.after)
        self._answered: set[str] = set()
        """Calls that the caller has answered, and whose results are not in the stream yet."""
        self._requested: list[RequestedCall] = []
        """Calls that the run waits for."""
        self._ended = False

    @property
    def run_id(self) -> str | None:
        """The run, once it is known."""
        return self._progress.run_id

    def mark_answered(self, run_id: str, call_id: str) -> None:
        """Record that the caller has answered a call, so that a stream that paused for it continues."""
        if run_id == self.run_id:
            self._answered.add(call_id)

    async def events(self) -> AsyncGenerator[ReceivedEvent]:
        """Yield all events of the execution. When the run requests client tools, call their handlers and continue."""
        segment: Segment | None = self._first
        while segment is not None:
            last: Finish | None = None
            async with aclosing(self._segment_events(segment)) as events:
                async for event in events:
                    if isinstance(event, Finish):
                        last = event
                    elif not isinstance(event, Start) or segment is self._first:
                        self._track(event)
                        yield event
            requested, self._requested = self._requested, []
            if requested and isinstance(segment, ResumedRun):
                # A fork starts with the answers of the run that it is based on.
                answered = await self._answered_in_log(segment.execution_id, requested)
                requested = [call for call in requested if call.tool_call_id not in answered]
                if answered and not requested:
                    segment = AnsweredCalls(answered)
                    continue
            handled = [call for call in requested if call.tool_name in self._tools]
            segment = None
            if last is None or self.run_id is None:
                return
            if handled:
                segment = await self._execute_calls(self.run_id, handled)
                continue
            if requested:
                yield with_seq(ClientToolRequest(execution_id=self.run_id, tool_calls=requested), self._progress.seq)
            segment = self._take_answered()
            if segment is None:
                yield last
                # The caller may have answered a call while it handled the `finish`.
                segment = self._take_answered()

    def _track(self, event: ReceivedEvent) -> None:
        match event:
            case ToolRequest():
                self._requested += event.tool_calls
            case ToolOutputAvailable() | ToolOutputError():
                self._answered.discard(event.tool_call_id)
            case WorkerResult() | ErrorEvent():
                self._ended = True
            case _:
                pass

    async def _answered_in_log(self, run_id: str, calls: list[RequestedCall]) -> frozenset[str]:
        """Return those of the run's own calls that have a result in its log."""
        state = await retry_unreachable(lambda: replay_log(self._api, run_id))
        own = {call.tool_call_id for call in calls if split_call_id(call.tool_call_id)[0] is None}
        return frozenset(own - state.calls.keys())

    async def _execute_calls(self, run_id: str, calls: list[RequestedCall]) -> ContinueRequest:
        results = await executed(self._tools, calls)
        return ContinueRequest(execution_id=run_id, tool_results=results, detach=self._first.detach)

    def _take_answered(self) -> AnsweredCalls | None:
        """Return the calls that the caller has answered since the run paused for them, or None."""
        if self._ended or not self._answered:
            return None
        calls = frozenset(self._answered)
        self._answered.clear()
        return AnsweredCalls(calls)

    async def _segment_events(self, segment: Segment) -> AsyncGenerator[ReceivedEvent]:
        """Yield the events of a segment up to its `finish`. If the connection breaks, read the rest from the log."""
        backoff = ReconnectBackoff()
        last: ReceivedEvent | None = None
        while isinstance(segment, StartRequest | ContinueRequest):
            try:
                async with aclosing(self._send(segment)) as events:
                    async for event in events:
                        last = event
                        yield with_seq(event, self._progress.seq)
                return
            except ServerUnreachable as error:
                if isinstance(last, Finish):
                    return
                if last is not None and self.run_id is not None:
                    break
                if not _may_retry(segment, error):
                    raise
                await backoff.wait(error)
        if isinstance(segment, ResumedRun):
            yield with_seq(start_event(segment.execution_id), segment.after)
        async with aclosing(self._follow(segment)) as events:
            async for event in events:
                yield event

    async def _send(self, request: StartRequest | ContinueRequest) -> AsyncGenerator[ReceivedEvent]:
        """Send a request and yield the events of its response. Raises `ServerUnreachable` if the stream breaks off."""
        is_finished = False
        if isinstance(request, ContinueRequest) and not is_run_id(request.execution_id):
            yield to_error_event(run_not_found(request.execution_id))
            return
        async with self._api.open_post(self._path, request) as response:
            if not response.content_type.startswith(_SSE):
                error = error_from_response(response, await read_body(response))
                if isinstance(error, ServerUnreachable):
                    raise error
                yield to_error_event(error)
                return
            async with aclosing(frames(response.chunks)) as received:
                async for frame in received:
                    if frame.data == DONE:
                        return
                    event = self._record_frame(frame)
                    if event is not None:
                        is_finished = is_finished or isinstance(event, Finish)
                        yield event
            if not is_finished:
                raise ServerUnreachable("the stream broke off before its end", hint="follow the run by its id")

    def _record_frame(self, frame: Frame) -> ReceivedEvent | None:
        event: ReceivedEvent | None = None
        if frame.data is not None:
            try:
                event = decode_event(frame.data)
            except msgspec.MsgspecError as error:
                raise ServerUnreachable(f"the server sent an invalid event: {error}") from error
            self._progress.record(event)
        if frame.id is not None and frame.id.isdecimal():
            self._progress.advance_to(int(frame.id))
        return event

    async def _follow(self, segment: Segment) -> AsyncGenerator[StreamEvent]:
        """Yield the events that the caller does not have yet, from the run's log, up to the next `finish`."""
        progress = self._progress
        run_id = progress.run_id or ""

        async def load() -> StreamState:
            return progress.with_open_texts(await retry_unreachable(lambda: self._replay(run_id, segment)))

        attach = not self._first.detach
        updates = follow_log(self._api, run_id, after=progress.seq or 0, load=load, attach=attach)
        async with aclosing(updates):
            async for state, before, events in updates:
                for event in events:
                    if isinstance(event, Finish):
                        progress.advance_to(state.seq)
                        yield with_seq(event, state.seq)
                        return
                    if not progress.was_delivered(event):
                        yield with_seq(event, state.seq if event is events[-1] else before)
        yield to_error_event(
            OutcomeUnknown(
                f"the log of run {run_id} ends without an outcome",
                hint="the process that executed the run may have died",
            )
        )
        yield finish("error")

    async def _replay(self, run_id: str, segment: Segment) -> StreamState:
        """Replay the log up to the last event that the caller surely has."""
        answered = _answered_calls(segment)
        seq = self._progress.seq
        if seq:
            state = await replay_log(self._api, run_id, to=seq)
        elif answered:
            state = await replay_log(self._api, run_id, answered=answered)
        else:
            state = StreamState()
        # Unanswered calls of a resumed run are requested again, because this caller has not seen their requests.
        return resume_stream(state, answered) if answered or isinstance(segment, ResumedRun) else state


def _answered_calls(segment: Segment) -> frozenset[str]:
    match segment:
        case ContinueRequest():
            return frozenset(result.tool_call_id for result in segment.tool_results)
        case AnsweredCalls():
            return segment.calls
        case ResumedRun():
            return segment.answered
        case StartRequest():
            return frozenset()


def _quote_slug(slug: str) -> str:
    try:
        return quote(slug, safe="")
    except UnicodeEncodeError as error:
        raise encoding_error(error) from error
    except TypeError as error:
        raise InvalidInput(f"{slug!r} is not the slug of a worker", hint="use a slug, e.g. `hello`") from error


def _may_retry(request: StartRequest | ContinueRequest, error: ServerUnreachable) -> bool:
    """Return whether sending the request twice has the same effect as once, and a server is there to retry with."""
    if isinstance(request, ContinueRequest):
        return True
    return request.idempotency_key is not None and not isinstance(error.__cause__, ConnectError)
