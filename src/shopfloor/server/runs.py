"""The Workers tab's three addresses: list, detail, timeline."""

from __future__ import annotations

import zlib
from typing import Literal, cast

import anyio.to_thread
from starlette.requests import Request
from starlette.responses import Response

from shopfloor.errors import RunNotFound
from shopfloor.ports import RunFilter, RunItem, Store
from shopfloor.server.limits import TRANSCRIPT_BYTES
from shopfloor.server.openapi import Operations
from shopfloor.server.parameters import DetailParams, ListParams, TimelineParams, to_utc
from shopfloor.server.pending_calls import find_pending_calls
from shopfloor.server.response_models import (
    WorkerDetail,
    WorkerEvent,
    WorkerEvents,
    WorkerList,
    build_worker_detail,
    build_worker_item,
    statuses_for_filter,
)
from shopfloor.server.responses import answer, describe_json, get_services

_GZIP = 16 + zlib.MAX_WBITS

operations = Operations()


@operations("GET", "/api/agents/workers", describe_json(WorkerList, "A page of runs, newest first."), ListParams)
async def list_workers(request: Request, asked: ListParams) -> Response:
    """The runs of an owner, or of all of them, across all channels."""
    served = get_services(request)
    wanted = RunFilter(
        agent_id=asked.agent_id,
        statuses=statuses_for_filter(asked.status),
        worker_type=asked.worker_type,
        channel_id=asked.channel_id,
        parent_run_id=asked.parent,
        roots=asked.roots or None,
        name=asked.worker,
        started_after=to_utc("since", asked.since),
        started_before=to_utc("until", asked.until),
        search=_words(asked.q),
    )
    page = await served.store.list_runs(wanted, limit=asked.limit, offset=asked.offset, cursor=asked.cursor)
    return answer(WorkerList([await build_worker_item(run, served.logs) for run in page.items], page.total, page.next))


def _words(said: str | None) -> str | None:
    """What to search for: an empty box searches for nothing, and a NUL is no part of a word."""
    return " ".join(said.replace("\0", " ").split()) or None if said else None


@operations("GET", "/api/agents/workers/detail", describe_json(WorkerDetail, "The run."), DetailParams)
async def worker_detail(request: Request, asked: DetailParams) -> Response:
    """A run with its result and its transcript."""
    served = get_services(request)
    run = await get_owned_run(served.store, asked.worker_id, asked.agent_id)
    if not (asked.transcript and run.row.is_ended and run.has_transcript):
        return answer(
            await build_worker_detail(run, served.logs, awaits=await find_pending_calls(served.store, served.logs, run))
        )
    packed = await served.store.archive(asked.worker_id)
    if packed is None:
        return answer(await build_worker_detail(run, served.logs))
    # Unpacking many megabytes is not for the loop that everybody waits on.
    unpacked, omitted = await anyio.to_thread.run_sync(decompress_archive, packed)
    return answer(await build_worker_detail(run, served.logs, unpacked, omitted))


def decompress_archive(packed: bytes, limit_bytes: int = TRANSCRIPT_BYTES) -> tuple[bytes | None, str | None]:
    """The JSON of an archive, or why it cannot be given."""
    reader = zlib.decompressobj(_GZIP)
    try:
        data = reader.decompress(packed, limit_bytes + 1)
    except zlib.error as error:
        return None, f"the archive cannot be unpacked: {error}; the run's log has all of it"
    if len(data) > limit_bytes:
        return None, f"it is larger than {limit_bytes:,} bytes; the run's log has all of it"
    if not reader.eof:
        return None, "the archive ends early; the run's log has all of it"
    return data, None


@operations(
    "GET",
    "/api/agents/workers/events",
    describe_json(WorkerEvents, "Rows of the timeline, oldest first."),
    TimelineParams,
)
async def worker_events(request: Request, asked: TimelineParams) -> Response:
    """The timeline of a run: also while it is running."""
    store = get_services(request).store
    await get_owned_run(store, asked.worker_id, asked.agent_id)
    rows = await store.timeline(asked.worker_id, limit=asked.limit + 1, after=asked.after)
    events = [
        WorkerEvent(row.id, cast("_EventType", row.event_type), row.data, row.created_at, row.seq)
        for row in rows[: asked.limit]
    ]
    return answer(WorkerEvents(events, more=len(rows) > asked.limit))


_EventType = Literal["status", "tool_started", "tool_completed", "error"]


async def get_owned_run(store: Store, run_id: str, agent_id: str | None = None) -> RunItem:
    """The run, where there is one and it is that owner's."""
    run = await store.get_run(run_id)
    if run is None:
        raise RunNotFound(f"there is no run {run_id}")
    if agent_id is not None and agent_id != run.row.agent_id:
        raise RunNotFound(f"{agent_id} has no run {run_id}", hint="leave agent_id out, or name its owner")
    return run
