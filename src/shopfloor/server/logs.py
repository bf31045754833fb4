"""A run's log: in pages, as a file, searched, and as spans of time."""

from __future__ import annotations

from typing import Any, cast

import anyio.to_thread
import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from shopfloor.errors import RunNotFound
from shopfloor.log import Entry
from shopfloor.ports import LogReader
from shopfloor.server.audit import audit
from shopfloor.server.limits import FIND_EVENTS
from shopfloor.server.openapi import Operations
from shopfloor.server.parameters import FindParams, LogParams, RunParams
from shopfloor.server.pending_calls import find_results_after_page
from shopfloor.server.response_models import FoundEvents, LogPage, SpanList
from shopfloor.server.responses import answer, describe_bytes, describe_json, get_services
from shopfloor.server.run_tree import get_span_cache
from shopfloor.server.sse import closing
from shopfloor.views import LogHit, LogSearcher, Spans, truncate_event

LOG_MEDIA_TYPE = "application/x-ndjson"
Events = list[dict[str, Any]]

operations = Operations()


@operations("GET", "/api/runs/{run_id}/log", describe_json(LogPage, "Events, in order."), LogParams)
async def run_log(request: Request, asked: LogParams) -> Response:
    """A page of a run's log, as it was written, or briefly."""
    logs = get_services(request).logs
    # One more than asked for tells whether there is more.
    entries = await logs.page(asked.run_id, after=asked.after, before=asked.before, limit=asked.limit + 1)
    if entries is None:
        raise RunNotFound(f"there is no log of a run {asked.run_id}")
    upwards = asked.before is not None and not asked.after
    kept = entries[-asked.limit :] if upwards else entries[: asked.limit]
    more = len(entries) > asked.limit
    if not asked.brief:
        return answer(LogPage(_raw(kept), more))
    later = await find_results_after_page(logs, asked.run_id, kept)
    # Cutting many megabytes is not for the loop that everybody waits on.
    return answer(await anyio.to_thread.run_sync(lambda: LogPage(_brief(kept), more, _brief(later))))


def _raw(entries: list[Entry]) -> Events:
    return cast("Events", [msgspec.Raw(entry.raw) for entry in entries])


def _brief(entries: list[Entry]) -> Events:
    return cast("Events", [msgspec.Raw(truncate_event(entry.raw)) for entry in entries])


@operations("GET", "/api/runs/{run_id}/log.jsonl", describe_bytes(LOG_MEDIA_TYPE, "An event on each line."), RunParams)
async def download_log(request: Request, asked: RunParams) -> Response:
    """A run's log as a file: its bytes as they are, and as many as there are now."""
    copy = await get_services(request).logs.copy(asked.run_id)
    if copy is None:
        raise RunNotFound(f"there is no log of a run {asked.run_id}")
    await audit(request, "run.exported", run_id=asked.run_id)
    headers = {
        "Content-Disposition": f'attachment; filename="{asked.run_id}.jsonl"',
        "Content-Length": str(copy.size),
    }
    return StreamingResponse(copy.pieces(), headers=headers, media_type=LOG_MEDIA_TYPE)


@operations(
    "GET",
    "/api/runs/{run_id}/find",
    describe_json(FoundEvents, "The events in which the text stands, in order."),
    FindParams,
)
async def find_in_log(request: Request, asked: FindParams) -> Response:
    """Finds a text in the values of a run's events. A long log is searched in several goes."""
    logs = get_services(request).logs
    return answer(await _found(logs, asked.run_id, LogSearcher(asked.q), asked.after, asked.limit))


async def _found(logs: LogReader, run_id: str, finder: LogSearcher, after: int, limit: int) -> FoundEvents:
    hits: list[LogHit] = []
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


def _search(finder: LogSearcher, entries: list[Entry], hits: list[LogHit], limit: int) -> int:
    """Adds what is found to the hits; the `seq` of the last event that was looked at."""
    for entry in entries:
        if found := finder.find(entry):
            hits.append(found)
            if len(hits) == limit:
                return entry.seq
    return entries[-1].seq


@operations("GET", "/api/runs/{run_id}/spans", describe_json(SpanList, "The spans of the run."), RunParams)
async def run_spans(request: Request, asked: RunParams) -> Response:
    """When the steps, tool calls and sub-runs of a run began and ended; of very many, neighbours as one."""
    try:
        state = await get_span_cache(request).state(asked.run_id)
    except RunNotFound:
        run = await get_services(request).store.get_run(asked.run_id)
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
