"""The records of hosts in a dict. No method awaits anything, so each is a transaction."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from shopfloor.adapters.memory.queue import MemoryQueue
from shopfloor.adapters.memory.store import MemoryStore
from shopfloor.ports import DrainRequest, HostLoss, HostRecord, OfflineReason
from shopfloor.views import FleetEvent


class MemoryHostRegistry:
    """Implements `HostRegistry`."""

    def __init__(self, store: MemoryStore, queue: MemoryQueue) -> None:
        self._store = store
        self._queue = queue
        self._records: dict[str, HostRecord] = {}

    async def save(self, record: HostRecord, events: Sequence[FleetEvent] = ()) -> None:
        known = self._records.get(record.id)
        if known is not None:
            record = replace(record, drain=known.drain, loss=known.loss, offline_at=known.offline_at)
        self._records[record.id] = record
        self._store.fleet_events.append(events)

    async def find(self, host: str) -> HostRecord | None:
        return self._records.get(host)

    async def all(self) -> list[HostRecord]:
        return [*self._records.values()]

    async def request_drain(self, host: str, request: DrainRequest | None) -> bool:
        known = self._records.get(host)
        if known is None or known.loss is not None:
            return False
        self._records[host] = replace(known, drain=request)
        return True

    async def record_loss(self, host: str, *, at: str, reason: OfflineReason) -> bool:
        known = self._records.get(host)
        if known is None or known.loss is not None:
            return False
        orphans = [run.id for run in await self._store.runs_needing_host() if run.host == host]
        orphans += [run_id for run_id, claimer in await self._queue.claimed() if claimer == host]
        self._records[host] = replace(known, loss=HostLoss(at=at, reason=reason, orphans=tuple(dict.fromkeys(orphans))))
        return True

    async def mark_offline(self, host: str, at: str, events: Sequence[FleetEvent]) -> bool:
        known = self._records.get(host)
        if known is None or known.offline_at is not None:
            return False
        self._records[host] = replace(known, offline_at=at)
        self._store.fleet_events.append(events)
        return True

    async def forget_offline(self, before: str, *, keep: int) -> None:
        offline = [record.id for record in self._records.values() if record.offline_at is not None]
        newest = set(offline[len(offline) - keep :] if keep else ())
        self._records = {
            host: record
            for host, record in self._records.items()
            if record.offline_at is None or (record.offline_at >= before and host in newest)
        }
