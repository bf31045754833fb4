"""One execution as its caller sees it: one stream, however many requests and connections it takes."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any, Final
from urllib.parse import quote

import httpx
import msgspec

from shopfloor.client.api import Api, no_text, problem_of
from shopfloor.client.following import Patience, followed, patiently, replayed
from shopfloor.client.progress import Progress
from shopfloor.client.sse import Frame, frames
from shopfloor.client.tools import CallResult, ToolHandlers, executed
from shopfloor.errors import InvalidInput, OutcomeUnknown, ServerUnreachable
from shopfloor.views import (
    DONE,
    ClientToolRequest,
    Finish,
    RequestedCall,
    Start,
    StreamEvent,
    StreamState,
    ToolRequest,
    UnknownEvent,
    decode_event,
    event_of,
    finish,
    resumed,
)

Received = StreamEvent | UnknownEvent
_SSE: Final = "text/event-stream"


class Begin(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, tag="start"):
    """Asks for a run."""

    input: dict[str, Any]
    task: str | None = None
    owner: str | None = None
    channel_id: str | None = None
    channel_name: str | None = None
    idempotency_key: str | None = None
    detach: bool = False
    cwd: str | None = None


class Continue(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, tag="continue"):
    """Asks to go on, with results of calls that the run waits for."""

    execution_id: str
    tool_results: Sequence[CallResult]
    detach: bool = False


class Execution:
    def __init__(self, api: Api, slug: str, first: Begin | Continue, tools: ToolHandlers) -> None:
        self._api = api
        self._path = f"/api/agents/{_quoted(slug)}/execute"
        self._first = first
        self._tools = tools
        self._progress = Progress(first.execution_id if isinstance(first, Continue) else None)

    @property
    def run_id(self) -> str | None:
        """The run, once it is known."""
        return self._progress.run_id

    async def events(self) -> AsyncGenerator[Received]:
        """Everything; the handlers are called, and the run gone on with, wherever it asks for them."""
        request: Begin | Continue | None = self._first
        while request is not None:
            wanted: list[RequestedCall] = []
            last: Finish | None = None
            async with aclosing(self._told(request)) as events:
                async for event in events:
                    if isinstance(event, Finish):
                        last = event
                    elif not isinstance(event, Start) or request is self._first:
                        wanted += event.tool_calls if isinstance(event, ToolRequest) else []
                        yield event
            request = None
            if last is not None and last.reason == "tool-calls" and self.run_id is not None:
                ours = [call for call in wanted if call.tool_name in self._tools]
                if ours:
                    request = await self._continued(self.run_id, ours)
                    continue
                yield ClientToolRequest(execution_id=self.run_id, tool_calls=wanted)
            if last is not None:
                yield last

    async def _continued(self, run_id: str, calls: list[RequestedCall]) -> Continue:
        results = await executed(self._tools, calls)
        return Continue(execution_id=run_id, tool_results=results, detach=self._first.detach)

    async def _told(self, request: Begin | Continue) -> AsyncGenerator[Received]:
        """What a request is answered with, up to its `finish`; what a cut takes away of it comes from the log."""
        patience = Patience()
        heard: Received | None = None
        while True:
            try:
                async with aclosing(self._asked(request)) as events:
                    async for event in events:
                        heard = event
                        yield event
                return
            except ServerUnreachable as error:
                if isinstance(heard, Finish):
                    return
                if heard is not None and self.run_id is not None:
                    break
                if not _may_ask_again(request, error):
                    raise
                await patience.wait(error)
        async with aclosing(self._rest(request)) as events:
            async for event in events:
                yield event

    async def _asked(self, request: Begin | Continue) -> AsyncGenerator[Received]:
        finished = False
        async with self._api.posted(self._path, request) as answer:
            if not answer.headers.get("content-type", "").startswith(_SSE):
                await answer.aread()
                problem = problem_of(answer)
                if isinstance(problem, ServerUnreachable):
                    raise problem
                yield event_of(problem)
                return
            async with aclosing(frames(answer.aiter_bytes())) as received:
                async for frame in received:
                    if frame.data == DONE:
                        return
                    event = self._noted(frame)
                    if event is not None:
                        finished = finished or isinstance(event, Finish)
                        yield event
            if not finished:
                raise ServerUnreachable("the stream broke off before its end", hint="ask for the run by its id")

    def _noted(self, frame: Frame) -> Received | None:
        event: Received | None = None
        if frame.data is not None:
            try:
                event = decode_event(frame.data)
            except msgspec.MsgspecError as error:
                raise ServerUnreachable(f"the server sent what is no event: {error}") from error
            self._progress.note(event)
        if frame.id is not None and frame.id.isdecimal():
            self._progress.reached(int(frame.id))
        return event

    async def _rest(self, request: Begin | Continue) -> AsyncGenerator[StreamEvent]:
        progress = self._progress
        run_id = progress.run_id or ""
        state = progress.seeded(await patiently(lambda: self._state(run_id, request)))
        async with aclosing(followed(self._api, run_id, state)) as steps:
            async for state, events in steps:
                for event in events:
                    if isinstance(event, Finish):
                        progress.reached(state.seq)
                        yield event
                        return
                    if not progress.had(event):
                        yield event
        yield event_of(OutcomeUnknown(f"the log of run {run_id} ends without an outcome", hint="its host may be gone"))
        yield finish("error")

    async def _state(self, run_id: str, request: Begin | Continue) -> StreamState:
        """The state of the stream where the log was last known to be told."""
        answered = {one.tool_call_id for one in request.tool_results} if isinstance(request, Continue) else set[str]()
        seq = self._progress.seq
        if seq:
            state = await replayed(self._api, run_id, to=seq)
        elif answered:
            state = await replayed(self._api, run_id, answered=answered)
        else:
            state = StreamState()
        return resumed(state, answered) if answered else state


def _quoted(slug: str) -> str:
    try:
        return quote(slug, safe="")
    except UnicodeEncodeError as error:
        raise no_text(error) from error
    except TypeError as error:
        raise InvalidInput(f"{slug!r} names no worker", hint="give its slug, e.g. `hello`") from error


def _may_ask_again(request: Begin | Continue, error: ServerUnreachable) -> bool:
    """Whether asking twice is the same as asking once; and nobody waits for a server that is not there at all."""
    if isinstance(request, Continue):
        return True
    return request.idempotency_key is not None and not isinstance(error.__cause__, httpx.ConnectError)
