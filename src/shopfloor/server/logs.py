"""A run's log: in pages, as a file, searched, and as spans of time."""

from __future__ import annotations

from typing import Any, cast

import anyio.to_thread
import msgspec
from fastapi import Request
from starlette.responses import Response, StreamingResponse

from shopfloor.errors import RunNotFound
from shopfloor.log import Entry
from shopfloor.ports import LogReader
from shopfloor.server.answers import Served, answer, gives, says
from shopfloor.server.auditing import audit
from shopfloor.server.later import later_results
from shopfloor.server.limits import FIND_DEFAULT, FIND_EVENTS, LOG_DEFAULT
from shopfloor.server.parameters import (
    AfterSeq,
    BeforeSeq,
    Brief,
    EventLimit,
    HitLimit,
    RunId,
    SearchedText,
    api_router,
)
from shopfloor.server.shapes import FoundEvents, LogPage, SpanList
from shopfloor.server.spans import spans_of
from shopfloor.server.sse import closing
from shopfloor.views import Finder, Found, Spans, brief

_LINES = "application/x-ndjson"
Events = list[dict[str, Any]]

router = api_router("/api")


@router.get("/runs/{run_id}/log", responses=says(LogPage, "Events, in order."))
async def run_log(
    run_id: RunId,
    served: Served,
    *,
    after: AfterSeq = 0,
    before: BeforeSeq = None,
    limit: EventLimit = LOG_DEFAULT,
    brief: Brief = False,
) -> Response:
    """A page of a run's log, as it was written, or briefly."""
    # One more than asked for tells whether there is more.
    entries = await served.logs.page(run_id, after=after, before=before, limit=limit + 1)
    if entries is None:
        raise RunNotFound(f"there is no log of a run {run_id}")
    upwards = before is not None and not after
    kept = entries[-limit:] if upwards else entries[:limit]
    more = len(entries) > limit
    if not brief:
        return answer(LogPage(_raw(kept), more))
    later = await later_results(served.logs, run_id, kept)
    # Cutting many megabytes is not for the loop that everybody waits on.
    return answer(await anyio.to_thread.run_sync(lambda: LogPage(_brief(kept), more, _brief(later))))


def _raw(entries: list[Entry]) -> Events:
    return cast("Events", [msgspec.Raw(entry.raw) for entry in entries])


def _brief(entries: list[Entry]) -> Events:
    return cast("Events", [msgspec.Raw(brief(entry.raw)) for entry in entries])


@router.get(
    "/runs/{run_id}/log.jsonl",
    response_class=Response,
    responses=gives(_LINES, "An event on each line."),
)
async def download_log(request: Request, run_id: RunId, served: Served) -> Response:
    """A run's log as a file: its bytes as they are, and as many as there are now."""
    copy = await served.logs.copy(run_id)
    if copy is None:
        raise RunNotFound(f"there is no log of a run {run_id}")
    audit(request, "run.exported", run_id=run_id)
    headers = {
        "Content-Disposition": f'attachment; filename="{run_id}.jsonl"',
        "Content-Length": str(copy.size),
    }
    return StreamingResponse(copy.pieces(), headers=headers, media_type=_LINES)


@router.get("/runs/{run_id}/find", responses=says(FoundEvents, "The events in which the text stands, in order."))
async def find_in_log(
    run_id: RunId, served: Served, q: SearchedText, after: AfterSeq = 0, limit: HitLimit = FIND_DEFAULT
) -> Response:
    """Finds a text in the values of a run's events. A long log is searched in several goes."""
    return answer(await _found(served.logs, run_id, Finder(q), after, limit))


async def _found(logs: LogReader, run_id: str, finder: Finder, after: int, limit: int) -> FoundEvents:
    hits: list[Found] = []
    left, place = FIND_EVENTS, after
    async with closing(logs.batches(run_id, after=after)) as batches:
        async for batch in batches:
            if not left or len(hits) == limit:
                return FoundEvents(hits, more=True, searched_to=place)
            entries = batch[:left]
            place = await anyio.to_thread.run_sync(_search, finder, entries, hits, limit)
            left -= len(entries)
            if place < batch[-1].seq:
                return FoundEvents(hits, more=True, searched_to=place)
    return FoundEvents(hits, more=False, searched_to=place)


def _search(finder: Finder, entries: list[Entry], hits: list[Found], limit: int) -> int:
    """Adds what is found to the hits; the `seq` of the last event that was looked at."""
    for entry in entries:
        if found := finder.find(entry):
            hits.append(found)
            if len(hits) == limit:
                return entry.seq
    return entries[-1].seq


@router.get("/runs/{run_id}/spans", responses=says(SpanList, "The spans of the run."))
async def run_spans(request: Request, run_id: RunId, served: Served) -> Response:
    """When the steps, tool calls and sub-runs of a run began and ended; of very many, neighbours as one."""
    try:
        state = await spans_of(request).state(run_id)
    except RunNotFound:
        run = await served.store.get_run(run_id)
        if run is None or run.row.status != "queued":
            raise
        # It has not begun: there is nothing to tell yet.
        state = Spans()
    return answer(
        SpanList(
            spans=state.spans,
            last_seq=state.last_seq,
            started_at=state.started_at,
            ended_at=state.ended_at,
        )
    )
