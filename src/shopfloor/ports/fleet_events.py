"""FleetEvents: the stored `agent.*`, `worker.*` and `provider.*` events, under one growing cursor.

`agent.*` events come from logs: `Store.apply` stores them in the transaction that stores the rows, so each event of a
log has its fleet events exactly once. Hosts and provider checks append the others. A heartbeat is never stored, and is
published on the bus alone.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple, Protocol

import msgspec

from shopfloor.decoding import json_decoder
from shopfloor.views import EventStream, FleetEvent


class _Typed(msgspec.Struct):
    type: str


_decode_type = json_decoder(_Typed).decode


class StoredFleetEvent(NamedTuple):
    """A fleet event as it is stored and sent."""

    cursor: int
    stream: EventStream
    run_id: str | None
    provider: str | None
    body: bytes
    """The event as JSON: `type`, `payload` and `timestamp`."""

    @property
    def type(self) -> str:
        """The type of the event."""
        return _decode_type(self.body).type


class FleetFilter(msgspec.Struct, frozen=True, kw_only=True):
    """A filter of fleet events. Fields that are None do not filter."""

    stream: EventStream | None = None
    type: str | None = None
    provider: str | None = None
    run_id: str | None = None
    tree: bool = False
    """Whether the events of all sub-runs of `run_id` match too, at every depth."""

    def matches(self, event: StoredFleetEvent, ancestors: Collection[str] = ()) -> bool:
        """Return whether an event matches. `ancestors` are the runs above the event's run, for a filter by tree."""
        return (
            (self.stream is None or event.stream == self.stream)
            and (self.type is None or event.type == self.type)
            and (self.provider is None or event.provider == self.provider)
            and (self.run_id is None or event.run_id == self.run_id or (self.tree and self.run_id in ancestors))
        )


class FleetEventPage(NamedTuple):
    """A page of stored events, oldest first."""

    events: list[StoredFleetEvent]
    cursor: int
    """The cursor up to which the page is complete: all matching events up to it are on this page or before it."""
    has_gap: bool = False
    """True if events after the requested cursor are no longer stored, or if no such cursor was ever given out."""


class FleetEvents(Protocol):
    """The stored fleet events. Cursors only grow: no event ever appears behind a cursor that was given out."""

    async def append(self, events: Sequence[FleetEvent]) -> int:
        """Store events of hosts and providers in one transaction, and return the newest cursor.

        The caller notifies the bus afterwards. The oldest events are deleted when there are too many.
        """
        ...

    async def read(self, wanted: FleetFilter, /, *, after: int, limit: int, until: int | None = None) -> FleetEventPage:
        """Return at most `limit` matching events after the cursor `after`, and up to the cursor `until`.

        `after=0` reads from the oldest event that is stored. With a gap, the page begins with the oldest too.
        """
        ...

    async def newest(self, wanted: FleetFilter, /, *, limit: int) -> FleetEventPage:
        """Return the newest matching events, at most `limit`."""
        ...

    async def cursor(self) -> int:
        """Return the cursor of the newest event, even if that event was deleted with its run."""
        ...

    async def ancestors(self, run_ids: Collection[str]) -> dict[str, tuple[str, ...]]:
        """Return the runs above each of these runs, as far as rows are known: the parent first, the root last."""
        ...
