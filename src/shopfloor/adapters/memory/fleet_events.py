"""Fleet events in a list, and the records of providers, whose changes they announce."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from shopfloor.ports import Change, FleetEventPage, FleetFilter, ProviderRecord, StoredFleetEvent
from shopfloor.views import FleetEvent, encode_fleet_event

if TYPE_CHECKING:
    from shopfloor.adapters.memory.store import MemoryStore


class FleetEventList:
    """The stored events, oldest first."""

    def __init__(self, kept: int) -> None:
        self.events: list[StoredFleetEvent] = []
        # Cursors begin at the time of creation, so that they grow when a new list replaces a lost one.
        self.cursor = int(time.time()) * 1000
        self.trimmed = self.cursor
        """The newest cursor that was deleted because there were too many."""
        self._kept = kept

    def append(self, events: Sequence[FleetEvent]) -> None:
        """Store events after the newest cursor, and delete the oldest if there are too many."""
        for event in events:
            self.cursor += 1
            body = encode_fleet_event(event)
            self.events.append(StoredFleetEvent(self.cursor, event.stream, event.run_id, event.provider, body))
        self.trimmed = max(self.trimmed, self.cursor - self._kept)
        if self.events and self.events[0].cursor <= self.trimmed:
            self.events = [event for event in self.events if event.cursor > self.trimmed]

    def delete_run(self, run_id: str) -> None:
        """Delete the events of a run."""
        self.events = [event for event in self.events if event.run_id != run_id]


class MemoryFleetEvents:
    """Implements `FleetEvents` on the list of a store."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self._list = store.fleet_events

    async def append(self, events: Sequence[FleetEvent]) -> int:
        self._list.append(events)
        return self._list.cursor

    async def read(self, wanted: FleetFilter, *, after: int, limit: int, until: int | None = None) -> FleetEventPage:
        newest, trimmed = self._list.cursor, self._list.trimmed
        has_gap = after != 0 and not trimmed <= after <= newest
        after = trimmed if has_gap or not after else after
        end = newest if until is None else min(until, newest)
        matches = [event for event in self._matching(wanted) if after < event.cursor <= end]
        page = matches[:limit]
        return FleetEventPage(page, page[-1].cursor if len(matches) > limit else max(after, end), has_gap)

    async def newest(self, wanted: FleetFilter, *, limit: int) -> FleetEventPage:
        return FleetEventPage(self._matching(wanted)[-limit:], self._list.cursor)

    async def cursor(self) -> int:
        return self._list.cursor

    async def ancestors(self, run_ids: Collection[str]) -> dict[str, tuple[str, ...]]:
        return {run_id: above for run_id in run_ids if (above := self._store.ancestors(run_id))}

    def _matching(self, wanted: FleetFilter) -> list[StoredFleetEvent]:
        def ancestors(event: StoredFleetEvent) -> tuple[str, ...]:
            return self._store.ancestors(event.run_id) if wanted.tree and event.run_id else ()

        return [event for event in self._list.events if wanted.matches(event, ancestors(event))]


class MemoryProviderHealth:
    """Implements `ProviderHealth` on the records of a store."""

    def __init__(self, store: MemoryStore) -> None:
        self._records = store.providers
        self._events = store.fleet_events

    async def read(self) -> dict[str, ProviderRecord]:
        return dict(self._records)

    async def update(self, change: Change) -> bool:
        changed, events = change(dict(self._records))
        self._records.update({record.name: record for record in changed})
        self._events.append(events)
        return bool(events)
