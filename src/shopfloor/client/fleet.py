"""Fleet events of a server: stored ones, and new ones as they happen."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, Final

import anyio
import msgspec

from shopfloor.client.api import Api
from shopfloor.client.resumable_stream import ReconnectBackoff
from shopfloor.decoding import decode_json, json_decoder
from shopfloor.errors import ServerUnreachable
from shopfloor.limits import RECONNECT_RESET_SECONDS

GAP: Final = "gap"
"""The type of the marker for events that the server no longer has."""


class FleetUpdate(msgspec.Struct, frozen=True, kw_only=True):
    """A fleet event as the server sent it, or with the type `gap` the mark that events before it are lost."""

    type: str
    payload: dict[str, Any]
    timestamp: str
    id: str = ""
    """The cursor of the event: pass it as `after` to continue there."""


class _Page(msgspec.Struct):
    events: list[FleetUpdate]
    cursor: str


_decode_update = json_decoder(FleetUpdate).decode


async def newest_events(api: Api, *, limit: int, **filters: Any) -> tuple[list[FleetUpdate], str]:
    """Return the newest stored events that match, oldest first, and the cursor to continue at."""
    page = decode_json(await api.content("/api/events", limit=limit, **filters), _Page)
    return page.events, page.cursor


async def follow_events(api: Api, *, after: str | int | None = None, **filters: Any) -> AsyncGenerator[FleetUpdate]:
    """Yield the events after a cursor and then new ones, without end; without a cursor from now on.

    Reconnects when the connection breaks, without loss or repetition. Raises `ServerUnreachable` if the server stays
    away, or breaks each connection off before it sends anything.
    """
    backoff = ReconnectBackoff()
    cursor = after
    while True:
        opened_at = anyio.current_time()
        try:
            async with aclosing(api.stream_frames("/api/events/stream", after=cursor, **filters)) as frames:
                async for frame in frames:
                    cursor = cursor if frame.id is None else frame.id
                    if frame.data is not None and frame.event in ("message", GAP):
                        backoff.reset()
                        yield msgspec.structs.replace(_decode_update(frame.data), id=frame.id or "")
            raise ServerUnreachable("the stream of fleet events broke off", hint="open it again")
        except ServerUnreachable as error:
            if anyio.current_time() - opened_at >= RECONNECT_RESET_SECONDS:
                backoff.reset()
            await backoff.wait(error)
