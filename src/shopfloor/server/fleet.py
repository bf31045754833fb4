"""Fleet events over HTTP: a page of stored events, and a stream of server-sent events."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, Final, cast

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from shopfloor.errors import NotFoundError
from shopfloor.server.fleet_feed import GAP, FeedItem, FleetFeed
from shopfloor.server.fleet_models import FleetEventList
from shopfloor.server.openapi import Operations
from shopfloor.server.parameters import FleetPageParams, FleetStreamParams
from shopfloor.server.responses import describe_json, describe_stream, get_services, json_response
from shopfloor.server.sse import Frames, frame, log_frame
from shopfloor.server.streams import event_stream

_STREAM: Final = (
    "Each event as `data`, with its cursor as `id`: `type`, `payload` and `timestamp`. Before the first event "
    "`event: ready`, with the cursor at which the stream begins. `event: gap` if events after the requested cursor are "
    "no longer stored; the stream continues with the oldest that is. A heartbeat of a host repeats the last `id`."
)
_SSE: Final = "sse"
operations = Operations()


@operations("GET", "/api/events", describe_json(FleetEventList, "The events, oldest first."), FleetPageParams)
async def list_fleet_events(request: Request, params: FleetPageParams) -> Response:
    """List stored fleet events: the newest, or those after a cursor."""
    events = _get_feed(request).events
    if params.after is None:
        page = await events.newest(params.wanted, limit=params.limit)
    else:
        page = await events.read(params.wanted, after=params.after, limit=params.limit)
    # The stored event is JSON already; only its cursor is added.
    listed = [msgspec.Raw(b'{"id":"%d",%b' % (event.cursor, event.body[1:])) for event in page.events]
    return json_response(FleetEventList(cast("list[Any]", listed), str(page.cursor), page.has_gap))


@operations("GET", "/api/events/stream", describe_stream(_STREAM), FleetStreamParams)
async def stream_fleet_events(request: Request, params: FleetStreamParams) -> Response:
    """Stream fleet events as server-sent events: first those after a cursor, then new ones as they are stored."""
    feed, cursor = _get_feed(request), params.last_cursor
    begin = await feed.events.cursor() if cursor is None else cursor
    batches = feed.follow(params.wanted, begin)
    # Subscribe before the stream starts, while the response can still be an error.
    await anext(batches)
    return event_stream(request, get_services(request), _frames(batches, begin), context=aclosing(batches))


async def _frames(batches: AsyncGenerator[list[FeedItem]], begin: int) -> Frames:
    yield frame(b"ready", b"{}", b"%d" % begin)
    async for batch in batches:
        yield b"".join([item.encoded(_SSE, _encode_item) for item in batch])


def _encode_item(item: FeedItem) -> bytes:
    if item.is_gap:
        return frame(GAP.encode(), item.body, b"%d" % item.cursor)
    return log_frame(item.cursor, item.body)


def _get_feed(request: Request) -> FleetFeed:
    feed = get_services(request).fleet
    if feed is None:
        raise NotFoundError("this server has no fleet events", hint="use a server started with `shopfloor up`")
    return feed
