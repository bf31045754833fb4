"""The Workers tab's three addresses: list, detail, timeline."""

from __future__ import annotations

import zlib
from typing import Literal, cast

import anyio.to_thread
from starlette.requests import Request
from starlette.responses import Response

from shopfloor.errors import RunNotFound
from shopfloor.ports import RunFilter, RunItem, Store
from shopfloor.server.answers import answer, says, services_of
from shopfloor.server.awaiting import awaited
from shopfloor.server.limits import TRANSCRIPT_BYTES
from shopfloor.server.operations import Operations
from shopfloor.server.parameters import DetailParams, ListParams, TimelineParams, utc
from shopfloor.server.shapes import (
    WorkerDetail,
    WorkerEvent,
    WorkerEvents,
    WorkerList,
    detail_of,
    inside_statuses,
    item_of,
)

_GZIP = 16 + zlib.MAX_WBITS

operations = Operations()


@operations("GET", "/api/agents/workers", says(WorkerList, "A page of runs, newest first."), ListParams)
async def list_workers(request: Request, asked: ListParams) -> Response:
    """The runs of an owner, or of all of them, across all channels."""
    served = services_of(request)
    wanted = RunFilter(
        agent_id=asked.agent_id,
        statuses=inside_statuses(asked.status),
        worker_type=asked.worker_type,
        channel_id=asked.channel_id,
        parent_run_id=asked.parent,
        roots=asked.roots or None,
        name=asked.worker,
        started_after=utc("since", asked.since),
        started_before=utc("until", asked.until),
        search=_words(asked.q),
    )
    page = await served.store.list_runs(wanted, limit=asked.limit, offset=asked.offset, cursor=asked.cursor)
    return answer(WorkerList([await item_of(run, served.logs) for run in page.items], page.total, page.next))


def _words(said: str | None) -> str | None:
    """What to search for: an empty box searches for nothing, and a NUL is no part of a word."""
    return " ".join(said.replace("\0", " ").split()) or None if said else None


@operations("GET", "/api/agents/workers/detail", says(WorkerDetail, "The run."), DetailParams)
async def worker_detail(request: Request, asked: DetailParams) -> Response:
    """A run with its result and its transcript."""
    served = services_of(request)
    run = await owned_run(served.store, asked.worker_id, asked.agent_id)
    if not (asked.transcript and run.row.ended and run.has_transcript):
        return answer(await detail_of(run, served.logs, awaits=await awaited(served.store, served.logs, run)))
    packed = await served.store.archive(asked.worker_id)
    if packed is None:
        return answer(await detail_of(run, served.logs))
    # Unpacking many megabytes is not for the loop that everybody waits on.
    unpacked, omitted = await anyio.to_thread.run_sync(unpack, packed)
    return answer(await detail_of(run, served.logs, unpacked, omitted))


def unpack(packed: bytes, most: int = TRANSCRIPT_BYTES) -> tuple[bytes | None, str | None]:
    """The JSON of an archive, or why it cannot be given."""
    reader = zlib.decompressobj(_GZIP)
    try:
        data = reader.decompress(packed, most + 1)
    except zlib.error as error:
        return None, f"the archive cannot be unpacked: {error}; the run's log has all of it"
    if len(data) > most:
        return None, f"it is larger than {most:,} bytes; the run's log has all of it"
    if not reader.eof:
        return None, "the archive ends early; the run's log has all of it"
    return data, None


@operations(
    "GET", "/api/agents/workers/events", says(WorkerEvents, "Rows of the timeline, oldest first."), TimelineParams
)
async def worker_events(request: Request, asked: TimelineParams) -> Response:
    """The timeline of a run: also while it is running."""
    store = services_of(request).store
    await owned_run(store, asked.worker_id, asked.agent_id)
    rows = await store.timeline(asked.worker_id, limit=asked.limit + 1, after=asked.after)
    events = [
        WorkerEvent(row.id, cast("_EventType", row.event_type), row.data, row.created_at, row.seq)
        for row in rows[: asked.limit]
    ]
    return answer(WorkerEvents(events, more=len(rows) > asked.limit))


_EventType = Literal["status", "tool_started", "tool_completed", "error"]


async def owned_run(store: Store, run_id: str, agent_id: str | None = None) -> RunItem:
    """The run, where there is one and it is that owner's."""
    run = await store.get_run(run_id)
    if run is None:
        raise RunNotFound(f"there is no run {run_id}")
    if agent_id is not None and agent_id != run.row.agent_id:
        raise RunNotFound(f"{agent_id} has no run {run_id}", hint="leave agent_id out, or name its owner")
    return run
