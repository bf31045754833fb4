"""A host: it claims runs, works on as many as it has slots, takes up orders, and goes on with what others left."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any

import anyio
import anyio.abc
import anyio.to_thread
import msgspec

from shopfloor.engine.agents.asking import AgentDesk
from shopfloor.engine.attempt import Attempt
from shopfloor.engine.conduct import conduct, end_if_disk_is_low
from shopfloor.engine.definitions import Definitions, definition_of, held_call, released_result
from shopfloor.engine.duty import Duty
from shopfloor.engine.interpreter import Interpreter
from shopfloor.engine.journal import AGENT, Journal, last_event, read_journal
from shopfloor.engine.orders import Orders
from shopfloor.engine.orphans import end_orphan
from shopfloor.engine.piece_writer import end_partial_messages
from shopfloor.engine.resumption import Resumption
from shopfloor.engine.run import Run, as_json
from shopfloor.engine.run_beginning import run_started
from shopfloor.engine.shortage import is_shortage, is_temporary
from shopfloor.engine.slots import HostSlot, Slots
from shopfloor.engine.steps.tools import tools_of
from shopfloor.engine.subruns import SubRuns
from shopfloor.engine.watchdog import Watchdog, current_run
from shopfloor.engine.workers.catalogue import Catalogue, Worker
from shopfloor.engine.workers.changes import DefinitionChange
from shopfloor.engine.workers.definition import Definition
from shopfloor.engine.workers.python import arguments_of
from shopfloor.engine.works import LocalWorks
from shopfloor.engine.workshop import Workshop
from shopfloor.errors import (
    AgentFailed,
    LogBusy,
    OutcomeUnknown,
    Poisoned,
    RunEnded,
    ShopfloorError,
    StepFailed,
    StorageError,
    StoreError,
    UnexpectedError,
)
from shopfloor.limits import (
    ENGINE_PAUSE_SECONDS,
    HOST_SLOTS,
    IDLE_RUNS,
    IDLE_SECONDS,
    LEAVING_SECONDS,
    POISON_ATTEMPTS,
    RUN_RETRY_SECONDS,
)
from shopfloor.log import AssistantMessage, RunCompleted, RunError, RunStarted
from shopfloor.ports import Dispatch, Hosts, LogReader, Logs, Models, Processes, Queue, parent_of
from shopfloor.record import Storage, is_locked

_log = logging.getLogger("shopfloor.engine")


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
        agents: AgentDesk,
        catalogue: Catalogue,
        cwd: str,
        slots: int = HOST_SLOTS,
        duty: Duty = "all",
        idle_seconds: float = IDLE_SECONDS,
        leaving_seconds: float = LEAVING_SECONDS,
    ) -> None:
        self.id = host
        self._storage = storage
        self._logs = logs
        self._reader = reader
        self._queue = queue
        self._processes = processes
        self._models = models
        self._agents = agents
        self._definitions = Definitions(catalogue)
        self._cwd = cwd
        self._slots = Slots(slots)
        self._duty: Duty = duty
        self._idle_seconds = idle_seconds
        self._leaving_seconds = leaving_seconds
        self._live: dict[str, Attempt] = {}
        self._begun: set[str] = set()
        """Those that are live, or are about to be."""
        self._lined_up: dict[str, tuple[anyio.CancelScope, list[str]]] = {}
        """Those that wait for a slot; and why they need none any more, where they are cancelled."""
        self._again: set[str] = set()
        """Those to be taken up once more when they have been left."""
        self._on_record: set[str] = set()
        """Those that have begun here: whatever becomes of their logs, they do not begin a second time."""
        self._started: list[tuple[str, Attempt]] = []
        """Runs whose orders are still kept."""
        self._news = anyio.Event()
        self._stopping = False
        self._retired = False
        self._tasks: anyio.abc.TaskGroup
        works.attended = lambda run_id: self.has(run_id) or is_locked(storage.log_path(run_id))
        self._resumption = Resumption(
            self,
            storage=storage,
            hosts=hosts,
            logs=logs,
            reader=reader,
            queue=queue,
            catalogue=catalogue,
            definitions=self._definitions,
        )
        self.refusal = works.refusal = self._resumption.refusal
        self.claim_abandoned = self._resumption.claim_abandoned
        if duty == "own":
            works.resume_here = self._resumption.resume_here
        self._sub_runs = SubRuns(self, reader=reader, queue=queue, works=works)
        self.watchdog = Watchdog(self._note_blocked)
        self._orders = Orders(self, storage=storage, hosts=hosts, reader=reader, queue=queue, works=works)

    def wake(self) -> None:
        """Something has been ordered, or has ended."""
        self._news.set()

    @property
    def duty(self) -> Duty:
        return self._duty

    def live(self, run_id: str) -> Attempt | None:
        return self._live.get(run_id)

    def has(self, run_id: str) -> bool:
        """Whether it is live, or about to be."""
        return run_id in self._begun

    @property
    def busy(self) -> bool:
        return bool(self._begun)

    @property
    def executing(self) -> bool:
        """Whether a run is being executed: one that only waits does not count."""
        return any(not attempt.occupancy.suspendable for attempt in self._live.values())

    def retire(self) -> None:
        """Look for no more work, since the queue is lost; what is being executed goes on."""
        self._retired = True

    async def run(self, *, started: Callable[[], Awaitable[None]] | None = None) -> None:
        """Goes on until it is cancelled; then every run is left so that it can be gone on with."""
        with self.watchdog.running():
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
        if not self._retired:
            await self._forget_started()

    async def _look(self) -> None:
        if self._retired:
            return
        try:
            await self._forget_started()
            await self._orders.obey()
            if self._duty == "all":
                await self._claim()
            for run_id in self._definitions.release():
                # It may have been deleted meanwhile.
                if self._storage.log_path(run_id).exists():
                    self.go_on(run_id)
            self._let_go()
            if self._live:
                end_if_disk_is_low(self._logs, self._live.values())
        except Exception as error:
            if not is_temporary(error):
                raise
            # The next look may go better; what runs, runs.
            _log.warning("cannot look for work: %s", error)

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
        if own:
            order = msgspec.structs.replace(order, executor="caller", masked=self._logs.masks)
        run_id = await self._queue.dispatch(order, host=self.id if own else None)
        if not own:
            self.wake()
        elif run_id == order.run_id and run_id not in self._begun:
            self._begin(run_id, self._slots.slot(), order)
        return run_id

    def go_on(self, run_id: str) -> None:
        """Takes up a run that has a log already, unless it waits for its definition."""
        if run_id in self._begun:
            self._again.add(run_id)
        elif not self._definitions.is_held(run_id):
            self._begin(run_id, self._slots.slot(), None)

    def begin(self, order: Dispatch) -> None:
        """Start a run that this host has claimed."""
        self._begin(order.run_id, self._slots.slot(), order)

    async def adopt(self, run_id: str) -> bool:
        """Resume a run that has a log and no host; False where it is taken up already, or is not for a server."""
        if run_id in self._begun or self._definitions.is_held(run_id) or await self.refusal(run_id) is not None:
            return False
        if run_id not in self._begun:
            self._begin(run_id, self._slots.slot(), None)
        return True

    def cancel(self, run_id: str, reason: str, order: Dispatch | None = None) -> None:
        """Takes up a run only to end it: for that it needs no slot."""
        self._begin(run_id, self._slots.slot(), order, reason)

    def leave_line(self, run_id: str, reason: str) -> bool:
        """Ends the wait of a run for its slot, since it is cancelled; False where it does not wait for one."""
        if run_id not in self._lined_up:
            return False
        waiting, reasons = self._lined_up[run_id]
        reasons.append(reason)
        waiting.cancel()
        return True

    def _begin(self, run_id: str, slot: HostSlot, order: Dispatch | None, cancel: str | None = None) -> None:
        if not (self._stopping or self._retired):
            self._begun.add(run_id)
            self._tasks.start_soon(self._go, run_id, slot, order, cancel)

    async def _go(self, run_id: str, slot: HostSlot, order: Dispatch | None, cancel: str | None) -> None:
        try:
            done = await self._tried(run_id, slot, order, cancel)
            while not done:
                # What the last try was told and did not record is told anew.
                self._orders.forget(run_id)
                await anyio.sleep(RUN_RETRY_SECONDS)
                done = await self._tried(run_id, slot, order, cancel)
        finally:
            slot.give()
            self._begun.discard(run_id)
            self._on_record.discard(run_id)
            self._orders.forget(run_id)
            self.wake()
        if run_id in self._again:
            self._again.discard(run_id)
            self.go_on(run_id)

    async def _tried(self, run_id: str, slot: HostSlot, order: Dispatch | None, cancel: str | None) -> bool:
        """False where it could not be tried, or not be recorded: it is ours, and nobody else will see to it."""
        if cancel is None and not slot.held:
            cancel = await self._wait_in_line(run_id, slot)
        try:
            # From here on only the attempt itself decides when it is left.
            with anyio.CancelScope(shield=True):
                await self._attempt(run_id, slot, order, cancel)
        except LogBusy:
            # Somebody else has it. Or somebody has only looked whether anybody has, and then it is still for us.
            slot.give()
            return order is None and is_locked(self._storage.log_path(run_id))
        except RunEnded:
            return True
        except ShopfloorError as error:
            _log.warning("run %s cannot be gone on with for now: %s", run_id, error.message)
            slot.give()
            return not isinstance(error, StorageError | StoreError)
        except Exception as error:  # noqa: BLE001 - a defect of ours in one run must not take the others with it
            if is_shortage(error):
                _log.warning("run %s waits: the process is short of memory, threads or descriptors: %s", run_id, error)
                slot.give()
                return False
            _log.exception("run %s cannot be gone on with", run_id)
            await self._end_broken(run_id, error)
        return True

    async def _end_broken(self, run_id: str, error: Exception) -> None:
        """Nobody else will end it, as long as we live."""
        failure = RunError(code=UnexpectedError.code, message=f"a defect of Shopfloor: {type(error).__name__}: {error}")
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(partial(end_orphan, self._storage, run_id, failure=failure))

    async def _wait_in_line(self, run_id: str, slot: HostSlot) -> str | None:
        """Waits for the slot; gives the reason where the run is cancelled meanwhile."""
        reasons: list[str] = []
        with anyio.CancelScope() as waiting:
            self._lined_up[run_id] = (waiting, reasons)
            try:
                await slot.take()
            finally:
                del self._lined_up[run_id]
        return reasons[0] if reasons else None

    async def _attempt(self, run_id: str, slot: HostSlot, order: Dispatch | None, cancel: str | None) -> None:
        parent = order.parent_run_id if order else await parent_of(self._reader, run_id)
        async with self._logs.open(run_id, parent_run_id=parent) as log:
            journal = await read_journal(self._reader, run_id) if log.seq else Journal(run_id)
            if journal.outcome is not None or (journal.first is None and order is None):
                return
            if order is None and cancel is None:
                # One that was cut off is not gone on with only to be cancelled then.
                cancel = await self._orders.cancel_of(run_id)
            own = self._duty == "own"
            started = run_started(journal, order, host=self.id, is_caller=own, masked=self._logs.masks)
            definition = definition_of(journal.first or started)
            self._definitions.forget(run_id)
            worker = None
            if definition is not None and cancel is None:
                ordered = started.definition_hash if journal.first is None else None
                worker = self._definitions.look_up(definition, ordered=ordered)
                if isinstance(worker, DefinitionChange) and journal.held_by:
                    # The log tells of the wait already: another attempt would do nothing.
                    self._definitions.hold(run_id, definition)
                    return
            attempt = Attempt(
                journal,
                log,
                slot=slot,
                on_idle=self._idle,
                cancel_tree=self._sub_runs.cancel_tree,
                leaving_seconds=self._leaving_seconds,
            )
            self._live[run_id] = attempt
            current_run.set(run_id)
            try:
                await self._begin_attempt(attempt, started, order, cancel)
                if isinstance(worker, DefinitionChange) and definition is not None and attempt.leaving is None:
                    await attempt.append(held_call(worker))
                    self._definitions.hold(run_id, definition)
                    return
                for call_id in journal.held_by if cancel is None else ():
                    await attempt.append(released_result(call_id))
                outcome = await conduct(
                    attempt,
                    lambda: self._work(attempt, definition, worker),
                    before_end=lambda: self._sub_runs.cancel_open(attempt),
                )
            finally:
                del self._live[run_id]
        if outcome is not None:
            await self._tell(run_id, parent)
            # Without an outcome the order stays: it came when the run was being left already.
            await self._orders.settle(run_id)
        elif attempt.leaving == "suspended" and (attempt.occupancy.stirred or not journal.waits.waiting):
            # What it waited for came while it was being left.
            self._again.add(run_id)

    async def _begin_attempt(
        self, attempt: Attempt, started: RunStarted, order: Dispatch | None, cancel: str | None
    ) -> None:
        run_id = attempt.run_id
        await attempt.append(started)
        await end_partial_messages(attempt)
        if attempt.journal.attempt == 1 and run_id in self._on_record:
            attempt.fail(
                OutcomeUnknown(
                    "its log was lost while it was worked on: what it had done is not known",
                    hint="look at what it did before you start it again",
                )
            )
        if attempt.journal.blocked_attempts >= POISON_ATTEMPTS:
            attempt.fail(
                Poisoned(
                    f"its code blocked the event loop of {POISON_ATTEMPTS} hosts in a row, until they were stopped",
                    hint="its log says where; `await` something there, or make it a plain function and a `run.step`",
                )
            )
        self._on_record.add(run_id)
        if order is not None:
            self._started.append((run_id, attempt))
        if cancel is not None:
            attempt.cancel(cancel)
        self.wake()

    async def _work(
        self, attempt: Attempt, definition: Definition | None, worker: Worker | DefinitionChange | None
    ) -> Any:
        first = attempt.journal.first
        if first is not None and first.definition is None and first.kind == AGENT:
            raise AgentFailed("the agent that it worked for was cut off")
        if first is None or definition is None:
            raise StepFailed("the log does not say what was to be done: it cannot be gone on with")
        workshop = Workshop(
            models=self._models,
            processes=self._processes,
            agents=self._agents,
            call_worker=self._sub_runs.call,
            cwd=first.cwd or self._cwd,
        )
        given = first.input or {}
        if not isinstance(worker, Worker) or worker.function is None:
            return await Interpreter(attempt, workshop, definition, given).run()
        run = Run(attempt, workshop, given=given, tools=tools_of(worker.definition))
        return as_json(definition.slug, await worker.function(run, **arguments_of(worker.function, given)))

    # Ends.

    async def _tell(self, run_id: str, parent: str | None) -> None:
        """The outcome is in the log: whoever waits for it may know."""
        if parent is None:
            return
        waiting = self._live.get(parent)
        if waiting is None or not waiting.notify(run_id) or waiting.leaving is not None:
            event = await last_event(self._reader, parent)
            if event is not None and not isinstance(event.payload, RunCompleted):
                self.go_on(parent)

    async def _forget_started(self) -> None:
        """The logs of these are on disk: their orders go, many at once."""
        started = [run_id for run_id, attempt in self._started if attempt.on_disk]
        self._started = [one for one in self._started if not one[1].on_disk]
        if started:
            await self._queue.started(started)

    def _note_blocked(self, run_id: str, note: AssistantMessage) -> None:
        """Write into the log of a run that it blocks the event loop. Called by the watchdog's thread."""
        attempt = self._live.get(run_id)
        if attempt is not None:
            with suppress(ShopfloorError, OSError):
                attempt.append_now(note)

    # Those that wait.

    def _idle(self) -> None:
        if self._duty == "own":
            # Nobody would take it up again.
            return
        idle = sorted(
            (one for one in self._live.values() if one.occupancy.suspendable and one.leaving is None),
            key=lambda one: one.occupancy.idle_since or 0.0,
        )
        for one in idle[: max(0, len(idle) - IDLE_RUNS)]:
            one.leave("suspended")

    def _let_go(self) -> None:
        """A run that has waited long is left: what it waits for is in its log."""
        if self._duty == "own":
            return
        before = time.monotonic() - self._idle_seconds
        for attempt in self._live.values():
            occupancy = attempt.occupancy
            if occupancy.suspendable and occupancy.idle_since is not None and occupancy.idle_since < before:
                attempt.leave("suspended")
