"""Delivery of control messages (answer, cancel, resume) from the queue to the attempts of this process."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress

import anyio

from shopfloor.engine.approvals import ApprovalRules, store_rule
from shopfloor.engine.attempt import Attempt
from shopfloor.engine.awaited_calls import deliver
from shopfloor.engine.engine_ports import StoragePorts
from shopfloor.engine.error_mapping import tolerate_temporary_errors
from shopfloor.engine.maintenance import end_orphan, is_resumable
from shopfloor.engine.registry import Claim, ClaimPolicy, RunRegistry
from shopfloor.engine.replay_state import last_event
from shopfloor.engine.resumption import Resumption
from shopfloor.errors import LogClosed, ResourceLimit, RunEnded, StorageError
from shopfloor.limits import CANCEL_KILL_SECONDS, CONTROL_MESSAGE_CONCURRENCY, CONTROL_MESSAGE_TTL_SECONDS
from shopfloor.log import RunCompleted, format_timestamp
from shopfloor.ports import ControlMessage


class Inbox:
    """The delivery of control messages. A message stays in the queue until it is durable in a log."""

    def __init__(self, registry: RunRegistry, ports: StoragePorts, resumption: Resumption) -> None:
        self._registry = registry
        self._ports = ports
        self._resumption = resumption
        self._taken: dict[str, list[int]] = {}
        """Cancels that were passed to their run, by run id. The outcome of the run will record them."""
        self._recorded: dict[int, Attempt | None] = {}
        """Messages that can be deleted: at once, or when the log of the attempt is durable."""
        self._cancel_seen_at: dict[str, float] = {}
        """When a cancel of a run that another host executes was first seen (monotonic seconds)."""

    async def deliver_all(self) -> None:
        """Deliver all messages of the queue."""
        await self.delete_recorded()
        by_run: dict[str, list[tuple[int, ControlMessage]]] = {}
        for number, message in await self._ports.queue.control_messages():
            if number not in self._recorded and number not in self._taken.get(message.run_id, ()):
                by_run.setdefault(message.run_id, []).append((number, message))
        if not by_run:
            return
        # Several runs concurrently: a cancelled tree may have thousands, and each waits for the database.
        limiter = anyio.CapacityLimiter(CONTROL_MESSAGE_CONCURRENCY)
        async with anyio.create_task_group() as tasks:
            for messages in by_run.values():
                tasks.start_soon(self._deliver_to_run, messages, limiter)

    async def delete_recorded(self) -> None:
        """Delete the messages that logs have from the queue, in one batch."""
        done = [number for number, attempt in self._recorded.items() if attempt is None or attempt.is_durable]
        await self._ports.queue.acknowledge(done)
        for number in done:
            del self._recorded[number]

    async def claim_cancel(self, run_id: str) -> str | None:
        """Return the reason if the queue has a cancel of this run, which then counts as delivered; else None."""
        for number, message in await self._ports.queue.control_messages():
            if message.run_id == run_id and message.kind == "cancel":
                self._mark_taken(number, message)
                return _reason_of(message)
        return None

    def mark_cancels_recorded(self, run_id: str) -> None:
        """Note that the outcome of a run has been recorded, and with it the cancels of that run."""
        self._recorded.update(dict.fromkeys(self._taken.pop(run_id, ())))

    def _mark_taken(self, number: int, message: ControlMessage) -> None:
        self._taken.setdefault(message.run_id, []).append(number)

    def forget(self, run_id: str) -> None:
        """Deliver the cancels of a run again: its attempt ended without an outcome."""
        self._taken.pop(run_id, None)

    async def _deliver_to_run(
        self, messages: Sequence[tuple[int, ControlMessage]], limiter: anyio.CapacityLimiter
    ) -> None:
        """Deliver the messages of one run, oldest first."""
        async with limiter:
            for number, message in messages:
                # A message that cannot be delivered now must not delay the others.
                with tolerate_temporary_errors(f"cannot deliver a control message to run {message.run_id} yet"):
                    if await self._deliver(number, message):
                        self._recorded[number] = None

    async def _deliver(self, number: int, message: ControlMessage) -> bool:
        """Deliver a message. Return whether the queue may delete the message already."""
        attempt, claim = self._registry.live_attempts.get(message.run_id), self._registry.claims.get(message.run_id)
        if attempt is not None:
            await self._deliver_to_attempt(attempt, number, message)
        elif claim is None:
            return await self._deliver_without_attempt(number, message)
        elif message.kind == "cancel":
            claim.cancel(_reason_of(message))
            self._mark_taken(number, message)
        return False

    async def _deliver_to_attempt(self, attempt: Attempt, number: int, message: ControlMessage) -> None:
        with suppress(StorageError, RunEnded, LogClosed):
            # Without room for another rule, a person is asked again.
            with suppress(ResourceLimit):
                await store_rule(ApprovalRules(self._ports.blobs), attempt, message)
            await deliver(attempt, message)
            if message.kind == "cancel":
                self._mark_taken(number, message)
            else:
                self._recorded[number] = attempt

    async def _deliver_without_attempt(self, number: int, message: ControlMessage) -> bool:
        """Handle a message to a run that this process does not execute. Return whether the queue may delete it."""
        run_id, policy = message.run_id, self._registry.policy
        reason = _reason_of(message) if message.kind == "cancel" else None
        if policy is ClaimPolicy.OWN or (policy is ClaimPolicy.CANCELLED and reason is None):
            return False
        run = await self._ports.store.get_run(run_id)
        host = run.row.host if run is not None else None
        # If this process has suspended the run, the next attempt finds out itself whether the run has ended.
        if reason is None or host != self._registry.host_id:
            last = await last_event(self._ports.reader, run_id)
            if last is None and reason is not None and await self._resumption.claim_abandoned(run_id, reason):
                self._mark_taken(number, message)
                return False
            if last is None:
                # The run has not started yet, or does not exist.
                return run is None and _is_old(message)
            if isinstance(last.payload, RunCompleted):
                self._cancel_seen_at.pop(run_id, None)
                return True
            if host != self._registry.host_id and await self._ports.reader.has_active_host(run_id, host):
                await self._interrupt_host(message, host or "")
                # A run that another host executes needs no resume.
                return message.kind == "resume"
        if not await is_resumable(self._ports.reader, run_id):
            if reason is not None:
                await self._end_unreadable(run_id, reason)
        elif reason is not None:
            if self._registry.add(Claim(run_id, cancel_reason=reason)):
                self._mark_taken(number, message)
        elif await self._resumption.is_resumed_here(run_id):
            self._resumption.resume(run_id)
        return False

    async def _end_unreadable(self, run_id: str, reason: str) -> None:
        """Write the outcome of a cancelled run whose log has no readable definition."""
        if await end_orphan(self._ports, run_id, cancelled=reason):
            await self._resumption.notify_parent_of(run_id)

    async def _interrupt_host(self, message: ControlMessage, host: str) -> None:
        """Interrupt, then kill, a host that executes only this run and ignores its cancel (it may be suspended)."""
        if message.kind != "cancel" or not await self._ports.hosts.is_dedicated(host):
            return
        since = self._cancel_seen_at.get(message.run_id)
        if since is None:
            self._cancel_seen_at[message.run_id] = time.monotonic()
            if not await is_resumable(self._ports.reader, message.run_id):
                # A command run: its host does not poll the queue.
                await self._ports.hosts.interrupt(host)
        elif time.monotonic() - since > CANCEL_KILL_SECONDS:
            self._cancel_seen_at.pop(message.run_id)
            await self._ports.hosts.kill(host)


def _reason_of(message: ControlMessage) -> str:
    return str(message.body.get("reason") or "cancelled")


def _is_old(message: ControlMessage) -> bool:
    return message.created_at < format_timestamp(int((time.time() - CONTROL_MESSAGE_TTL_SECONDS) * 1000))
