"""The queue in plain dicts. No method waits for anything, so each is a transaction by itself."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import msgspec

from shopfloor.adapters.memory.store import MemoryStore
from shopfloor.errors import ConflictError
from shopfloor.ports import ControlMessage, QueuedRun, ViewUpdate
from shopfloor.views import queued_row


class _Kept(msgspec.Struct):
    order: QueuedRun
    host: str | None


class MemoryQueue:
    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self._kept: dict[str, _Kept] = {}
        self._keys: dict[str, tuple[str, tuple[str, dict[str, Any] | None]]] = {}
        self._orders = store.orders
        self._last_number = 0

    async def dispatch(self, order: QueuedRun, *, host: str | None = None) -> str:
        started = order.started
        key, asked = started.idempotency_key, (started.name, started.input)
        known = None if key is None else self._keys.get(key)
        if known is not None:
            if known[1] != asked:
                raise ConflictError(
                    f"the idempotency key {key!r} was used for another worker or another input, by the run {known[0]}",
                    hint="use a new key for what is not the same",
                )
            return known[0]
        if order.run_id in await self._store.known_runs():
            raise ConflictError(f"there is a run {order.run_id} already", hint="give each run an id of its own")
        if key is not None:
            self._keys[key] = (order.run_id, asked)
        self._kept[order.run_id] = _Kept(order, host)
        await self._show(order)
        return order.run_id

    async def claim(self, host: str, limit: int) -> list[QueuedRun]:
        free = [kept for kept in self._kept.values() if kept.host is None][:limit]
        for kept in free:
            kept.host = host
        return [kept.order for kept in free]

    async def claim_one(self, run_id: str, host: str, *, previous_host: str | None = None) -> QueuedRun | None:
        kept = self._kept.get(run_id)
        if kept is None or kept.host != previous_host:
            return None
        kept.host = host
        return kept.order

    async def find(self, run_id: str) -> QueuedRun | None:
        kept = self._kept.get(run_id)
        return None if kept is None else kept.order

    async def mark_started(self, run_ids: Sequence[str]) -> None:
        for run_id in run_ids:
            self._kept.pop(run_id, None)

    async def claimed(self) -> list[tuple[str, str]]:
        return [(run_id, kept.host) for run_id, kept in self._kept.items() if kept.host is not None]

    async def release(self, claims: Collection[tuple[str, str]]) -> None:
        for run_id, host in claims:
            kept = self._kept.get(run_id)
            if kept is not None and kept.host == host:
                kept.host = None

    async def put_control_message(self, order: ControlMessage) -> bool:
        if any((kept.run_id, kept.id) == (order.run_id, order.id) for kept in self._orders.values()):
            return False
        self._last_number += 1
        self._orders[self._last_number] = order
        return True

    async def control_messages(self, *, after: int = 0) -> list[tuple[int, ControlMessage]]:
        return [(number, order) for number, order in self._orders.items() if number > after]

    async def acknowledge(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            self._orders.pop(number, None)

    async def restore_queued_rows(self) -> None:
        for kept in self._kept.values():
            await self._show(kept.order)

    async def _show(self, order: QueuedRun) -> None:
        # Where there is a row already, it is past this one.
        await self._store.apply([ViewUpdate(row=queued_row(order.run_id, order.started), state=b"", timeline=[])])

    async def recover(self, *, is_idle: bool = False) -> int:
        # What is only in memory is never lost without its process.
        return 0

    async def forget(self, run_ids: Collection[str]) -> None:
        gone = set(run_ids)
        await self.mark_started(tuple(gone))
        await self.acknowledge([number for number, order in self._orders.items() if order.run_id in gone])
        self._keys = {key: known for key, known in self._keys.items() if known[0] not in gone}
