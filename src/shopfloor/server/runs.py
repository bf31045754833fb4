"""Operations that read runs for the Workers tab: list, detail and timeline."""

from __future__ import annotations

import zlib
from typing import Literal, cast

import anyio.to_thread
from starlette.requests import Request
from starlette.responses import Response

from shopfloor.errors import InvalidParameter, RunNotFound
from shopfloor.ports import RunItem, RunPage, Store
from shopfloor.server.artifacts import find_artifacts
from shopfloor.server.based_on import find_later_runs
from shopfloor.server.limits import INTERRUPTED_PAGES, LIST_MAX, TRANSCRIPT_BYTES
from shopfloor.server.openapi import Operations
from shopfloor.server.parameters import CountParams, DetailParams, ListParams, TimelineParams
from shopfloor.server.pending_calls import find_pending_calls
from shopfloor.server.queue import build_worker_items, find_queue_reasons
from shopfloor.server.response_models import (
    WorkerCounts,
    WorkerDetail,
    WorkerEvent,
    WorkerEvents,
    WorkerList,
    build_worker_detail,
    statuses_for_filter,
    to_wire_status,
)
from shopfloor.server.responses import describe_json, get_services, json_response
from shopfloor.server.services import Services
from shopfloor.views import INTERRUPTED

_GZIP = 16 + zlib.MAX_WBITS

operations = Operations()


@operations("GET", "/api/agents/workers", describe_json(WorkerList, "A page of runs."), ListParams)
async def list_workers(request: Request, params: ListParams) -> Response:
    """List runs of one owner or of all, newest first unless `sort` says otherwise."""
    services = get_services(request)
    if params.status == INTERRUPTED:
        page = await _list_interrupted(services, params)
    else:
        page = await services.store.list_runs(
            params.run_filter(statuses=statuses_for_filter(params.status), since=params.since, until=params.until),
            limit=params.limit,
            offset=params.offset,
            cursor=params.cursor,
            order=params.sort,
        )
    return json_response(WorkerList(await build_worker_items(services, page.items), page.total, page.next))


async def _list_interrupted(services: Services, params: ListParams) -> RunPage:
    """Return the runs with the status `running` that no process executes: the store does not know which they are."""
    if params.cursor is not None:
        raise InvalidParameter("cursor: a list of interrupted runs has none", hint="use `offset`")
    running = params.run_filter(statuses=("running",), since=params.since, until=params.until)
    found: list[RunItem] = []
    cursor: str | None = None
    for _ in range(INTERRUPTED_PAGES):
        page = await services.store.list_runs(running, limit=LIST_MAX, cursor=cursor, order=params.sort)
        lost = await services.logs.without_host({item.row.id: item.row.host for item in page.items})
        found += [item for item in page.items if item.row.id in lost]
        cursor = page.next
        if cursor is None:
            break
    return RunPage(items=found[params.offset :][: params.limit], total=len(found))


@operations(
    "GET", "/api/agents/workers/counts", describe_json(WorkerCounts, "The numbers of runs by status."), CountParams
)
async def count_workers(request: Request, params: CountParams) -> Response:
    """Count the matching runs, by status."""
    wanted = params.run_filter(statuses=None, since=params.since, until=params.until)
    counts = await get_services(request).store.count_by_status(wanted)
    by_status = {to_wire_status(status): count for status, count in counts.items()}
    return json_response(WorkerCounts(all=sum(counts.values()), **by_status))


@operations("GET", "/api/agents/workers/detail", describe_json(WorkerDetail, "The run."), DetailParams)
async def worker_detail(request: Request, params: DetailParams) -> Response:
    """Return a run with its result, its transcript and the calls that it waits for."""
    services = get_services(request)
    run = await get_owned_run(services.store, params.worker_id, params.agent_id)
    artifacts = await find_artifacts(services.blobs, run)
    awaits = await find_pending_calls(services.store, services.logs, run)
    archive, transcript, omitted = None, None, None
    if params.transcript and run.row.is_ended and run.has_transcript:
        archive = await services.store.archive(params.worker_id)
    if archive is not None:
        # In a thread: decompressing many megabytes would block the event loop.
        transcript, omitted = await anyio.to_thread.run_sync(decompress_archive, archive)
    reasons = await find_queue_reasons(services, [run])
    detail = await build_worker_detail(
        run,
        services.logs,
        transcript=transcript,
        omitted=omitted,
        awaits=awaits,
        artifacts=artifacts,
        queue_reason=reasons.get(run.row.id),
        continued_by=await find_later_runs(services.store, params.worker_id),
    )
    return json_response(detail)


def decompress_archive(archive: bytes, limit_bytes: int = TRANSCRIPT_BYTES) -> tuple[bytes | None, str | None]:
    """Return the JSON of a transcript and None, or None and the reason why it is not available."""
    reader = zlib.decompressobj(_GZIP)
    try:
        data = reader.decompress(archive, limit_bytes + 1)
    except zlib.error as error:
        return None, f"the transcript cannot be decompressed: {error}; read the run's log instead"
    if len(data) > limit_bytes:
        return None, f"the transcript is larger than {limit_bytes:,} bytes; read the run's log instead"
    if not reader.eof:
        return None, "the stored transcript is incomplete; read the run's log instead"
    return data, None


@operations(
    "GET",
    "/api/agents/workers/events",
    describe_json(WorkerEvents, "Rows of the timeline, oldest first."),
    TimelineParams,
)
async def worker_events(request: Request, params: TimelineParams) -> Response:
    """Return a page of a run's timeline. It grows while the run is running."""
    store = get_services(request).store
    await get_owned_run(store, params.worker_id, params.agent_id)
    rows = await store.timeline(params.worker_id, limit=params.limit + 1, after=params.after)
    events = [
        WorkerEvent(row.id, cast("_EventType", row.event_type), row.data, row.created_at, row.seq)
        for row in rows[: params.limit]
    ]
    return json_response(WorkerEvents(events, more=len(rows) > params.limit))


_EventType = Literal["status", "tool_started", "tool_completed", "error"]


async def get_owned_run(store: Store, run_id: str, agent_id: str | None = None) -> RunItem:
    """Return a run. Raises `RunNotFound` if there is none, or if its owner is not `agent_id`."""
    run = await store.get_run(run_id)
    if run is None:
        raise RunNotFound(f"there is no run {run_id}", hint="`shopfloor list` lists the runs")
    if agent_id is not None and agent_id != run.row.agent_id:
        raise RunNotFound(f"{agent_id} has no run {run_id}", hint="omit agent_id, or send the run's owner")
    return run
