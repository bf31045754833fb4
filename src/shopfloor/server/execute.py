"""Executing a worker: a run is made, or gone on with, and told as it goes."""

from __future__ import annotations

import anyio
import msgspec
from starlette.requests import Request
from starlette.responses import Response

from shopfloor.decoding import json_decoder
from shopfloor.errors import InvalidInput, RunNotFound
from shopfloor.ports import LogReader, RunOrigin, Works
from shopfloor.server.answers import services_of, streams, works_of
from shopfloor.server.auditing import audit
from shopfloor.server.bodies import ContinueExecution, Execution, StartExecution, body_of
from shopfloor.server.operations import Operations
from shopfloor.server.parameters import ExecuteParams, found_run_id
from shopfloor.server.shapes import ExecutionProblem
from shopfloor.server.sse import EventStream
from shopfloor.server.telling import replayed, told, worker_of
from shopfloor.server.watchers import watchers_of
from shopfloor.views import StreamState, resumed

_EXECUTION = (
    "Each event as one `data`, a JSON object with a `type`: `start`, `worker-start`, `block-start`, `text-delta`, "
    "`tool-request`, `worker-result`, …; `finish` and then `[DONE]` when the run has ended or waits for somebody. "
    "An `id` says up to which event of the run's log all is told. Events of ours travel as `resource-update`. "
    "What is refused before anything runs is JSON, with the fitting status."
)
_decoder: msgspec.json.Decoder[Execution] = json_decoder(Execution)

operations = Operations()


@operations(
    "POST", "/api/agents/{slug:path}/execute", streams(_EXECUTION, ExecutionProblem), ExecuteParams, body=Execution
)
async def execute_worker(request: Request, params: ExecuteParams) -> Response:
    """Runs a worker, or goes on with a run that waits, and tells what happens. Who closes it early ends the run."""
    served, works = services_of(request), works_of(request)
    asked = await body_of(request, _decoder)
    if isinstance(asked, StartExecution):
        wait = None if asked.detach else served.client_wait_seconds
        run_id = await works.dispatch(asked.request(params.slug), RunOrigin(client_wait_seconds=wait))
        state = StreamState()
        await audit(request, "run.dispatched", run_id=run_id, detail=params.slug)
    else:
        run_id, state = asked.execution_id, await _continued(served.logs, works, params.slug, asked)
        await audit(request, "run.answered", run_id=run_id)
    watchers = watchers_of(request)
    stopping: anyio.Event = request.app.state.stopping
    return EventStream(
        told(served.store, served.logs, run_id, state, lambda: watchers.release(run_id)),
        heartbeat=served.heartbeat_seconds,
        stopping=stopping,
        within=watchers.watching(run_id, bound=not asked.detach),
    )


async def _continued(logs: LogReader, works: Works, slug: str, asked: ContinueExecution) -> StreamState:
    """Hands the results over; the state of the stream that asked for them."""
    run_id = found_run_id(asked.execution_id)
    if await worker_of(logs, run_id) != slug.rpartition("/")[2]:
        raise RunNotFound(f"{slug} has no execution {run_id}", hint="name the worker that was executed")
    results = [one.as_result() for one in asked.tool_results]
    answered = {one.call_id for one in results}
    if len(answered) < len(results):
        raise InvalidInput("toolResults: there is more than one result for a call")
    # Read before anything is handed over: what is told begins with what the results make happen.
    state = await replayed(logs, run_id, answered=answered)
    for one in asked.tool_results:
        known = state.calls.get(one.tool_call_id)
        if known is not None and one.tool_name not in (None, known.tool):
            raise InvalidInput(f"the call {one.tool_call_id!r} is of {known.tool}, not of {one.tool_name}")
    await works.answer(run_id, results)
    return resumed(state, answered, [one.tool_call_id for one in asked.tool_results if one.is_shown])
