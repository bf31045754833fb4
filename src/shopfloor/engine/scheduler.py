"""Which runs this process executes, and when: it claims as many as it has slots."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Generator
from contextlib import contextmanager

import anyio

from shopfloor.engine.engine_ports import StoragePorts
from shopfloor.engine.error_mapping import is_shortage, is_temporary, to_run_error, tolerate_temporary_errors
from shopfloor.engine.inbox import Inbox
from shopfloor.engine.lifecycle import Lifecycle
from shopfloor.engine.registry import Claim, ClaimPolicy, RunRegistry
from shopfloor.engine.slot_usage import Slot, SlotPool
from shopfloor.engine.watchdog import Watchdog
from shopfloor.errors import LogBusy, RunEnded, ShopfloorError, StorageError, StoreError, UnexpectedError
from shopfloor.limits import HOST_SLOTS, INBOX_POLL_SECONDS, RUN_RETRY_SECONDS
from shopfloor.log import RunError
from shopfloor.ports import QueuedRun

_log = logging.getLogger("shopfloor.engine")


class Scheduler:
    """Starts the runs that this process claims, and those that are handed to it by the registry."""

    def __init__(
        self, registry: RunRegistry, ports: StoragePorts, inbox: Inbox, lifecycle: Lifecycle, *, slots: int = HOST_SLOTS
    ) -> None:
        self._registry = registry
        self._ports = ports
        self._inbox = inbox
        self._lifecycle = lifecycle
        self._slots = SlotPool(slots)
        self._is_retired = False
        self._executions: set[asyncio.Task[None]] = set()
        self._interruptible: set[asyncio.Task[None]] = set()
        """The executions that only wait, for a slot or for their next attempt."""
        self.watchdog = Watchdog(registry.append_note)

    @property
    def busy(self) -> bool:
        return bool(self._registry.claims)

    @property
    def is_executing(self) -> bool:
        """Whether a run is being executed: one that only waits does not count."""
        return any(not attempt.slot_usage.is_suspendable for attempt in self._registry.live_attempts.values())

    def stop_claiming(self) -> None:
        """Claim no more runs, since the queue is lost. Those that are being executed go on."""
        self._is_retired = True
        self._registry.close()

    async def run(self) -> None:
        """Execute runs until this is cancelled, then leave every run so that it can be resumed."""
        with self.watchdog.running():
            async with anyio.create_task_group() as tasks:
                try:
                    tasks.start_soon(self._start_ready)
                    while True:
                        # Cleared before the look, so that a concurrent wake-up is not lost.
                        self._registry.wake_up.clear()
                        if not self._is_retired:
                            await self._look()
                        with anyio.move_on_after(INBOX_POLL_SECONDS):
                            await self._registry.wake_up.wait()
                finally:
                    with anyio.CancelScope(shield=True):
                        await self._leave_all()

    async def _leave_all(self) -> None:
        self._registry.close()
        # Also those that are about to be live.
        while self._registry.claims:
            for attempt in list(self._registry.live_attempts.values()):
                attempt.interrupt("stopped")
            for task in self._interruptible:
                task.cancel()
            await anyio.sleep(0.005)
        if not self._is_retired:
            # What stays in the queue is deleted by the next host.
            with tolerate_temporary_errors("cannot delete what logs have"):
                await self._delete_started()
                await self._inbox.delete_recorded()

    async def _look(self) -> None:
        # After an error the next look may go better. Runs that are being executed go on.
        with tolerate_temporary_errors("cannot look for work"):
            await self._delete_started()
            await self._inbox.deliver_all()
            if self._registry.policy is ClaimPolicy.QUEUED:
                await self._claim_queued()
            await self._lifecycle.check_runs()

    async def _delete_started(self) -> None:
        """Delete the dispatches of runs whose logs are on disk, many at once."""
        recorded = self._registry.recorded()
        await self._ports.queue.mark_started(recorded)
        self._registry.forget_started(recorded)

    async def _start_ready(self) -> None:
        """Start the runs that this process has claimed already."""
        while True:
            for claim in await self._registry.take_ready():
                if self._lifecycle.is_waiting_for_definition(claim):
                    self._registry.remove(claim)
                else:
                    self._start(claim, self._slots.slot())

    async def _claim_queued(self) -> None:
        while slots := self._slots.acquire_free():
            claimed: list[QueuedRun] = []
            try:
                claimed = await self._ports.queue.claim(self._registry.host_id, len(slots))
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
        # Not in a task group: only the attempt itself decides when it is left, and `_leave_all` waits for every claim.
        task = asyncio.create_task(self._execute(claim, slot))
        self._executions.add(task)
        task.add_done_callback(self._executions.discard)

    @contextmanager
    def _may_be_interrupted(self) -> Generator[None]:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a run is executed by a task")
        self._interruptible.add(task)
        try:
            yield
        finally:
            self._interruptible.discard(task)

    async def _execute(self, claim: Claim, slot: Slot) -> None:
        """Make an attempt at a claimed run when there is a slot; and again, for as long as it cannot be recorded."""
        is_over = False
        try:
            while not is_over:
                if not slot.is_acquired:
                    with self._may_be_interrupted():
                        await claim.acquire(slot)
                try:
                    if claim.queued is None and claim.cancel_reason is None:
                        # A run that was cut off is not resumed only to be cancelled then.
                        claim.cancel_reason = await self._inbox.claim_cancel(claim.run_id) or claim.cancel_reason
                    if await self._lifecycle.attempt(claim, slot):
                        self._inbox.mark_cancels_recorded(claim.run_id)
                    is_over = True
                except Exception as error:  # noqa: BLE001 - a defect of ours in one run must not take the others with it
                    is_over = await self._is_over(claim, error)
                if not is_over:
                    slot.release()
                    # The next attempt gets the messages that this one could not record.
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
        """Whether this process is done with a run whose attempt raised this; False where it has to try again."""
        match error:
            case RunEnded():
                return True
            case LogBusy():
                # Another process has the run; or it only looks whether one has, and then the run is still for this one.
                return claim.queued is None and await self._ports.reader.has_writer(claim.run_id)
            case StorageError() | StoreError():
                _log.warning("run %s waits for the storage: %s", claim.run_id, error.message)
                return False
            case _ if is_shortage(error):
                short = "the process is short of memory, threads or descriptors"
                _log.warning("run %s waits: %s: %s", claim.run_id, short, error)
                return False
            case ExceptionGroup() if is_temporary(error):
                _log.warning("run %s waits: %s", claim.run_id, "; ".join(map(str, error.exceptions)))
                return False
            case ShopfloorError() if claim.queued is None and not claim.has_started:
                _log.warning("run %s cannot be resumed: %s", claim.run_id, error.message)
                return True
            case _:
                _log.error("run %s cannot be executed", claim.run_id, exc_info=error)
                # No other process ends the run as long as this one lives. The next attempt finds the outcome, and
                # notifies the parent.
                try:
                    return not await self._lifecycle.end_failed(claim, _failure_of(error))
                except Exception as failed:  # noqa: BLE001 - see above
                    _log.warning("run %s cannot be ended for now: %r", claim.run_id, failed)
                return False


def _failure_of(error: Exception) -> RunError:
    if isinstance(error, ShopfloorError):
        return to_run_error(error)
    return RunError(code=UnexpectedError.code, message=f"a defect of Shopfloor: {type(error).__name__}: {error}")
