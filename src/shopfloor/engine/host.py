"""A host: it claims runs, works on as many as it has slots, takes up orders, and goes on with what others left."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Literal

import anyio
import anyio.abc
import anyio.to_thread
import msgspec

from shopfloor.engine.attempt import Attempt, Trying
from shopfloor.engine.conduct import conduct
from shopfloor.engine.interpreter import Interpreter
from shopfloor.engine.journal import Journal, read_journal
from shopfloor.engine.orphans import can_go_on, end_orphan
from shopfloor.engine.run import Run, as_json
from shopfloor.engine.slots import HostSlot, Slots
from shopfloor.engine.steps.tools import tools_of
from shopfloor.engine.workers.catalogue import Catalogue
from shopfloor.engine.workers.definition import Definition, definition_hash
from shopfloor.engine.workers.python import arguments_of
from shopfloor.engine.works import LocalWorks
from shopfloor.engine.workshop import Workshop
from shopfloor.errors import (
    ConflictError,
    DefinitionChanged,
    LogBusy,
    RunEnded,
    ShopfloorError,
    StepFailed,
    StorageError,
    StorageFull,
    StoreError,
)
from shopfloor.limits import (
    ENGINE_PAUSE_SECONDS,
    HOST_SLOTS,
    IDLE_RUNS,
    IDLE_SECONDS,
    RUN_RETRY_SECONDS,
    STOPPED_HOST_SECONDS,
)
from shopfloor.log import FORMAT, Event, RunCompleted, RunStarted, decode, new_run_id, now
from shopfloor.ports import Asked, Dispatch, Hosts, LogReader, Logs, Models, Order, Processes, Queue
from shopfloor.record import Storage

_log = logging.getLogger("shopfloor.engine")

Duty = Literal["all", "own", "cancels"]
"""What a host takes up: whatever there is; runs that it was asked for itself; or cancels of runs that have no host."""


class Host:
    """Everything that one process does for runs."""

    def __init__(
        self,
        host: str,
        *,
        storage: Storage,
        hosts: Hosts,
        logs: Logs,
        reader: LogReader,
        queue: Queue,
        works: LocalWorks,
        processes: Processes,
        models: Models,
        catalogue: Catalogue,
        cwd: str,
        slots: int = HOST_SLOTS,
        duty: Duty = "all",
        idle_seconds: float = IDLE_SECONDS,
    ) -> None:
        self.id = host
        self._storage = storage
        self._hosts = hosts
        self._logs = logs
        self._reader = reader
        self._queue = queue
        self._works = works
        self._processes = processes
        self._models = models
        self._catalogue = catalogue
        self._cwd = cwd
        self._slots = Slots(slots)
        self._duty = duty
        self._idle_seconds = idle_seconds
        self._live: dict[str, Attempt] = {}
        self._begun: set[str] = set()
        """Those that are live, or are about to be."""
        self._lined_up: dict[str, tuple[anyio.CancelScope, list[str]]] = {}
        """Those that wait for a slot; and why they need none any more, where they are cancelled."""
        self._again: set[str] = set()
        """Those to be taken up once more when they have been left."""
        self._started: list[str] = []
        self._taken: dict[str, list[int]] = {}
        """Orders whose run has them, but whose log not yet."""
        self._pressed: dict[str, float] = {}
        """Since when another host has been asked to cancel a run."""
        self._news = anyio.Event()
        self._stopping = False
        self._tasks: anyio.abc.TaskGroup

    def wake(self) -> None:
        """Something has been ordered, or has ended."""
        self._news.set()

    @property
    def busy(self) -> bool:
        return bool(self._begun)

    async def run(self, *, started: Callable[[], Awaitable[None]] | None = None) -> None:
        """Goes on until it is cancelled; then every run is left so that it can be gone on with."""
        async with anyio.create_task_group() as self._tasks:
            try:
                if started is not None:
                    await started()
                while True:
                    self._news = anyio.Event()
                    await self._look()
                    with anyio.move_on_after(ENGINE_PAUSE_SECONDS):
                        await self._news.wait()
            finally:
                with anyio.CancelScope(shield=True):
                    await self._leave_all()

    async def _leave_all(self) -> None:
        self._stopping = True
        # Also those that are about to be live.
        while self._begun:
            for attempt in list(self._live.values()):
                attempt.leave("stopped")
            await anyio.sleep(0.005)
        await self._forget_started()

    async def _look(self) -> None:
        try:
            await self._forget_started()
            await self._obey()
            if self._duty == "all":
                await self._claim()
            self._let_go()
            self._mind_the_disk()
        except ShopfloorError as error:
            # The next look may go better; what runs, runs.
            _log.warning("cannot look for work: %s", error.message)

    # Taking up runs.

    async def _claim(self) -> None:
        while slots := self._slots.take_free():
            claimed: list[Dispatch] = []
            try:
                claimed = await self._queue.claim(self.id, len(slots))
            finally:
                for slot in slots[len(claimed) :]:
                    slot.give()
            for order, slot in zip(claimed, slots, strict=False):
                self._begin(order.run_id, slot, order)
            if len(claimed) < len(slots):
                break

    async def take_in(self, order: Dispatch) -> str:
        """Keeps an order for a run: for any host, or for us alone where that is our duty. Gives the run's id."""
        own = self._duty == "own"
        run_id = await self._queue.dispatch(order, host=self.id if own else None)
        if not own:
            self.wake()
        elif run_id == order.run_id and run_id not in self._begun:
            self._begin(run_id, self._slots.slot(), order)
        return run_id

    def go_on(self, run_id: str) -> None:
        """Takes up a run that has a log already."""
        if run_id in self._begun:
            self._again.add(run_id)
        else:
            self._begin(run_id, self._slots.slot(), None)

    def _begin(self, run_id: str, slot: HostSlot, order: Dispatch | None, cancel: str | None = None) -> None:
        if not self._stopping:
            self._begun.add(run_id)
            self._tasks.start_soon(self._go, run_id, slot, order, cancel)

    async def _go(self, run_id: str, slot: HostSlot, order: Dispatch | None, cancel: str | None) -> None:
        try:
            done = await self._tried(run_id, slot, order, cancel)
            while not done:
                await anyio.sleep(RUN_RETRY_SECONDS)
                done = await self._tried(run_id, slot, order, cancel)
        finally:
            slot.give()
            self._begun.discard(run_id)
            self._taken.pop(run_id, None)
            self.wake()
        if run_id in self._again:
            self._again.discard(run_id)
            self.go_on(run_id)

    async def _tried(self, run_id: str, slot: HostSlot, order: Dispatch | None, cancel: str | None) -> bool:
        """False where it could not be tried, or not be recorded: it is ours, and nobody else will see to it."""
        if cancel is None:
            reasons: list[str] = []
            with anyio.CancelScope() as waiting:
                self._lined_up[run_id] = (waiting, reasons)
                try:
                    await slot.take()
                finally:
                    del self._lined_up[run_id]
            cancel = reasons[0] if reasons else None
        try:
            # From here on only the attempt itself decides when it is left.
            with anyio.CancelScope(shield=True):
                await self._attempt(run_id, slot, order, cancel)
        except (LogBusy, RunEnded):
            # Somebody else has it, or has ended it.
            return True
        except ShopfloorError as error:
            _log.warning("run %s cannot be gone on with for now: %s", run_id, error.message)
            slot.give()
            return not isinstance(error, StorageError | StoreError)
        except Exception:  # noqa: BLE001 - a defect of ours in one run must not take the others with it
            _log.exception("run %s cannot be gone on with", run_id)
        return True

    async def _attempt(self, run_id: str, slot: HostSlot, order: Dispatch | None, cancel: str | None) -> None:
        parent = order.parent_run_id if order else await self._parent_of(run_id)
        # Asked before it is opened, which makes one.
        has_log = order is None or await self._reader.page(run_id, limit=1) is not None
        async with self._logs.open(run_id, parent_run_id=parent) as log:
            journal = await read_journal(self._reader, run_id) if has_log else Journal(run_id)
            if journal.outcome is not None or (journal.first is None and order is None):
                return
            attempt = Attempt(journal, log, slot=slot, on_idle=self._idle)
            self._live[run_id] = attempt
            try:
                await attempt.append(self._run_started(journal, order))
                if order is not None:
                    self._started.append(run_id)
                if cancel is not None:
                    attempt.cancel(cancel)
                self.wake()
                outcome = await conduct(
                    attempt, lambda: self._work(attempt), before_end=lambda: self._cancel_children(attempt)
                )
            finally:
                del self._live[run_id]
        taken = self._taken.pop(run_id, [])
        if outcome is not None:
            await self._tell(run_id, parent)
            # Without an outcome the order stays: it came when the run was being left already.
            await self._queue.done(taken)
        elif attempt.leaving == "suspended" and (attempt.stirred or not journal.waits.waiting):
            # What it waited for came while it was being left.
            self._again.add(run_id)

    async def _parent_of(self, run_id: str) -> str | None:
        entries = await self._reader.page(run_id, limit=1)
        return decode(entries[0].raw).parent_run_id if entries else None

    def _run_started(self, journal: Journal, order: Dispatch | None) -> RunStarted:
        if journal.first is not None or order is None:
            first = journal.first
            name, kind = (first.name, first.kind) if first else ("", "")
            return RunStarted(name=name, kind=kind, attempt=journal.attempt + 1, host=self.id)
        return RunStarted(
            name=order.worker,
            kind="worker",
            attempt=1,
            host=self.id,
            task=order.task,
            input=order.input,
            worker_type=order.worker_type,
            agent_id=order.agent_id,
            channel_id=order.channel_id,
            channel_name=order.channel_name,
            root_run_id=order.root_run_id,
            queued_at=order.queued_at,
            definition=order.definition,
            definition_hash=order.definition_hash,
            idempotency_key=order.idempotency_key,
            cwd=order.cwd,
            parent={"run_id": order.parent_run_id} if order.parent_run_id else None,
            format=FORMAT,
        )

    async def _work(self, attempt: Attempt) -> Any:
        first = attempt.journal.first
        if first is None or first.definition is None:
            raise StepFailed("the log does not say what was to be done: it cannot be gone on with")
        definition = msgspec.convert(first.definition, Definition)
        workshop = Workshop(
            models=self._models, processes=self._processes, call_worker=self._call_worker, cwd=first.cwd or self._cwd
        )
        given = first.input or {}
        if definition.function is None:
            return await Interpreter(attempt, workshop, definition, given).run()
        worker = self._catalogue.get(definition.slug)
        if worker.function is None or definition_hash(worker.definition) != first.definition_hash:
            raise DefinitionChanged(
                f"the worker {definition.slug!r} is not the one that this run began with",
                hint="put the earlier one back, or start a new run",
            )
        run = Run(attempt, workshop, given=given, tools=tools_of(definition))
        return as_json(definition.slug, await worker.function(run, **arguments_of(worker.function, given)))

    # Sub-runs.

    async def _call_worker(self, attempt: Attempt, trying: Trying, worker: str, given: dict[str, Any]) -> Any:
        first = attempt.journal.first
        record = attempt.journal.steps.get(trying.place)
        child = record.child_run_id if trying.resumed and record else None
        outcome = await self._outcome_of(child) if child is not None else None
        if outcome is None:
            asked = Asked(
                worker=worker,
                input=given,
                owner=first.agent_id if first else None,
                channel_id=first.channel_id if first else None,
                channel_name=first.channel_name if first else None,
                parent_run_id=attempt.run_id,
                root_run_id=(first.root_run_id if first else None) or attempt.run_id,
                run_id=child or new_run_id(),
                cwd=first.cwd if first else None,
            )
            outcome = await self._await_child(attempt, trying, asked, known=child is not None)
        if outcome.status == "completed":
            return outcome.result
        why = outcome.error.message if outcome.error else outcome.status
        raise StepFailed(f"the sub-run of {worker!r} {outcome.status}: {why}")

    async def _await_child(self, attempt: Attempt, trying: Trying, asked: Asked, *, known: bool) -> RunCompleted:
        child = asked.run_id or ""
        try:
            with attempt.child(child) as ended:
                if not known or not await self._reader.page(child, limit=1):
                    await self._order_child(attempt, trying, asked, known=known)
                elif self._duty == "own":
                    self.go_on(child)
                async with attempt.waiting():
                    while (outcome := await self._outcome_of(child)) is None:
                        await ended.wait()
            return outcome
        except anyio.get_cancelled_exc_class():
            if attempt.leaving not in ("suspended", "stopped"):
                with anyio.CancelScope(shield=True):
                    await self._cancel(child, attempt.cancellation.reason or "its parent went on without it")
            raise

    async def _order_child(self, attempt: Attempt, trying: Trying, asked: Asked, *, known: bool) -> None:
        order = self._works.order_of(asked)
        if not known:
            await attempt.child_started(trying, order.run_id, asked.worker, asked.input)
        try:
            await self.take_in(order)
        except ConflictError:
            # An earlier attempt has ordered it, and it is still queued.
            if not known:
                raise

    async def _outcome_of(self, run_id: str) -> RunCompleted | None:
        event = await self._last_event(run_id)
        return event.payload if event is not None and isinstance(event.payload, RunCompleted) else None

    async def _last_event(self, run_id: str) -> Event | None:
        entries = await self._reader.page(run_id, before=_FAR, limit=1)
        return decode(entries[-1].raw) if entries else None

    async def _cancel_children(self, attempt: Attempt) -> None:
        """Sub-runs that nobody waits for any more when this run ends go with it."""
        for _, step in attempt.journal.open_steps():
            if step.child_run_id is not None:
                await self._cancel(step.child_run_id, attempt.cancellation.reason or "its parent has ended")

    async def _cancel(self, run_id: str, reason: str) -> None:
        order = Order(id="cancel", run_id=run_id, kind="cancel", body={"reason": reason}, created_at=now())
        await self._queue.put(order)
        self.wake()

    async def _tell(self, run_id: str, parent: str | None) -> None:
        """The outcome is in the log: whoever waits for it may know."""
        if parent is None:
            return
        waiting = self._live.get(parent)
        if waiting is None or not waiting.child_ended(run_id) or waiting.leaving is not None:
            event = await self._last_event(parent)
            if event is not None and not isinstance(event.payload, RunCompleted):
                self.go_on(parent)

    # Orders.

    async def _obey(self) -> None:
        done: list[int] = []
        for number, order in await self._queue.orders():
            attempt = self._live.get(order.run_id)
            if attempt is not None:
                done += await self._hand_over(attempt, number, order)
            elif order.kind == "cancel" and order.run_id in self._lined_up:
                self._leave_line(order)
            elif order.run_id not in self._begun:
                done += await self._take_up(number, order)
        await self._queue.done(done)

    def _leave_line(self, order: Order) -> None:
        waiting, reasons = self._lined_up[order.run_id]
        reasons.append(str(order.body.get("reason") or "cancelled"))
        waiting.cancel()

    async def _hand_over(self, attempt: Attempt, number: int, order: Order) -> list[int]:
        taken = self._taken.setdefault(order.run_id, [])
        if number in taken:
            return []
        try:
            await attempt.deliver(order)
        except (StorageError, RunEnded):
            # It stays an order until a log has it.
            return []
        if order.kind != "cancel":
            return [number]
        taken.append(number)
        return []

    async def _take_up(self, number: int, order: Order) -> list[int]:
        """An order for a run that is not live here: whoever is left to it has to see to it."""
        cancel = str(order.body.get("reason") or "cancelled") if order.kind == "cancel" else None
        if self._duty == "own" or (self._duty == "cancels" and cancel is None):
            return []
        queued = await self._queue.claim_one(order.run_id, self.id) if cancel is not None else None
        if queued is not None:
            self._begin(order.run_id, self._slots.slot(), queued, cancel)
            return []
        last = await self._last_event(order.run_id)
        if last is None:
            return []
        if isinstance(last.payload, RunCompleted):
            return [number]
        host = await self._works.host_of(order.run_id)
        if host is not None and host != self.id and self._hosts.alive(host):
            self._press(order, host)
        elif can_go_on(self._storage, order.run_id):
            self._begin(order.run_id, self._slots.slot(), None, cancel)
        elif cancel is not None:
            end = partial(end_orphan, self._storage, order.run_id, cancelled=cancel)
            await anyio.to_thread.run_sync(end)
        return []

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

    async def _forget_started(self) -> None:
        """Logs have these: their orders go, many at once."""
        started, self._started = self._started, []
        if started:
            await self._queue.started(started)

    # Those that wait.

    def _idle(self, attempt: Attempt) -> None:
        idle = sorted(
            (one for one in self._live.values() if one.suspendable and one.leaving is None),
            key=lambda one: one.idle_since or 0.0,
        )
        for one in idle[: max(0, len(idle) - IDLE_RUNS)]:
            one.leave("suspended")

    def _let_go(self) -> None:
        """A run that has waited long is left: what it waits for is in its log."""
        before = time.monotonic() - self._idle_seconds
        for attempt in self._live.values():
            if attempt.suspendable and attempt.idle_since is not None and attempt.idle_since < before:
                attempt.leave("suspended")

    def _mind_the_disk(self) -> None:
        if self._live and self._logs.room() < 0:
            for attempt in self._live.values():
                attempt.fail(StorageFull("the disk is nearly full: the run was ended while it can still be recorded"))


_FAR = 2**53
