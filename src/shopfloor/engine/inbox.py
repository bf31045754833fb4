"""Control messages (answer, cancel, resume): from the queue to the attempts of this process."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress

import anyio

from shopfloor.engine.attempt import Attempt
from shopfloor.engine.awaited_calls import deliver
from shopfloor.engine.engine_ports import StoragePorts
from shopfloor.engine.error_mapping import tolerate_temporary_errors
from shopfloor.engine.maintenance import end_orphan, is_resumable
from shopfloor.engine.registry import Claim, ClaimPolicy, RunRegistry
from shopfloor.engine.replay_state import last_event
from shopfloor.engine.resumption import Resumption
from shopfloor.errors import LogClosed, RunEnded, StorageError
from shopfloor.limits import CANCEL_KILL_SECONDS, CONTROL_MESSAGE_CONCURRENCY, CONTROL_MESSAGE_TTL_SECONDS
from shopfloor.log import RunCompleted, format_timestamp
from shopfloor.ports import ControlMessage


class Inbox:
    """Delivers control messages. The queue keeps a message until a log on disk has it."""

    def __init__(self, registry: RunRegistry, ports: StoragePorts, resumption: Resumption) -> None:
        self._registry = registry
        self._ports = ports
        self._resumption = resumption
        self._taken: dict[str, list[int]] = {}
        """Cancels that their run has: its outcome will record them."""
        self._recorded: dict[int, Attempt | None] = {}
        """Messages that a log has, perhaps not on disk yet, or that nobody needs any more."""
        self._interrupted: dict[str, float] = {}
        """Since when another host has been asked to cancel a run."""

    async def deliver_all(self) -> None:
        """Deliver what the queue has."""
        await self.delete_recorded()
        by_run: dict[str, list[tuple[int, ControlMessage]]] = {}
        for number, order in await self._ports.queue.control_messages():
            if number not in self._recorded and number not in self._taken.get(order.run_id, ()):
                by_run.setdefault(order.run_id, []).append((number, order))
        if not by_run:
            return
        # Several runs at once: a cancelled tree may have thousands of them, and each waits for the database.
        limiter = anyio.CapacityLimiter(CONTROL_MESSAGE_CONCURRENCY)
        async with anyio.create_task_group() as tasks:
            for orders in by_run.values():
                tasks.start_soon(self._deliver_to_run, orders, limiter)

    async def delete_recorded(self) -> None:
        """Delete the messages that logs have from the queue, many at once."""
        done = [number for number, attempt in self._recorded.items() if attempt is None or attempt.is_durable]
        await self._ports.queue.acknowledge(done)
        for number in done:
            del self._recorded[number]

    async def claim_cancel(self, run_id: str) -> str | None:
        """Return the reason where the run is to be cancelled, as if the message were delivered."""
        for number, order in await self._ports.queue.control_messages():
            if order.run_id == run_id and order.kind == "cancel":
                self._take(number, order)
                return _reason_of(order)
        return None

    def mark_cancels_recorded(self, run_id: str) -> None:
        """Note that the cancels of a run are recorded: its log has the outcome."""
        self._recorded.update(dict.fromkeys(self._taken.pop(run_id, ())))

    def _take(self, number: int, order: ControlMessage) -> None:
        self._taken.setdefault(order.run_id, []).append(number)

    def forget(self, run_id: str) -> None:
        """Deliver the cancels of a run anew: its attempt was left without an outcome."""
        self._taken.pop(run_id, None)

    async def _deliver_to_run(
        self, orders: Sequence[tuple[int, ControlMessage]], limiter: anyio.CapacityLimiter
    ) -> None:
        """Deliver the messages of one run, oldest first."""
        async with limiter:
            for number, order in orders:
                # One that cannot be delivered now must not keep the others waiting.
                with tolerate_temporary_errors(f"an order of run {order.run_id} waits"):
                    if await self._deliver(number, order):
                        self._recorded[number] = None

    async def _deliver(self, number: int, order: ControlMessage) -> bool:
        """Deliver a message to the attempt of its run; True where the queue may delete the message already."""
        attempt, claim = self._registry.live_attempts.get(order.run_id), self._registry.claims.get(order.run_id)
        if attempt is not None:
            await self._hand_over(attempt, number, order)
        elif claim is None:
            return await self._deliver_without_attempt(number, order)
        elif order.kind == "cancel":
            claim.cancel(_reason_of(order))
            self._take(number, order)
        return False

    async def _hand_over(self, attempt: Attempt, number: int, order: ControlMessage) -> None:
        with suppress(StorageError, RunEnded, LogClosed):
            await deliver(attempt, order)
            if order.kind == "cancel":
                self._take(number, order)
            else:
                self._recorded[number] = attempt

    async def _deliver_without_attempt(self, number: int, order: ControlMessage) -> bool:
        """See to a message for a run that this process does not execute."""
        run_id, policy = order.run_id, self._registry.policy
        reason = _reason_of(order) if order.kind == "cancel" else None
        if policy is ClaimPolicy.OWN or (policy is ClaimPolicy.CANCELLED and reason is None):
            return False
        run = await self._ports.store.get_run(run_id)
        host = run.row.host if run is not None else None
        # Of a run that this process has suspended, the attempt itself finds out whether it has ended.
        if reason is None or host != self._registry.host_id:
            last = await last_event(self._ports.reader, run_id)
            if last is None and reason is not None and await self._resumption.claim_abandoned(run_id, reason):
                self._take(number, order)
                return False
            if last is None:
                # The run is about to start, or it never will.
                return run is None and _is_old(order)
            if isinstance(last.payload, RunCompleted):
                self._interrupted.pop(run_id, None)
                return True
            if host is not None and host != self._registry.host_id and await self._ports.hosts.is_alive(host):
                await self._interrupt(order, host)
                # A run that another host executes needs no resume.
                return order.kind == "resume"
        if not await is_resumable(self._ports.reader, run_id):
            if reason is not None:
                await self._end_unreadable(run_id, reason)
        elif reason is not None:
            if self._registry.add(Claim(run_id, cancel_reason=reason)):
                self._take(number, order)
        elif await self._resumption.refusal_reason(run_id) is None:
            self._registry.resume(run_id)
        return False

    async def _end_unreadable(self, run_id: str, reason: str) -> None:
        """Write the outcome of a cancelled run whose log does not say what was to be done."""
        if await end_orphan(self._ports, run_id, cancelled=reason):
            await self._resumption.notify_parent_of(run_id)

    async def _interrupt(self, order: ControlMessage, host: str) -> None:
        """End a host that executes nothing but this run, where it does not take up a cancel soon: it may be stopped."""
        if order.kind != "cancel" or not await self._ports.hosts.is_dedicated(host):
            return
        since = self._interrupted.get(order.run_id)
        if since is None:
            self._interrupted[order.run_id] = time.monotonic()
            if not await is_resumable(self._ports.reader, order.run_id):
                # A bare command: its host looks for no messages.
                await self._ports.hosts.interrupt(host)
        elif time.monotonic() - since > CANCEL_KILL_SECONDS:
            self._interrupted.pop(order.run_id)
            await self._ports.hosts.kill(host)


def _reason_of(order: ControlMessage) -> str:
    return str(order.body.get("reason") or "cancelled")


def _is_old(order: ControlMessage) -> bool:
    return order.created_at < format_timestamp(int((time.time() - CONTROL_MESSAGE_TTL_SECONDS) * 1000))
