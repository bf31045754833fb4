"""Operations on a run's log: read a page, download it, search it, and list its spans."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Iterator
from contextlib import suppress
from typing import Any, cast

import anyio.to_thread
import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from shopfloor.errors import InvalidEvent, RunNotFound
from shopfloor.log import Entry, Event, decode
from shopfloor.ports import LogReader
from shopfloor.server.audit import audit
from shopfloor.server.later_results import find_results_after_page
from shopfloor.server.limits import EXPORT_BYTES, FIND_EVENTS
from shopfloor.server.openapi import Operations
from shopfloor.server.parameters import ExportParams, FindParams, LogParams, RunParams
from shopfloor.server.response_models import FoundEvents, LogPage, SpanList
from shopfloor.server.responses import describe_bytes, describe_json, get_services, json_response
from shopfloor.server.run_tree import get_span_cache
from shopfloor.server.runs import get_owned_run
from shopfloor.server.sse import closing
from shopfloor.views import (
    EXPORT_POLICY,
    EXPORT_WRITERS,
    ExportItem,
    ExportItems,
    ExportWriter,
    LogHit,
    LogSearcher,
    RunRow,
    Spans,
    truncate_event,
)

LOG_MEDIA_TYPE = "application/x-ndjson"
Events = list[dict[str, Any]]

operations = Operations()


@operations("GET", "/api/runs/{run_id}/log", describe_json(LogPage, "Events, in order."), LogParams)
async def run_log(request: Request, params: LogParams) -> Response:
    """Return a page of a run's log, with events as they were written or shortened (`brief`)."""
    logs = get_services(request).logs
    # Read one more than the limit, to know whether there are more.
    entries = await logs.page(params.run_id, after=params.after, before=params.before, limit=params.limit + 1)
    if entries is None:
        raise RunNotFound(f"run {params.run_id} has no log")
    is_backward = params.before is not None and not params.after
    page = entries[-params.limit :] if is_backward else entries[: params.limit]
    more = len(entries) > params.limit
    if not params.brief:
        return json_response(LogPage(_raw(page), more))
    later = await find_results_after_page(logs, params.run_id, page)
    # In a thread: shortening many megabytes would block the event loop.
    return json_response(await anyio.to_thread.run_sync(lambda: LogPage(_brief(page), more, _brief(later))))


def _raw(entries: list[Entry]) -> Events:
    return cast("Events", [msgspec.Raw(entry.raw) for entry in entries])


def _brief(entries: list[Entry]) -> Events:
    return cast("Events", [msgspec.Raw(truncate_event(entry.raw)) for entry in entries])


@operations("GET", "/api/runs/{run_id}/log.jsonl", describe_bytes("An event on each line.", LOG_MEDIA_TYPE), RunParams)
async def download_log(request: Request, params: RunParams) -> Response:
    """Download a run's log: its exact bytes, up to its current end."""
    copy = await get_services(request).logs.copy(params.run_id)
    if copy is None:
        raise RunNotFound(f"run {params.run_id} has no log")
    await audit(request, "run.exported", run_id=params.run_id)
    headers = {
        "Content-Disposition": f'attachment; filename="{params.run_id}.jsonl"',
        "Content-Length": str(copy.size),
    }
    return StreamingResponse(copy.chunks(), headers=headers, media_type=LOG_MEDIA_TYPE)


@operations(
    "GET",
    "/api/runs/{run_id}/export",
    describe_bytes("The document, as an attachment.", "text/html", "text/markdown"),
    ExportParams,
)
async def export_run(request: Request, params: ExportParams) -> Response:
    """Export a run as a document to share: Markdown, or one HTML file without scripts and requests."""
    services = get_services(request)
    run = await get_owned_run(services.store, params.run_id)
    await audit(request, "run.exported", run_id=params.run_id, detail=params.format)
    headers = {
        "Content-Disposition": f'attachment; filename="{params.run_id}.{params.format}"',
        "Content-Security-Policy": f"sandbox; {EXPORT_POLICY}; frame-ancestors 'none'",
    }
    document = _export(services.logs, run.row, EXPORT_WRITERS[params.format]())
    return StreamingResponse(document, headers=headers, media_type=_EXPORT_TYPES[params.format])


_EXPORT_TYPES = {"md": "text/markdown; charset=utf-8", "html": "text/html; charset=utf-8"}


async def _export(logs: LogReader, row: RunRow, writer: ExportWriter) -> AsyncGenerator[bytes]:
    yield writer.head(row).encode()
    items, left = ExportItems(), EXPORT_BYTES
    async with closing(logs.batches(row.id)) as batches:
        async for batch in batches:
            # In a thread: decoding many megabytes would block the event loop.
            part = await anyio.to_thread.run_sync(lambda batch=batch: _write(writer, items.feed(_decodable(batch))))
            left -= len(part)
            if left < 0:
                yield writer.tail(f"The run is longer: this document ends after {EXPORT_BYTES:,} bytes.").encode()
                return
            yield part
    yield await anyio.to_thread.run_sync(lambda: _write(writer, items.finish()))
    yield writer.tail("" if row.is_ended else f"The run was {row.status} when this was exported.").encode()


def _write(writer: ExportWriter, items: Iterable[ExportItem]) -> bytes:
    return "".join([writer.item(item) for item in items]).encode()


def _decodable(entries: list[Entry]) -> Iterator[Event]:
    for entry in entries:
        with suppress(InvalidEvent):
            yield decode(entry.raw)


@operations(
    "GET",
    "/api/runs/{run_id}/find",
    describe_json(FoundEvents, "The events that contain the text, in order."),
    FindParams,
)
async def find_in_log(request: Request, params: FindParams) -> Response:
    """Search the values of a run's events for a text. Searching a long log takes several requests (`more`)."""
    logs = get_services(request).logs
    return json_response(await _search_log(logs, params.run_id, LogSearcher(params.q), params.after, params.limit))


async def _search_log(logs: LogReader, run_id: str, searcher: LogSearcher, after: int, limit: int) -> FoundEvents:
    hits: list[LogHit] = []
    left, searched_to = FIND_EVENTS, after
    async with closing(logs.batches(run_id, after=after)) as batches:
        async for batch in batches:
            if not left or len(hits) == limit:
                return FoundEvents(hits, more=True, searched_to=searched_to)
            entries = batch[:left]
            searched_to = await anyio.to_thread.run_sync(_search_entries, searcher, entries, hits, limit)
            left -= len(entries)
            if searched_to < batch[-1].seq:
                return FoundEvents(hits, more=True, searched_to=searched_to)
    return FoundEvents(hits, more=False, searched_to=searched_to)


def _search_entries(searcher: LogSearcher, entries: list[Entry], hits: list[LogHit], limit: int) -> int:
    """Append what is found to `hits`. Return the `seq` of the last event that was searched."""
    for entry in entries:
        if found := searcher.find(entry):
            hits.append(found)
            if len(hits) == limit:
                return entry.seq
    return entries[-1].seq


@operations("GET", "/api/runs/{run_id}/spans", describe_json(SpanList, "The spans of the run."), RunParams)
async def run_spans(request: Request, params: RunParams) -> Response:
    """Return when the steps, tool calls and sub-runs of a run started and ended.

    In a run with very many of them, neighbors are merged into one span.
    """
    spans = get_span_cache(request)
    try:
        state = await spans.state(params.run_id)
    except RunNotFound:
        run = await get_services(request).store.get_run(params.run_id)
        if run is None:
            raise
        # A queued run has no log yet. Another run may have started since its log was looked for.
        state = Spans() if run.row.status == "queued" else await spans.state(params.run_id)
    figures = state.figures
    return json_response(
        SpanList(
            spans=state.spans,
            last_seq=state.last_seq,
            started_at=state.started_at,
            ended_at=state.ended_at,
            files_changed=len(figures.files),
            lines_added=figures.lines_added,
            lines_removed=figures.lines_removed,
            calls_failed=figures.calls_failed,
            context_tokens=figures.context_tokens,
        )
    )
