"""The `execute` operation: start or continue a run, and stream its events.

The stream's events are made from the run's log and its deltas, the new text of messages that are still being generated.
"""

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
from shopfloor.server.client_tracker import get_client_tracker
from shopfloor.server.openapi import Operations
from shopfloor.server.parameters import ExecuteParams, require_run_id
from shopfloor.server.request_models import ContinueExecution, ExecutionRequest, StartExecution, decode_body
from shopfloor.server.response_models import ExecutionProblem
from shopfloor.server.responses import describe_stream, get_services, require_run_service
from shopfloor.server.run_tree import follow_tree
from shopfloor.server.sse import EventStream, Frames, closing, data_frame
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
    """Stream the events after `state`, up to the first `finish`. Calls `finished` before sending the `finish`."""
    yield data_frame(encode_event(start_event(run_id)), state.seq or None)
    async with closing(follow_tree(store, logs, run_id, after=state.seq, wait_for_writer=True)) as batches:
        async for batch in batches:
            frames: list[bytes] = []
            for update in batch:
                if isinstance(update, Reset):
                    # The log was truncated: continue from its new end with what is appended there.
                    state = await replay_stream_state(logs, run_id, to=update.last)
                    continue
                state, events = entry_step(state, update)
                if is_finished := _truncate_after_finish(events):
                    await finished()
                frames += _to_frames(events, update.seq if isinstance(update, Entry) else None)
                if is_finished:
                    yield b"".join([*frames, _DONE])
                    return
            yield b"".join(frames)
    await finished()
    lost = OutcomeUnknown(f"the log of run {run_id} ends without an outcome", hint="check whether the run was deleted")
    yield b"".join([*_to_frames([to_error_event(lost), finish("error")], None), _DONE])


async def replay_stream_state(
    logs: LogReader, run_id: str, *, to: int | None = None, answered: Collection[str] = ()
) -> StreamState:
    """Replay a run's log up to `to`, or up to the first result of the calls `answered`.

    The result of a call in a sub-run is not in this log. The replay then stops at the end of the direct sub-run that
    leads to it.
    """
    sub_runs = {run for call in answered if (run := split_call_id(call)[0]) is not None}
    children = {child for run in sub_runs if (child := await child_on_path_to(logs, run_id, run)) is not None}
    async with closing(logs.batches(run_id)) as batches:
        entries = (entry async for batch in batches for entry in batch)
        return await replay(entries, to=to, answered=answered, runs=children)


async def read_worker_name(logs: LogReader, run_id: str) -> str:
    """Return the name of the worker that a run executes. Raises RunNotFound if the run has no log."""
    first = await logs.page(run_id, limit=1)
    if not first:
        raise RunNotFound(f"there is no waiting run {run_id}")
    payload = decode(first[0].raw).payload
    return payload.name if isinstance(payload, RunStarted) else ""


def _truncate_after_finish(events: list[StreamEvent]) -> bool:
    """Drop the events after the first `finish`; return whether there is a `finish`."""
    for index, event in enumerate(events):
        if isinstance(event, Finish):
            del events[index + 1 :]
            return True
    return False


def _to_frames(events: list[StreamEvent], seq: int | None) -> list[bytes]:
    """Encode the events of one log entry. Only the last has the id: a client may resume after `seq` once it has all."""
    last = len(events) - 1
    return [data_frame(encode_event(event), seq if index == last else None) for index, event in enumerate(events)]


_EXECUTION = (
    "Each event as one `data`, a JSON object with a `type`: `start`, `worker-start`, `block-start`, `text-delta`, "
    "`tool-request`, `worker-result`, …; `finish` and then `[DONE]` when the run has ended or waits for an answer. "
    "An `id` is the `seq` of the log event up to which the stream is complete. Events specific to Shopfloor have the "
    "type `resource-update`. An error before the run starts is a JSON response with an error status."
)
_decoder: msgspec.json.Decoder[ExecutionRequest] = json_decoder(ExecutionRequest)

operations = Operations()


@operations(
    "POST",
    "/api/agents/{slug:path}/execute",
    describe_stream(_EXECUTION, ExecutionProblem),
    ExecuteParams,
    body=ExecutionRequest,
)
async def execute_worker(request: Request, params: ExecuteParams) -> Response:
    """Run a worker, or continue a run that waits, and stream its events.

    Closing the connection early cancels the run, unless `detach` is set.
    """
    services, run_service = get_services(request), require_run_service(request)
    body = await decode_body(request, _decoder)
    if isinstance(body, StartExecution):
        wait = None if body.detach else services.client_wait_seconds
        run_id = await run_service.dispatch(body.to_run_request(params.slug), RunOrigin(client_wait_seconds=wait))
        state = StreamState()
        await audit(request, "run.dispatched", run_id=run_id, detail=params.slug)
    else:
        run_id, state = body.execution_id, await _deliver_results(services.logs, run_service, params.slug, body)
        await audit(request, "run.answered", run_id=run_id)
    client_tracker = get_client_tracker(request)
    shutdown_event: anyio.Event = request.app.state.shutdown_event
    return EventStream(
        execution_frames(services.store, services.logs, run_id, state, lambda: client_tracker.unbind(run_id)),
        heartbeat_seconds=services.heartbeat_seconds,
        shutdown_event=shutdown_event,
        context=client_tracker.track_client(run_id, bound=not body.detach),
    )


async def _deliver_results(logs: LogReader, run_service: RunService, slug: str, body: ContinueExecution) -> StreamState:
    """Deliver the results to the run. Return the state of the stream that requested them."""
    run_id = require_run_id(body.execution_id)
    if await read_worker_name(logs, run_id) != slug.rpartition("/")[2]:
        raise RunNotFound(f"{slug} has no execution {run_id}", hint="use the slug of the worker that was executed")
    results = [result.to_call_result() for result in body.tool_results]
    answered = {result.call_id for result in results}
    if len(answered) < len(results):
        raise InvalidInput("toolResults: a call has more than one result")
    # Read the state before delivering the results, so that the stream starts with the results' effects.
    state = await replay_stream_state(logs, run_id, answered=answered)
    for result in body.tool_results:
        known = state.calls.get(result.tool_call_id)
        if known is not None and result.tool_name not in (None, known.tool):
            raise InvalidInput(
                f"toolResults: the call {result.tool_call_id!r} is a call of {known.tool}, not of {result.tool_name}"
            )
    await run_service.answer(run_id, results)
    return resume_stream(state, answered, [result.tool_call_id for result in body.tool_results if result.is_shown])
