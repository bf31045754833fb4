"""Orders: what somebody asked of runs, handed to whoever is at them, or taken up where nobody is."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Protocol

import anyio
import anyio.to_thread

from shopfloor.engine.attempt import Attempt
from shopfloor.engine.awaited_calls import deliver
from shopfloor.engine.duty import Duty
from shopfloor.engine.journal import last_event
from shopfloor.engine.orphans import can_go_on, end_orphan
from shopfloor.engine.shortage import is_temporary
from shopfloor.engine.works import LocalWorks
from shopfloor.errors import LogClosed, RunEnded, StorageError
from shopfloor.limits import ORDER_PATIENCE_SECONDS, ORDERS_AT_ONCE, STOPPED_HOST_SECONDS
from shopfloor.log import RunCompleted, timestamp_of
from shopfloor.ports import Dispatch, Hosts, LogReader, Order, Queue
from shopfloor.record import Storage

_log = logging.getLogger("shopfloor.engine")


class Worked(Protocol):
    """A host, as its orders see it."""

    id: str

    @property
    def duty(self) -> Duty: ...

    def live(self, run_id: str) -> Attempt | None: ...

    def has(self, run_id: str) -> bool: ...

    def go_on(self, run_id: str) -> None: ...

    def cancel(self, run_id: str, reason: str, order: Dispatch | None = None) -> None: ...

    def leave_line(self, run_id: str, reason: str) -> bool: ...

    async def refusal(self, run_id: str) -> str | None: ...

    async def claim_abandoned(self, run_id: str) -> Dispatch | None: ...


class Orders:
    def __init__(
        self, host: Worked, *, storage: Storage, hosts: Hosts, reader: LogReader, queue: Queue, works: LocalWorks
    ) -> None:
        self._host = host
        self._storage = storage
        self._hosts = hosts
        self._reader = reader
        self._queue = queue
        self._works = works
        self._taken: dict[str, list[int]] = {}
        """Orders whose run has them, but whose log not yet."""
        self._recorded: dict[int, Attempt] = {}
        """Orders that a log has, perhaps not on disk yet."""
        self._pressed: dict[str, float] = {}
        """Since when another host has been asked to cancel a run."""

    async def settle(self, run_id: str) -> None:
        """The run has its outcome: what was ordered of it is in its log."""
        await self._queue.done(self._taken.pop(run_id, []))

    async def cancel_of(self, run_id: str) -> str | None:
        """Why the run is to be cancelled, where that is ordered; it counts as handed over then."""
        for number, order in await self._queue.orders():
            if order.run_id == run_id and order.kind == "cancel":
                self._taken.setdefault(run_id, []).append(number)
                return reason_of(order)
        return None

    def forget(self, run_id: str) -> None:
        """The run was left: what no log has stays an order."""
        self._taken.pop(run_id, None)

    async def obey(self) -> None:
        done = [number for number, attempt in self._recorded.items() if attempt.on_disk]
        by_run: dict[str, list[tuple[int, Order]]] = {}
        for number, order in await self._queue.orders():
            if number not in self._recorded:
                by_run.setdefault(order.run_id, []).append((number, order))
        # Several runs at once: a cancelled tree may have thousands of them, and each waits for the database.
        limiter = anyio.CapacityLimiter(ORDERS_AT_ONCE)
        async with anyio.create_task_group() as tasks:
            for orders in by_run.values():
                tasks.start_soon(self._obey_all, orders, done, limiter)
        await self._queue.done(done)
        for number in done:
            self._recorded.pop(number, None)

    async def _obey_all(
        self, orders: Sequence[tuple[int, Order]], done: list[int], limiter: anyio.CapacityLimiter
    ) -> None:
        """The orders of one run, in order. Adds to `done` those that are done with by this."""
        async with limiter:
            for number, order in orders:
                try:
                    done += await self._obey(number, order)
                except Exception as error:
                    if not is_temporary(error):
                        raise
                    # One that cannot be taken up now must not keep the others waiting.
                    _log.warning("an order of run %s waits: %s", order.run_id, error)

    async def _obey(self, number: int, order: Order) -> list[int]:
        """Those that are done with by this."""
        attempt = self._host.live(order.run_id)
        if attempt is not None:
            await self._hand_over(attempt, number, order)
            return []
        if order.kind == "cancel" and self._host.leave_line(order.run_id, reason_of(order)):
            return []
        return [] if self._host.has(order.run_id) else await self._take_up(number, order)

    async def _hand_over(self, attempt: Attempt, number: int, order: Order) -> None:
        """It stays an order until a log has it, on disk."""
        taken = self._taken.setdefault(order.run_id, [])
        if number in taken:
            return
        with suppress(StorageError, RunEnded, LogClosed):
            await deliver(attempt, order)
            if order.kind == "cancel":
                taken.append(number)
            else:
                self._recorded[number] = attempt

    async def _take_up(self, number: int, order: Order) -> list[int]:
        """An order for a run that is not live here: whoever is left to it has to see to it."""
        cancel = reason_of(order) if order.kind == "cancel" else None
        duty = self._host.duty
        if duty == "own" or (duty == "cancels" and cancel is None):
            return []
        queued = await self._host.claim_abandoned(order.run_id) if cancel is not None else None
        if queued is not None and cancel is not None:
            self._host.cancel(order.run_id, cancel, queued)
            return []
        last = await last_event(self._reader, order.run_id)
        if last is None:
            return await self._of_nobody(number, order)
        if isinstance(last.payload, RunCompleted):
            return [number]
        host = await self._works.host_of(order.run_id)
        if host is not None and host != self._host.id and self._hosts.alive(host):
            self._press(order, host)
            # What another host is at goes on without being told.
            return [number] if order.kind == "resume" else []
        if not can_go_on(self._storage, order.run_id):
            await self._end(order.run_id, cancel)
        elif cancel is not None:
            self._host.cancel(order.run_id, cancel)
        elif await self._host.refusal(order.run_id) is None:
            self._host.go_on(order.run_id)
        return []

    async def _of_nobody(self, number: int, order: Order) -> list[int]:
        """A run that has no log: it is about to begin, or it never will."""
        old = order.created_at < timestamp_of(int((time.time() - ORDER_PATIENCE_SECONDS) * 1000))
        return [number] if old and not await self._works.knows(order.run_id) else []

    async def _end(self, run_id: str, cancel: str | None) -> None:
        """A run that nobody can go on with: it can only be cancelled."""
        if cancel is not None:
            await anyio.to_thread.run_sync(partial(end_orphan, self._storage, run_id, cancelled=cancel))

    def _press(self, order: Order, host: str) -> None:
        """A host that does nothing but this run takes up a cancel soon, or is ended: it may be stopped."""
        if order.kind != "cancel" or not self._hosts.alone(host):
            return
        asked = self._pressed.get(order.run_id)
        if asked is None:
            self._pressed[order.run_id] = time.monotonic()
            if not can_go_on(self._storage, order.run_id):
                # A bare command: its host looks for no orders.
                self._hosts.interrupt(host)
        elif time.monotonic() - asked > STOPPED_HOST_SECONDS:
            self._pressed.pop(order.run_id)
            self._hosts.kill(host)


def reason_of(order: Order) -> str:
    return str(order.body.get("reason") or "cancelled")
