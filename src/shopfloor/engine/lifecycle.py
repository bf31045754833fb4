"""One run, from its start or resumption to its outcome, or to where it is left for now."""

from __future__ import annotations

import time
from typing import Any

import msgspec

from shopfloor.engine.attempt import Attempt
from shopfloor.engine.conduct import conduct, end_if_disk_is_low
from shopfloor.engine.definitions import Definitions, held_call, released_result
from shopfloor.engine.journal import AGENT, Journal, last_event, read_journal
from shopfloor.engine.occupancy import Slot
from shopfloor.engine.orphans import end_orphan
from shopfloor.engine.piece_writer import end_partial_messages
from shopfloor.engine.registry import Claim, RunRegistry
from shopfloor.engine.resumption import Resumption
from shopfloor.engine.run_beginning import run_started
from shopfloor.engine.storage_ports import StoragePorts
from shopfloor.engine.subruns import SubRuns
from shopfloor.engine.watchdog import current_run
from shopfloor.engine.workers.catalogue import Worker
from shopfloor.engine.workers.changes import DefinitionChange
from shopfloor.engine.workers.definition import Definition
from shopfloor.engine.workers.python import arguments_of
from shopfloor.engine.workshop import Workshop
from shopfloor.errors import AgentFailed, OutcomeUnknown, Poisoned, StepFailed
from shopfloor.limits import IDLE_RUNS, IDLE_SECONDS, LEAVING_SECONDS, POISON_ATTEMPTS
from shopfloor.log import FORMAT, RunCompleted, RunError, RunStarted


class Lifecycle:
    """Makes attempts at runs."""

    def __init__(
        self,
        registry: RunRegistry,
        ports: StoragePorts,
        definitions: Definitions,
        sub_runs: SubRuns,
        workshop: Workshop,
        *,
        resumption: Resumption,
        idle_seconds: float = IDLE_SECONDS,
        leaving_seconds: float = LEAVING_SECONDS,
    ) -> None:
        self._registry = registry
        self._ports = ports
        self._definitions = definitions
        self._sub_runs = sub_runs
        self._workshop = workshop
        self._resumption = resumption
        self._idle_seconds = idle_seconds
        self._leaving_seconds = leaving_seconds

    def is_held(self, claim: Claim) -> bool:
        """Whether a run waits for its definition, so that an attempt would do nothing."""
        return claim.queued is None and claim.cancel_reason is None and self._definitions.is_held(claim.run_id)

    async def attempt(self, claim: Claim, slot: Slot) -> bool:
        """Start or resume a run; True where the log has the outcome then. Raises `LogBusy`, `RunEnded`."""
        run_id, queued = claim.run_id, claim.queued
        journal = Journal(run_id) if queued else await read_journal(self._ports.reader, run_id)
        if queued is None and not journal.last_seq:
            # The run has been deleted.
            return False
        parent = queued.parent_run_id if queued else journal.parent_run_id
        async with self._ports.logs.open(run_id, parent_run_id=parent) as log:
            if log.seq != journal.last_seq:
                # The run has been started before, or somebody has resumed it meanwhile.
                journal = await read_journal(self._ports.reader, run_id)
            if journal.outcome is not None:
                # The attempt that wrote the outcome may have failed before it notified the parent.
                await self._resumption.notify_parent(run_id, parent)
                return True
            if journal.first is None and queued is None:
                return False
            host, is_own, masked = self._registry.host_id, self._registry.is_own, self._ports.logs.masks
            started = run_started(journal, queued, host=host, is_caller=is_own, masked=masked)
            definition = self._definitions.read(journal.first or started)
            self._definitions.forget(run_id)
            worker = None
            if definition is not None and claim.cancel_reason is None:
                ordered = started.definition_hash if journal.first is None else None
                worker = self._definitions.look_up(definition, ordered=ordered)
                if isinstance(worker, DefinitionChange) and journal.held_by:
                    # The log tells of the wait already: another attempt would do nothing.
                    self._definitions.hold(run_id, definition)
                    return False
            attempt = Attempt(
                journal,
                log,
                slot=slot,
                on_idle=self._note_idle,
                cancel_tree=self._sub_runs.cancel_tree,
                leaving_seconds=self._leaving_seconds,
            )
            self._registry.live[run_id] = attempt
            current_run.set(run_id)
            try:
                await self._start(attempt, started, claim)
                if isinstance(worker, DefinitionChange) and definition is not None and attempt.leaving is None:
                    await attempt.append(held_call(worker))
                    self._definitions.hold(run_id, definition)
                    return False
                for call_id in journal.held_by if claim.cancel_reason is None else ():
                    await attempt.append(released_result(call_id))
                outcome = await conduct(
                    attempt,
                    lambda: self._execute(attempt, definition, worker),
                    before_end=lambda: self._sub_runs.cancel_open(attempt),
                )
            finally:
                del self._registry.live[run_id]
        if outcome is not None:
            await self._resumption.notify_parent(run_id, parent)
        elif attempt.leaving == "suspended" and (attempt.occupancy.stirred or not journal.waits.waiting):
            # What the run waited for came while the run was being left.
            claim.is_resumed_again = True
        return outcome is not None

    async def _start(self, attempt: Attempt, started: RunStarted, claim: Claim) -> None:
        await attempt.append(started)
        await end_partial_messages(attempt)
        if attempt.journal.attempt == 1 and claim.has_started:
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
        claim.has_started = True
        if claim.queued is not None:
            self._registry.started.append(attempt)
        if claim.cancel_reason is not None:
            attempt.cancel(claim.cancel_reason)
        self._registry.wake_up.set()

    async def _execute(
        self, attempt: Attempt, definition: Definition | None, worker: Worker | DefinitionChange | None
    ) -> Any:
        """Execute the steps of a worker, and return its output."""
        # Not at the top: a server answers before it executes anything. Its warm-up loads them.
        from shopfloor.engine.interpreter import Interpreter
        from shopfloor.engine.run import Run, as_json
        from shopfloor.engine.steps.tools import tools_of

        first = attempt.journal.first
        if first is not None and first.definition is None and first.kind == AGENT:
            raise AgentFailed("the agent that it worked for was cut off")
        if first is None or definition is None:
            raise StepFailed("the log does not say what was to be done: it cannot be gone on with")
        workshop = msgspec.structs.replace(self._workshop, cwd=first.cwd or self._workshop.cwd)
        given = first.input or {}
        if not isinstance(worker, Worker) or worker.function is None:
            return await Interpreter(attempt, workshop, definition, given).run()
        run = Run(attempt, workshop, given=given, tools=tools_of(worker.definition))
        return as_json(definition.slug, await worker.function(run, **arguments_of(worker.function, given)))

    async def end_failed(self, claim: Claim, failure: RunError) -> bool:
        """End a run whose attempt could not go on; False where there is nothing to end, or another process has it."""
        run_id, queued = claim.run_id, claim.queued
        if await last_event(self._ports.reader, run_id) is not None:
            return await end_orphan(self._ports, run_id, failure=failure)
        if queued is None:
            return False
        async with self._ports.logs.open(run_id, parent_run_id=queued.parent_run_id) as log:
            name, kind = queued.started.name, queued.started.kind
            await log.append(RunStarted(name=name, kind=kind, attempt=1, host=self._registry.host_id, format=FORMAT))
            await log.append(RunCompleted(name=name, kind=kind, status="failed", error=failure))
        await self._ports.queue.started([run_id])
        return True

    # Checks of all runs of this process.

    async def check_runs(self) -> None:
        """Resume runs whose definition is back, suspend those that have waited long, end all where the disk is full."""
        for run_id in self._definitions.release():
            self._registry.resume(run_id)
        before = time.monotonic() - self._idle_seconds
        for attempt in self._suspendable():
            if (attempt.occupancy.idle_since or before) < before:
                attempt.leave("suspended")
        if self._registry.live:
            end_if_disk_is_low(self._ports.logs, self._registry.live.values())

    def _note_idle(self) -> None:
        """Have the free slot used, and suspend the runs that have waited longest where too many of them wait."""
        self._registry.wake_up.set()
        waiting = self._suspendable()
        for attempt in waiting[: max(0, len(waiting) - IDLE_RUNS)]:
            attempt.leave("suspended")

    def _suspendable(self) -> list[Attempt]:
        """Return the attempts that only wait, those that have waited longest first."""
        if self._registry.is_own:
            # No other process would resume them.
            return []
        waiting = [one for one in self._registry.live.values() if one.occupancy.suspendable and one.leaving is None]
        return sorted(waiting, key=lambda one: one.occupancy.idle_since or 0.0)
