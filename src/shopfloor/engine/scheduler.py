"""The scheduler: claims as many queued runs as there are free slots, and executes every claimed run."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Generator
from contextlib import contextmanager

import anyio

from shopfloor.engine.engine_ports import StoragePorts
from shopfloor.engine.error_mapping import is_shortage, is_temporary, to_run_error, tolerate_temporary_errors
from shopfloor.engine.inbox import Inbox
from shopfloor.engine.lifecycle import Lifecycle
from shopfloor.engine.maintenance import requeue_claims
from shopfloor.engine.registry import Claim, ClaimPolicy, RunObserver, RunRegistry
from shopfloor.engine.slot_usage import Slot, SlotPool
from shopfloor.engine.watchdog import Watchdog
from shopfloor.errors import LogBusy, RunEnded, ShopfloorError, StorageError, StoreError, UnexpectedError
from shopfloor.limits import HOST_SLOTS, INBOX_POLL_SECONDS, RUN_RETRY_SECONDS
from shopfloor.log import RunError
from shopfloor.ports import HostOffer, QueuedRun

_log = logging.getLogger("shopfloor.engine")


class Scheduler:
    """The executor of the runs that it claims from the queue, and of those that other parts add to the registry."""

    def __init__(
        self,
        registry: RunRegistry,
        ports: StoragePorts,
        inbox: Inbox,
        lifecycle: Lifecycle,
        *,
        slots: int = HOST_SLOTS,
        offer: Callable[[], HostOffer] = HostOffer,
    ) -> None:
        """Create a scheduler that claims the runs that `offer` satisfies at that time."""
        self._offer = offer
        self._registry = registry
        self._ports = ports
        self._inbox = inbox
        self._lifecycle = lifecycle
        self._slots = SlotPool(slots)
        self._is_claiming_stopped = False
        self._executions: set[asyncio.Task[None]] = set()
        self._interruptible: set[asyncio.Task[None]] = set()
        """The executions that wait for a slot or for their next attempt: they can be cancelled directly."""
        self.watchdog = Watchdog(registry.append_note)

    @property
    def is_busy(self) -> bool:
        """Whether this process has claimed any run."""
        return bool(self._registry.claims)

    @property
    def live_runs(self) -> frozenset[str]:
        """The runs that have an attempt in this process, including those that only wait."""
        return frozenset(self._registry.live_attempts)

    @property
    def is_executing(self) -> bool:
        """Whether a run is being executed. Runs that only wait do not count."""
        return any(not attempt.slot_usage.is_suspendable for attempt in self._registry.live_attempts.values())

    @property
    def is_draining(self) -> bool:
        """Whether this process claims no more runs."""
        return self._registry.is_draining

    def set_observer(self, observer: RunObserver) -> None:
        """Tell `observer` which runs this process executes."""
        self._registry.observer = observer

    def drain(self) -> None:
        """Claim no more runs, and suspend those that only wait. Other runs continue to their end."""
        self._registry.is_draining = True
        for attempt in list(self._registry.live_attempts.values()):
            if attempt.slot_usage.is_suspendable and attempt.interruption is None:
                attempt.interrupt("suspended")

    async def undrain(self) -> None:
        """Claim runs again, and resume those of this host that no other host has resumed meanwhile."""
        self._registry.is_draining = False
        for run in await self._ports.store.runs_needing_host():
            if run.host == self._registry.host_id and not await self._ports.reader.has_writer(run.id):
                self._registry.resume(run.id)
        self._registry.wake_up.set()

    async def hand_over(self) -> None:
        """Interrupt all runs, so that other hosts can resume them. For a host that drains."""
        await self._interrupt_claims()
        await self._delete_started()
        own = [claim for claim in await self._ports.queue.claimed() if claim[1] == self._registry.host_id]
        await requeue_claims(self._ports, [claim for claim in own if claim[0] not in self._registry.claims])

    def stop_claiming(self) -> None:
        """Claim no more runs, because the queue is lost. Runs that are being executed continue."""
        self._is_claiming_stopped = True
        self._registry.close()

    async def run(self) -> None:
        """Execute runs until cancelled, then stop every run so that it can be resumed."""
        with self.watchdog.running():
            async with anyio.create_task_group() as tasks:
                try:
                    tasks.start_soon(self._start_ready)
                    while True:
                        # Clear the event before polling, so that a concurrent wake-up is not lost.
                        self._registry.wake_up.clear()
                        if not self._is_claiming_stopped:
                            await self._poll()
                        with anyio.move_on_after(INBOX_POLL_SECONDS):
                            await self._registry.wake_up.wait()
                finally:
                    with anyio.CancelScope(shield=True):
                        await self._interrupt_all()

    async def _interrupt_all(self) -> None:
        """Stop all attempts and wait until every claim is removed."""
        self._registry.close()
        await self._interrupt_claims()
        if not self._is_claiming_stopped:
            # If this fails, the next host deletes these rows from the queue.
            with tolerate_temporary_errors("cannot delete recorded runs and messages from the queue"):
                await self._delete_started()
                await self._inbox.delete_recorded()

    async def _interrupt_claims(self) -> None:
        # Repeated: claimed runs may still become live.
        while self._registry.claims:
            for attempt in list(self._registry.live_attempts.values()):
                attempt.interrupt("stopped")
            for task in self._interruptible:
                task.cancel()
            await anyio.sleep(0.005)

    async def _poll(self) -> None:
        # Retried at the next poll. Runs that are being executed continue.
        with tolerate_temporary_errors("cannot poll the queue"):
            await self._delete_started()
            await self._inbox.deliver_all()
            if self._registry.policy is ClaimPolicy.QUEUED:
                await self._claim_queued()
            await self._lifecycle.check_runs()

    async def _delete_started(self) -> None:
        """Delete started runs with durable logs from the queue, in one batch."""
        recorded = self._registry.recorded()
        await self._ports.queue.mark_started(recorded)
        self._registry.forget_started(recorded)

    async def _start_ready(self) -> None:
        """Start the claims that other parts have added to the registry."""
        while True:
            for claim in await self._registry.take_ready():
                if self._lifecycle.is_waiting_for_definition(claim):
                    self._registry.remove(claim)
                else:
                    self._start(claim, self._slots.slot())

    async def _claim_queued(self) -> None:
        """Claim queued runs while there are free slots."""
        while slots := self._slots.acquire_free():
            claimed: list[QueuedRun] = []
            try:
                claimed = await self._ports.queue.claim(self._registry.host_id, len(slots), self._offer())
            finally:
                for slot in slots[len(claimed) :]:
                    slot.release()
            for queued, slot in zip(claimed, slots, strict=False):
                claim = Claim(queued.run_id, queued)
                if self._registry.register(claim):
                    self._start(claim, slot)
                else:
                    slot.release()
            if len(claimed) < len(slots):
                break

    def _start(self, claim: Claim, slot: Slot) -> None:
        # Not in a task group, which would cancel the task: only the attempt decides when it stops, and
        # `_interrupt_all` waits for every claim.
        task = asyncio.create_task(self._execute(claim, slot))
        self._executions.add(task)
        task.add_done_callback(self._executions.discard)

    @contextmanager
    def _may_be_interrupted(self) -> Generator[None]:
        """Let `_interrupt_all` cancel the current task inside the block."""
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("not called in a task")
        self._interruptible.add(task)
        try:
            yield
        finally:
            self._interruptible.discard(task)

    async def _execute(self, claim: Claim, slot: Slot) -> None:
        """Wait for a slot and make an attempt at a claimed run. Retries while the storage is not available."""
        is_over = False
        try:
            while not is_over:
                if not slot.is_acquired:
                    with self._may_be_interrupted():
                        await claim.acquire(slot)
                try:
                    if claim.queued is None and claim.cancel_reason is None:
                        # Do not resume an interrupted run only to cancel it afterwards.
                        claim.cancel_reason = await self._inbox.claim_cancel(claim.run_id) or claim.cancel_reason
                    if await self._lifecycle.attempt(claim, slot):
                        self._inbox.mark_cancels_recorded(claim.run_id)
                    is_over = True
                except Exception as error:  # noqa: BLE001 - a defect in one run must not end the others
                    is_over = await self._is_over(claim, error)
                if not is_over:
                    slot.release()
                    # The next attempt gets the cancels that this one could not record.
                    self._inbox.forget(claim.run_id)
                    with self._may_be_interrupted():
                        await asyncio.sleep(RUN_RETRY_SECONDS)
        finally:
            slot.release()
            self._registry.remove(claim)
            self._inbox.forget(claim.run_id)
            self._registry.wake_up.set()
        if claim.is_resumed_again:
            self._registry.resume(claim.run_id)

    async def _is_over(self, claim: Claim, error: Exception) -> bool:
        """Handle the error of an attempt. Return whether this process is done with the run; False means: retry."""
        match error:
            case RunEnded():
                return True
            case LogBusy():
                # Another process has the run, or holds the lock only for a check: then this process retries.
                return claim.queued is None and await self._ports.reader.has_writer(claim.run_id)
            case StorageError() | StoreError():
                _log.warning("run %s waits for the storage: %s", claim.run_id, error.message)
                return False
            case _ if is_shortage(error):
                shortage = "the process is out of memory, threads or descriptors"
                _log.warning("run %s waits: %s: %s", claim.run_id, shortage, error)
                return False
            case ExceptionGroup() if is_temporary(error):
                _log.warning("run %s waits: %s", claim.run_id, "; ".join(map(str, error.exceptions)))
                return False
            case ShopfloorError() if claim.queued is None and not claim.has_started:
                _log.warning("run %s cannot be resumed: %s", claim.run_id, error.message)
                return True
            case _:
                _log.error("run %s cannot be executed", claim.run_id, exc_info=error)
                # No other process ends the run while this one lives. The next attempt finds the outcome and notifies
                # the parent.
                try:
                    return not await self._lifecycle.end_failed(claim, _failure_of(error))
                except Exception as failed:  # noqa: BLE001 - see above
                    _log.warning("run %s cannot be ended for now: %r", claim.run_id, failed)
                return False


def _failure_of(error: Exception) -> RunError:
    if isinstance(error, ShopfloorError):
        return to_run_error(error)
    return RunError(code=UnexpectedError.code, message=f"a defect of Shopfloor: {type(error).__name__}: {error}")
