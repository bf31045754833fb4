"""A run as its client reads it: the log and what is being typed, folded into the events of a stream."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import Final

import anyio
import msgspec
from starlette.requests import Request
from starlette.responses import Response

from shopfloor.decoding import json_decoder
from shopfloor.errors import InvalidInput, OutcomeUnknown, RunNotFound
from shopfloor.log import Entry, Reset, RunStarted, decode
from shopfloor.ports import LogReader, RunOrigin, RunService, Store, child_on_path_to
from shopfloor.server.audit import audit
from shopfloor.server.openapi import Operations
from shopfloor.server.parameters import ExecuteParams, require_run_id
from shopfloor.server.request_models import ContinueExecution, ExecutionRequest, StartExecution, decode_body
from shopfloor.server.response_models import ExecutionProblem
from shopfloor.server.responses import get_services, require_run_service, streams
from shopfloor.server.run_tree import follow_tree
from shopfloor.server.sse import EventStream, Frames, closing, data_frame
from shopfloor.server.watchers import get_client_tracker
from shopfloor.views import (
    DONE,
    Finish,
    StreamEvent,
    StreamState,
    encode_event,
    entry_step,
    finish,
    replay,
    resume_stream,
    split_call_id,
    start_event,
    to_error_event,
)

_DONE: Final = data_frame(DONE.encode())


async def execution_frames(
    store: Store, logs: LogReader, run_id: str, state: StreamState, finished: Callable[[], Awaitable[None]]
) -> Frames:
    """What comes after `state`, up to the first `finish`. `finished` is called before that is sent."""
    yield data_frame(encode_event(start_event(run_id)), state.seq or None)
    async with closing(follow_tree(store, logs, run_id, after=state.seq, wait_for_writer=True)) as batches:
        async for batch in batches:
            frames: list[bytes] = []
            for one in batch:
                if isinstance(one, Reset):
                    # The log has lost its end: what is written there from now on is told from there on.
                    state = await replay_stream_state(logs, run_id, to=one.last)
                    continue
                state, events = entry_step(state, one)
                if over := _up_to_finish(events):
                    await finished()
                frames += _framed(events, one.seq if isinstance(one, Entry) else None)
                if over:
                    yield b"".join([*frames, _DONE])
                    return
            yield b"".join(frames)
    await finished()
    lost = OutcomeUnknown(f"the log of run {run_id} ends without an outcome", hint="was it deleted?")
    yield b"".join([*_framed([to_error_event(lost), finish("error")], None), _DONE])


async def replay_stream_state(
    logs: LogReader, run_id: str, *, to: int | None = None, answered: Collection[str] = ()
) -> StreamState:
    """Replay a run's log up to `to`, or up to the first result of the calls `answered`.

    The result of a call in a sub-run is not in this log; the end of the sub-run that leads there is.
    """
    below = {run for one in answered if (run := split_call_id(one)[0]) is not None}
    children = {child for run in below if (child := await child_on_path_to(logs, run_id, run)) is not None}
    async with closing(logs.batches(run_id)) as batches:
        entries = (entry async for batch in batches for entry in batch)
        return await replay(entries, to=to, answered=answered, runs=children)


async def read_worker_name(logs: LogReader, run_id: str) -> str:
    """The worker whose run this is."""
    first = await logs.page(run_id, limit=1)
    if not first:
        raise RunNotFound(f"there is no run {run_id} that waits for anything")
    payload = decode(first[0].raw).payload
    return payload.name if isinstance(payload, RunStarted) else ""


def _up_to_finish(events: list[StreamEvent]) -> bool:
    """Whether there is a `finish`; what would come after it is taken away."""
    for place, event in enumerate(events):
        if isinstance(event, Finish):
            del events[place + 1 :]
            return True
    return False


def _framed(events: list[StreamEvent], seq: int | None) -> list[bytes]:
    """The last has the id: only with it is all told that the log has up to there."""
    last = len(events) - 1
    return [data_frame(encode_event(event), seq if place == last else None) for place, event in enumerate(events)]


_EXECUTION = (
    "Each event as one `data`, a JSON object with a `type`: `start`, `worker-start`, `block-start`, `text-delta`, "
    "`tool-request`, `worker-result`, …; `finish` and then `[DONE]` when the run has ended or waits for somebody. "
    "An `id` says up to which event of the run's log all is told. Events of ours travel as `resource-update`. "
    "What is refused before anything runs is JSON, with the fitting status."
)
_decoder: msgspec.json.Decoder[ExecutionRequest] = json_decoder(ExecutionRequest)

operations = Operations()


@operations(
    "POST",
    "/api/agents/{slug:path}/execute",
    streams(_EXECUTION, ExecutionProblem),
    ExecuteParams,
    body=ExecutionRequest,
)
async def execute_worker(request: Request, params: ExecuteParams) -> Response:
    """Runs a worker, or goes on with a run that waits, and tells what happens. Who closes it early ends the run."""
    served, run_service = get_services(request), require_run_service(request)
    asked = await decode_body(request, _decoder)
    if isinstance(asked, StartExecution):
        wait = None if asked.detach else served.client_wait_seconds
        run_id = await run_service.dispatch(asked.request(params.slug), RunOrigin(client_wait_seconds=wait))
        state = StreamState()
        await audit(request, "run.dispatched", run_id=run_id, detail=params.slug)
    else:
        run_id, state = asked.execution_id, await _continued(served.logs, run_service, params.slug, asked)
        await audit(request, "run.answered", run_id=run_id)
    watchers = get_client_tracker(request)
    shutdown_event: anyio.Event = request.app.state.shutdown_event
    return EventStream(
        execution_frames(served.store, served.logs, run_id, state, lambda: watchers.unbind(run_id)),
        heartbeat_seconds=served.heartbeat_seconds,
        shutdown_event=shutdown_event,
        context=watchers.track_client(run_id, bound=not asked.detach),
    )


async def _continued(logs: LogReader, run_service: RunService, slug: str, asked: ContinueExecution) -> StreamState:
    """Hands the results over; the state of the stream that asked for them."""
    run_id = require_run_id(asked.execution_id)
    if await read_worker_name(logs, run_id) != slug.rpartition("/")[2]:
        raise RunNotFound(f"{slug} has no execution {run_id}", hint="name the worker that was executed")
    results = [one.to_call_result() for one in asked.tool_results]
    answered = {one.call_id for one in results}
    if len(answered) < len(results):
        raise InvalidInput("toolResults: there is more than one result for a call")
    # Read before anything is handed over: what is told begins with what the results make happen.
    state = await replay_stream_state(logs, run_id, answered=answered)
    for one in asked.tool_results:
        known = state.calls.get(one.tool_call_id)
        if known is not None and one.tool_name not in (None, known.tool):
            raise InvalidInput(f"the call {one.tool_call_id!r} is of {known.tool}, not of {one.tool_name}")
    await run_service.answer(run_id, results)
    return resume_stream(state, answered, [one.tool_call_id for one in asked.tool_results if one.is_shown])
