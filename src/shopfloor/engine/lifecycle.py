"""The lifecycle of a run in this process: from claim to outcome, or until the run is suspended or stopped."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import anyio
import anyio.lowlevel
import msgspec
from msgspec.structs import replace

from shopfloor.engine.abandonable_task import TaskAbandoned
from shopfloor.engine.attempt import ROOT_KEY, Attempt, Finished, StepTry
from shopfloor.engine.definitions import Definitions, definition_wait_call, definition_wait_result
from shopfloor.engine.engine_ports import StepContext, StoragePorts
from shopfloor.engine.error_mapping import as_run_failed, to_run_error
from shopfloor.engine.fork import copy_events
from shopfloor.engine.maintenance import end_orphan
from shopfloor.engine.partial_message_writer import end_partial_messages
from shopfloor.engine.registry import Claim, RunRegistry
from shopfloor.engine.replay_state import AGENT, ReplayState, elapsed_ms, last_event, read_replay_state, seconds_since
from shopfloor.engine.resumption import Resumption
from shopfloor.engine.slot_usage import Slot
from shopfloor.engine.subruns import SubRuns
from shopfloor.engine.watchdog import current_run
from shopfloor.engine.worker_output import capture_output
from shopfloor.engine.workers.catalog import Worker
from shopfloor.engine.workers.definition import BUILTIN_TOOL_NAMES, Definition
from shopfloor.engine.workers.definition_changes import DefinitionChange
from shopfloor.engine.workers.python import accepted_arguments
from shopfloor.errors import (
    AgentFailed,
    ExecutionCancelled,
    InvalidEvent,
    OutcomeUnknown,
    Poisoned,
    ShopfloorError,
    StepFailed,
    StorageError,
    StorageFull,
)
from shopfloor.limits import ABANDON_SECONDS, IDLE_RUNS, IDLE_SECONDS, IDLE_SETTLE_SECONDS, POISON_ATTEMPTS
from shopfloor.log import FORMAT, RunCompleted, RunError, RunStarted, Status, Usage
from shopfloor.ports import Logs, QueuedRun

_log = logging.getLogger("shopfloor.engine")
_RESUMABLE = ("suspended", "stopped")
"""Interruptions after which a run has no outcome and can be resumed."""


def build_run_started(
    replay_state: ReplayState, queued: QueuedRun | None, *, host: str, is_caller: bool = False, masked: bool = False
) -> RunStarted:
    """Build the first event of an attempt. For the first attempt that is the queued event, completed with the host."""
    if replay_state.first is None and queued is not None:
        started = replace(queued.started, format=FORMAT)
    else:
        first = replay_state.first
        started = RunStarted(name=first.name if first else "", kind=first.kind if first else "", attempt=0, host="")
    executor = "caller" if is_caller else None
    return replace(started, attempt=replay_state.attempt + 1, host=host, executor=executor, masked=masked)


class _WorkerResult(msgspec.Struct, frozen=True):
    """The output of a worker, or why it failed."""

    result: Any = None
    failure: ShopfloorError | None = None


async def run_to_outcome(
    attempt: Attempt,
    body: Callable[[], Awaitable[Any]],
    *,
    before_end: Callable[[], Awaitable[None]] = anyio.lowlevel.checkpoint,
    finish: Callable[[RunCompleted], RunCompleted] = lambda outcome: outcome,
) -> RunCompleted | None:
    """Execute a worker and append the outcome; return None if the run stays open to be resumed later.

    `before_end` is called before the steps that are still open are ended; `finish` may add to the outcome. Raises the
    error of the log if the end of the log is unknown.
    """
    started_monotonic = time.monotonic()
    worker_result: _WorkerResult | None = None
    try:
        worker_result = await attempt.abandonable_task.run(lambda: _run_worker(attempt, body))
    except TaskAbandoned:
        then = "the run can be resumed" if attempt.interruption in _RESUMABLE else "the run ends without it"
        _log.warning("run %s: the worker did not stop in time and was abandoned; %s", attempt.run_id, then)
    result, failure = (worker_result.result, worker_result.failure) if worker_result is not None else (None, None)
    with anyio.CancelScope(shield=True):
        attempt = await attempt.close(failure)
        if attempt.log_failure is not None:
            raise attempt.log_failure
        # A worker may turn its cancellation into another error: then the interruption, not that error, decides.
        interruption = attempt.interruption if worker_result is None or failure is not None else None
        if interruption in _RESUMABLE:
            return None
        status: Status = "completed" if failure is None else "failed"
        error = failure and to_run_error(failure)
        if interruption == "cancelled":
            status, error = "cancelled", RunError(code="cancelled", message=attempt.cancellation.reason or "cancelled")
        elif interruption == "failed" and attempt.failure is not None:
            status, error = "failed", to_run_error(attempt.failure)
        outcome = finish(_outcome(attempt, status, error, result, started_monotonic))
        await before_end()
        await end_open_steps(attempt, StepFailed(error.message) if interruption and error else None)
        try:
            await attempt.append(outcome)
        except InvalidEvent as invalid:
            error = to_run_error(StepFailed(f"the result cannot be recorded: {invalid.message}", hint=invalid.hint))
            outcome = _outcome(attempt, "failed", error, None, started_monotonic)
            await attempt.append(outcome)
        return outcome


def end_if_disk_is_low(logs: Logs, attempts: Iterable[Attempt]) -> None:
    """Fail these runs if the disk is nearly full, while their outcomes can still be recorded."""
    if logs.headroom_bytes() < 0:
        for attempt in attempts:
            attempt.fail(StorageFull("the disk is nearly full, so the run was stopped"))


async def _run_worker(attempt: Attempt, body: Callable[[], Awaitable[Any]]) -> _WorkerResult:
    """Return the result of the worker. Raises the cancellation of an interrupted attempt."""
    try:
        # A run that was cancelled before its start does not start.
        await anyio.lowlevel.checkpoint_if_cancelled()
        return _WorkerResult(await body())
    except Finished as finished:
        return _WorkerResult(finished.output, StepFailed(finished.failed) if finished.failed is not None else None)
    except StorageError as error:
        return _WorkerResult(failure=error)
    except anyio.get_cancelled_exc_class() as error:
        if attempt.interruption is not None:
            raise
        # The worker itself cancelled a task and then awaited that task.
        return _WorkerResult(failure=as_run_failed(error))
    except BaseException as error:  # noqa: BLE001 - any error of a worker ends only its own run
        return _WorkerResult(failure=as_run_failed(error))


async def end_open_steps(attempt: Attempt, error: ShopfloorError | None) -> None:
    """End all open steps of a run that is about to end, including those of earlier attempts.

    `error` is the error of all these steps, if the run as a whole was interrupted.
    """
    for step_key, record in reversed(attempt.replay_state.open_steps()):
        step_try = StepTry(step_key, record.name, record.kind, record.try_, record.started_monotonic)
        step_error = error or attempt.stop_error(step_key)
        if error is not None and attempt.interruption == "cancelled" and record.session is not None:
            # The code tells a session that was cancelled from one that failed.
            step_error = ExecutionCancelled(error.message)
        await attempt.end(step_try, error=step_error)


def _outcome(
    attempt: Attempt, status: Status, error: RunError | None, result: Any, started_monotonic: float
) -> RunCompleted:
    replay_state = attempt.replay_state
    first, own, sub = replay_state.first, replay_state.spending.own, replay_state.spending.sub
    return RunCompleted(
        name=first.name if first else "",
        kind=first.kind if first else "",
        status=status,
        error=error,
        result=result,
        usage=own.usage if own.usage != Usage() else None,
        cost=own.cost,
        sub_usage=sub.usage if sub.usage != Usage() else None,
        sub_cost=sub.cost,
        covers=replay_state.covers,
        duration_ms=_duration_ms(replay_state, started_monotonic),
    )


def _with_submitted_result(outcome: RunCompleted, replay_state: ReplayState) -> RunCompleted:
    """Give a completed run the result that its worker submitted, whatever the worker returned."""
    submitted = replay_state.submitted_result
    return replace(outcome, result=submitted) if outcome.status == "completed" and submitted is not None else outcome


def _duration_ms(replay_state: ReplayState, started_monotonic: float) -> int:
    """Return the time since the first attempt started."""
    return max(elapsed_ms(started_monotonic), round(seconds_since(replay_state.started_at) * 1000))


class Lifecycle:
    """The start, resumption and end of the runs of this process."""

    def __init__(
        self,
        registry: RunRegistry,
        ports: StoragePorts,
        definitions: Definitions,
        sub_runs: SubRuns,
        step_context: StepContext,
        *,
        resumption: Resumption,
        idle_seconds: float = IDLE_SECONDS,
        interrupt_grace_seconds: float = ABANDON_SECONDS,
    ) -> None:
        self._registry = registry
        self._ports = ports
        self._definitions = definitions
        self._sub_runs = sub_runs
        self._step_context = step_context
        self._resumption = resumption
        self._idle_seconds = idle_seconds
        self._interrupt_grace_seconds = interrupt_grace_seconds

    def is_waiting_for_definition(self, claim: Claim) -> bool:
        """Return whether the claimed run waits for its definition, so that an attempt would do nothing."""
        return (
            claim.queued is None
            and claim.cancel_reason is None
            and self._definitions.is_waiting_for_definition(claim.run_id)
        )

    async def attempt(self, claim: Claim, slot: Slot) -> bool:
        """Start or resume a run. Return whether the log has the outcome afterwards. Raises `LogBusy`, `RunEnded`."""
        run_id, queued = claim.run_id, claim.queued
        replay_state = ReplayState(run_id) if queued else await read_replay_state(self._ports.reader, run_id)
        if queued is None and not replay_state.last_seq:
            # The run has been deleted.
            return False
        parent = queued.parent_run_id if queued else replay_state.parent_run_id
        async with self._ports.logs.open(run_id, parent_run_id=parent) as log:
            if log.seq != replay_state.last_seq:
                # The run was started before, or another process has resumed it meanwhile.
                replay_state = await read_replay_state(self._ports.reader, run_id)
            if replay_state.outcome is not None:
                # The attempt that wrote the outcome may have failed before it notified the parent.
                await self._resumption.notify_parent(run_id, parent)
                return True
            if replay_state.first is None and queued is None:
                return False
            host, is_caller, masked = self._registry.host_id, self._registry.is_caller_process, self._ports.logs.masks
            started = build_run_started(replay_state, queued, host=host, is_caller=is_caller, masked=masked)
            definition = self._definitions.read(replay_state.first or started)
            self._definitions.forget(run_id)
            worker = None
            if definition is not None and claim.cancel_reason is None:
                dispatched_hash = started.definition_hash if replay_state.first is None else None
                worker = self._definitions.look_up(definition, dispatched_hash=dispatched_hash)
                if isinstance(worker, DefinitionChange) and replay_state.definition_wait_calls:
                    # The log already has the wait: another attempt would do nothing.
                    self._definitions.add_waiting(run_id, definition)
                    return False
            attempt = Attempt(
                replay_state,
                log,
                slot=slot,
                on_idle=self._registry.wake_up.set,
                cancel_tree=self._sub_runs.cancel_tree,
                interrupt_grace_seconds=self._interrupt_grace_seconds,
            )
            self._registry.live_attempts[run_id] = attempt
            current_run.set(run_id)
            outcome: RunCompleted | None = None
            try:
                await self._start(attempt, started, claim)
                self._registry.observer.attempt_started(run_id, replay_state.first or started)
                if isinstance(worker, DefinitionChange) and definition is not None and attempt.interruption is None:
                    await attempt.append(definition_wait_call(worker))
                    self._definitions.add_waiting(run_id, definition)
                    return False
                for call_id in replay_state.definition_wait_calls if claim.cancel_reason is None else ():
                    await attempt.append(definition_wait_result(call_id))
                outcome = await run_to_outcome(
                    attempt,
                    lambda: self._execute(attempt, definition, worker),
                    before_end=lambda: self._sub_runs.cancel_open(attempt),
                    finish=lambda outcome: _with_submitted_result(outcome, replay_state),
                )
            finally:
                del self._registry.live_attempts[run_id]
                self._registry.observer.attempt_ended(run_id, outcome, attempt.replay_state.spending.tree)
        if outcome is not None:
            await self._resumption.notify_parent(run_id, parent)
        elif attempt.interruption == "suspended" and (
            attempt.slot_usage.has_activity or not replay_state.waits.is_waiting
        ):
            # The run got what it waited for while it was being suspended.
            claim.is_resumed_again = True
        return outcome is not None

    async def _start(self, attempt: Attempt, started: RunStarted, claim: Claim) -> None:
        """Append the start of the attempt, and interrupt an attempt that must not execute."""
        await attempt.append(started)
        if claim.cancel_reason is None:
            await copy_events(attempt, self._ports.reader)
        await end_partial_messages(attempt)
        if attempt.replay_state.attempt == 1 and claim.has_started:
            attempt.fail(
                OutcomeUnknown(
                    "the log was lost during the run: the effects of the run are unknown",
                    hint="check what the run has done before you start it again",
                )
            )
        if attempt.replay_state.blocked_attempts >= POISON_ATTEMPTS:
            attempt.fail(
                Poisoned(
                    f"the worker's code blocked the process {POISON_ATTEMPTS} times, "
                    "and each time the process had to be stopped",
                    hint="the log names the line; `await` there, or move the code to a plain function for `run.step`",
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
        # Imported late: a server answers requests before it executes a run, and its warm-up imports these modules.
        from shopfloor.engine.interpreter import Interpreter
        from shopfloor.engine.run import Run, as_json
        from shopfloor.engine.steps.tool_definitions import build_tools

        first = attempt.replay_state.first
        if first is not None and first.definition is None and first.kind == AGENT:
            raise AgentFailed("the parent agent of this sub-agent was interrupted")
        if first is None or definition is None:
            raise StepFailed("the log has no readable definition: the run cannot be resumed")
        step_context = replace(
            self._step_context,
            cwd=first.cwd or self._step_context.cwd,
            has_memory=definition.memory,
            approve=tuple(dict.fromkeys([*(first.approve or ()), *definition.approve])),
            approve_timeout=first.approve_timeout or definition.approve_timeout,
            own_tools=frozenset(definition.tools) | BUILTIN_TOOL_NAMES,
        )
        worker_input = first.input or {}
        if not isinstance(worker, Worker) or worker.function is None:
            return await Interpreter(attempt, step_context, definition, worker_input).run()
        run = Run(attempt, step_context, worker_input=worker_input, tools=build_tools(worker.definition))
        with capture_output(attempt, ROOT_KEY):
            output = await worker.function(run, **accepted_arguments(worker.function, worker_input))
        return as_json(definition.slug, output)

    async def end_failed(self, claim: Claim, failure: RunError) -> bool:
        """End a run whose attempt failed. Return False if there is nothing to end, or another process has the run."""
        run_id, queued = claim.run_id, claim.queued
        if await last_event(self._ports.reader, run_id) is not None:
            return await end_orphan(self._ports, run_id, failure=failure)
        if queued is None:
            return False
        async with self._ports.logs.open(run_id, parent_run_id=queued.parent_run_id) as log:
            name, kind = queued.started.name, queued.started.kind
            await log.append(RunStarted(name=name, kind=kind, attempt=1, host=self._registry.host_id, format=FORMAT))
            await log.append(RunCompleted(name=name, kind=kind, status="failed", error=failure))
        await self._ports.queue.mark_started([run_id])
        return True

    # Checks of all runs of this process.

    async def check_runs(self) -> None:
        """Resume runs whose definition is back, suspend idle runs, fail all if the disk is nearly full."""
        for run_id in self._definitions.pop_restored():
            self._registry.resume(run_id)
        now = time.monotonic()
        idle = self._suspendable()
        excess = len(idle) - IDLE_RUNS
        for index, attempt in enumerate(idle):
            limit = min(self._idle_seconds, IDLE_SETTLE_SECONDS) if index < excess else self._idle_seconds
            if attempt.slot_usage.idle_seconds(now) > limit:
                attempt.interrupt("suspended")
        if self._registry.live_attempts:
            end_if_disk_is_low(self._ports.logs, self._registry.live_attempts.values())

    def _suspendable(self) -> list[Attempt]:
        """Return the attempts that only wait, the longest idle first."""
        if self._registry.is_caller_process:
            # No other process would resume them.
            return []
        waiting = [
            attempt
            for attempt in self._registry.live_attempts.values()
            if attempt.slot_usage.is_suspendable and attempt.interruption is None
        ]
        return sorted(waiting, key=lambda attempt: attempt.slot_usage.idle_since or 0.0)
