"""One execution as its caller sees it: one stream, however many requests and connections it takes."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any, Final
from urllib.parse import quote

import msgspec

from shopfloor.client.api import Api, encoding_error, error_from_response, read_body
from shopfloor.client.progress import Progress
from shopfloor.client.replay import ReconnectBackoff, follow_log, replay_log, retry_unreachable, with_seq
from shopfloor.client.sse import Frame, frames
from shopfloor.client.tools import CallResult, ToolHandlers, executed
from shopfloor.client.transport import ConnectError, run_not_found
from shopfloor.errors import InvalidInput, OutcomeUnknown, ServerUnreachable
from shopfloor.log import is_run_id
from shopfloor.views import (
    DONE,
    ClientToolRequest,
    ErrorEvent,
    Finish,
    RequestedCall,
    Start,
    StreamEvent,
    StreamState,
    ToolOutputAvailable,
    ToolOutputError,
    ToolRequest,
    UnknownEvent,
    WorkerResult,
    decode_event,
    finish,
    resume_stream,
    start_event,
    to_error_event,
)

ReceivedEvent = StreamEvent | UnknownEvent
_SSE: Final = "text/event-stream"


class StartRequest(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, tag="start"):
    """Asks for a run."""

    input: dict[str, Any]
    task: str | None = None
    owner: str | None = None
    channel_id: str | None = None
    channel_name: str | None = None
    idempotency_key: str | None = None
    detach: bool = False
    cwd: str | None = None


class ContinueRequest(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, tag="continue"):
    """Asks to go on, with results of calls that the run waits for."""

    execution_id: str
    tool_results: Sequence[CallResult]
    detach: bool = False


class ResumedRun(msgspec.Struct, frozen=True, kw_only=True):
    """Follows a run that is being resumed, from the event after `after` on."""

    execution_id: str
    after: int
    answered: frozenset[str] = frozenset()
    """The calls that have been answered, and whose results the run has not taken up yet."""
    detach: bool = False


class AnsweredCalls(msgspec.Struct, frozen=True):
    """Goes on with a run whose calls the caller has answered by other means."""

    calls: frozenset[str]


FirstSegment = StartRequest | ContinueRequest | ResumedRun
Segment = FirstSegment | AnsweredCalls
"""What begins a part of the execution; the caller sees one stream."""


class Execution:
    def __init__(self, api: Api, slug: str, first: FirstSegment, tools: ToolHandlers) -> None:
        self._api = api
        self._path = f"/api/agents/{_quoted(slug)}/execute"
        self._first = first
        self._tools = tools
        self._progress = Progress(None if isinstance(first, StartRequest) else first.execution_id)
        if isinstance(first, ResumedRun) and first.after:
            self._progress.advance_to(first.after)
        self._answered: set[str] = set()
        """Calls of the run that the caller has answered, and whose results are not told yet."""
        self._wanted: list[RequestedCall] = []
        """Calls that the run waits for."""
        self._ended = False

    @property
    def run_id(self) -> str | None:
        """The run, once it is known."""
        return self._progress.run_id

    def mark_answered(self, run_id: str, call_id: str) -> None:
        """Take in that the caller has answered a call: a stream that paused for it goes on."""
        if run_id == self.run_id:
            self._answered.add(call_id)

    async def events(self) -> AsyncGenerator[ReceivedEvent]:
        """Everything; the handlers are called, and the run gone on with, wherever it asks for them."""
        leg: Segment | None = self._first
        while leg is not None:
            last: Finish | None = None
            async with aclosing(self._told(leg)) as events:
                async for event in events:
                    if isinstance(event, Finish):
                        last = event
                    elif not isinstance(event, Start) or leg is self._first:
                        self._take(event)
                        yield event
            wanted, self._wanted = self._wanted, []
            ours = [call for call in wanted if call.tool_name in self._tools]
            leg = None
            if last is None or self.run_id is None:
                return
            if ours:
                leg = await self._continued(self.run_id, ours)
                continue
            if wanted:
                yield with_seq(ClientToolRequest(execution_id=self.run_id, tool_calls=wanted), self._progress.seq)
            leg = self._after_answers()
            if leg is None:
                yield last
                # The caller may have answered only now.
                leg = self._after_answers()

    def _take(self, event: ReceivedEvent) -> None:
        match event:
            case ToolRequest():
                self._wanted += event.tool_calls
            case ToolOutputAvailable() | ToolOutputError():
                self._answered.discard(event.tool_call_id)
            case WorkerResult() | ErrorEvent():
                self._ended = True
            case _:
                pass

    async def _continued(self, run_id: str, calls: list[RequestedCall]) -> ContinueRequest:
        results = await executed(self._tools, calls)
        return ContinueRequest(execution_id=run_id, tool_results=results, detach=self._first.detach)

    def _after_answers(self) -> AnsweredCalls | None:
        """How to go on with a run that paused for calls which the caller has answered since."""
        if self._ended or not self._answered:
            return None
        calls = frozenset(self._answered)
        self._answered.clear()
        return AnsweredCalls(calls)

    async def _told(self, leg: Segment) -> AsyncGenerator[ReceivedEvent]:
        """What a leg gives, up to its `finish`; what a cut takes away of it comes from the log."""
        patience = ReconnectBackoff()
        heard: ReceivedEvent | None = None
        while isinstance(leg, StartRequest | ContinueRequest):
            try:
                async with aclosing(self._asked(leg)) as events:
                    async for event in events:
                        heard = event
                        yield with_seq(event, self._progress.seq)
                return
            except ServerUnreachable as error:
                if isinstance(heard, Finish):
                    return
                if heard is not None and self.run_id is not None:
                    break
                if not _may_ask_again(leg, error):
                    raise
                await patience.wait(error)
        if isinstance(leg, ResumedRun):
            yield with_seq(start_event(leg.execution_id), leg.after)
        async with aclosing(self._rest(leg)) as events:
            async for event in events:
                yield event

    async def _asked(self, request: StartRequest | ContinueRequest) -> AsyncGenerator[ReceivedEvent]:
        finished = False
        if isinstance(request, ContinueRequest) and not is_run_id(request.execution_id):
            yield to_error_event(run_not_found(request.execution_id))
            return
        async with self._api.open_post(self._path, request) as answer:
            if not answer.content_type.startswith(_SSE):
                problem = error_from_response(answer, await read_body(answer))
                if isinstance(problem, ServerUnreachable):
                    raise problem
                yield to_error_event(problem)
                return
            async with aclosing(frames(answer.chunks)) as received:
                async for frame in received:
                    if frame.data == DONE:
                        return
                    event = self._noted(frame)
                    if event is not None:
                        finished = finished or isinstance(event, Finish)
                        yield event
            if not finished:
                raise ServerUnreachable("the stream broke off before its end", hint="ask for the run by its id")

    def _noted(self, frame: Frame) -> ReceivedEvent | None:
        event: ReceivedEvent | None = None
        if frame.data is not None:
            try:
                event = decode_event(frame.data)
            except msgspec.MsgspecError as error:
                raise ServerUnreachable(f"the server sent what is no event: {error}") from error
            self._progress.record(event)
        if frame.id is not None and frame.id.isdecimal():
            self._progress.advance_to(int(frame.id))
        return event

    async def _rest(self, leg: Segment) -> AsyncGenerator[StreamEvent]:
        progress = self._progress
        run_id = progress.run_id or ""

        async def load() -> StreamState:
            return progress.with_open_texts(await retry_unreachable(lambda: self._state(run_id, leg)))

        attach = not self._first.detach
        steps = follow_log(self._api, run_id, after=progress.seq or 0, load=load, attach=attach)
        async with aclosing(steps):
            async for state, before, events in steps:
                for event in events:
                    if isinstance(event, Finish):
                        progress.advance_to(state.seq)
                        yield with_seq(event, state.seq)
                        return
                    if not progress.was_delivered(event):
                        yield with_seq(event, state.seq if event is events[-1] else before)
        yield to_error_event(
            OutcomeUnknown(f"the log of run {run_id} ends without an outcome", hint="its host may be gone")
        )
        yield finish("error")

    async def _state(self, run_id: str, leg: Segment) -> StreamState:
        """The state of the stream where the log was last known to be told."""
        answered = _answered_by(leg)
        seq = self._progress.seq
        if seq:
            state = await replay_log(self._api, run_id, to=seq)
        elif answered:
            state = await replay_log(self._api, run_id, answered=answered)
        else:
            state = StreamState()
        # What the run waits for is asked for again where nobody has answered: this caller has not been told.
        return resume_stream(state, answered) if answered or isinstance(leg, ResumedRun) else state


def _answered_by(leg: Segment) -> frozenset[str]:
    match leg:
        case ContinueRequest():
            return frozenset(one.tool_call_id for one in leg.tool_results)
        case AnsweredCalls():
            return leg.calls
        case ResumedRun():
            return leg.answered
        case StartRequest():
            return frozenset()


def _quoted(slug: str) -> str:
    try:
        return quote(slug, safe="")
    except UnicodeEncodeError as error:
        raise encoding_error(error) from error
    except TypeError as error:
        raise InvalidInput(f"{slug!r} names no worker", hint="give its slug, e.g. `hello`") from error


def _may_ask_again(request: StartRequest | ContinueRequest, error: ServerUnreachable) -> bool:
    """Whether asking twice is the same as asking once; and nobody waits for a server that is not there at all."""
    if isinstance(request, ContinueRequest):
        return True
    return request.idempotency_key is not None and not isinstance(error.__cause__, ConnectError)
