"""One attempt at a run: appends events, executes and retries steps, and stops when it is interrupted."""

from __future__ import annotations

import asyncio
import copy
import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, Literal

import anyio
import anyio.lowlevel

from shopfloor.engine.abandonable_task import AbandonableTask
from shopfloor.engine.cancellation import Cancellation
from shopfloor.engine.error_mapping import as_run_failed, failure_from_record, format_worker_traceback, name_step
from shopfloor.engine.replay_state import ConversationEvent, ReplayState, StepKey, StepRecord, elapsed_ms, seconds_since
from shopfloor.engine.slot_usage import Slot, SlotPool, SlotUsage
from shopfloor.engine.step_try import Finished, StepFunction, StepPolicy, StepResult, StepTry
from shopfloor.engine.worker_output import WorkerOutput, is_worker_output
from shopfloor.errors import (
    DatabaseDamaged,
    DatabaseLost,
    ExecutionCancelled,
    HostStopped,
    LogBusy,
    LogClosed,
    OutcomeUnknown,
    RunFailed,
    ShopfloorError,
    StepFailed,
    StorageError,
)
from shopfloor.limits import ABANDON_SECONDS, STORAGE_FULL_TIMEOUT_SECONDS, STORAGE_RETRY_SECONDS
from shopfloor.log import (
    CallCompleted,
    CallStarted,
    Delta,
    Entry,
    Event,
    Masking,
    Payload,
    Process,
    Session,
    StepCompleted,
    StepStarted,
)
from shopfloor.ports import Log

if TYPE_CHECKING:
    from shopfloor.engine.workers.definition import Retry

ROOT_KEY: Final = StepKey("")
"""The key of events that belong to the run itself, not to a step."""
Interruption = Literal["cancelled", "suspended", "stopped", "failed"]
"""Why an attempt stops early. A suspended or stopped run has no outcome and is resumed later."""


async def _cancel_alone(attempt: Attempt, reason: str) -> None:
    """Cancel a run that has neither a parent nor sub-runs."""
    attempt.cancel(reason)


class Attempt:
    """One attempt at a run, the only writer of the log of that run."""

    def __init__(
        self,
        replay_state: ReplayState,
        log: Log,
        *,
        slot: Slot | None = None,
        on_idle: Callable[[], None] = lambda: None,
        cancel_tree: Callable[[Attempt, str], Awaitable[None]] = _cancel_alone,
        cancellation: Cancellation | None = None,
        interrupt_grace_seconds: float = ABANDON_SECONDS,
    ) -> None:
        self.replay_state = replay_state
        self.run_id = replay_state.run_id
        self.cancellation = cancellation or Cancellation()
        self.abandonable_task: AbandonableTask[Any] = AbandonableTask(grace_seconds=interrupt_grace_seconds)
        self.interruption: Interruption | None = None
        self.failure: RunFailed | StorageError | None = None
        self.interrupted = asyncio.Event()
        """Set when the attempt is interrupted, for any reason."""
        # No reference back to the attempt: the cycle would keep input and results in memory until a full collection.
        self.slot_usage = SlotUsage(slot or SlotPool(1).slot(), on_idle=on_idle, is_interrupted=self.interrupted.is_set)
        self.hold_slot, self.yield_slot, self.release_slot, self.pause = (
            self.slot_usage.hold_slot,
            self.slot_usage.yield_slot,
            self.slot_usage.release_slot,
            self.slot_usage.pause,
        )
        self._log = log
        self.cancel_tree = cancel_tree
        self.answer_lock = asyncio.Lock()
        """Held while a result is recorded: of an answer and a time-out that coincide, only one may be recorded."""
        self._notifications: dict[str, anyio.Event] = {}
        self._last_seq = replay_state.last_seq
        self._has_worker_ended = False
        self._worker_failure: ShopfloorError | None = None
        """The error that ended the worker, if any."""
        self._branch_tasks: list[asyncio.Task[Any]] = []
        """The tasks that execute a step or wait for an answer."""
        self.output = WorkerOutput()
        self._pending_writes = 0
        self._writes_done = asyncio.Event()
        self.log_failure: BaseException | None = None
        """The error after which the end of the log is unknown. Only the next attempt, which reads it, may append."""

    # Events.

    async def append(
        self, payload: Payload, step_key: StepKey = ROOT_KEY, *, child_run_id: str | None = None, at: str | None = None
    ) -> Entry:
        """Append an event to the log and apply it to the replay state.

        Waits while the log cannot be written. Raises `LogClosed` if the attempt was abandoned or its log has failed.
        """
        if self.abandonable_task.is_abandoned or self.log_failure is not None:
            raise LogClosed(f"the run {self.run_id} no longer accepts events from this worker")
        with self._writing():
            if self.output.has_pending:
                await self.output.flush(self._append)
            return await self._append(payload, step_key, child_run_id, at)

    async def flush_output(self) -> None:
        """Append what the worker has printed and logged. `append` does it too: the order is kept."""
        if not self.abandonable_task.is_abandoned and self.log_failure is None:
            with self._writing():
                await self.output.flush(self._append, holds_back=True)

    @contextmanager
    def _writing(self) -> Generator[None]:
        """Count the write as pending, and stop the attempt if the end of the log is unknown afterwards."""
        self._pending_writes += 1
        try:
            yield
        except BaseException as error:
            if isinstance(error, LogBusy) or not isinstance(error, ShopfloorError | asyncio.CancelledError):
                # Another host owns the log, or the event may have been written (for example when memory ran out):
                # no event may follow.
                self.log_failure = error
                self.interrupt("stopped")
            raise
        finally:
            self._pending_writes -= 1
            if not self._pending_writes:
                self._writes_done.set()

    async def _retry_storage(self, deadline: float) -> None:
        """Sleep before the next try to write. Re-raise the current error if it is too late for another try."""
        if time.monotonic() > deadline or self.cancellation.forced.is_set() or self.abandonable_task.is_abandoned:
            raise  # noqa: PLE0704 - called while an error is handled
        await anyio.sleep(STORAGE_RETRY_SECONDS)

    async def _append(
        self, payload: Payload, step_key: StepKey = ROOT_KEY, child_run_id: str | None = None, at: str | None = None
    ) -> Entry:
        deadline = time.monotonic() + STORAGE_FULL_TIMEOUT_SECONDS
        while True:
            try:
                entry = await self._log.append(
                    payload, path=step_key.path, iteration=step_key.iteration, child_run_id=child_run_id, at=at
                )
            except StorageError:
                await self._retry_storage(deadline)
            else:
                self._last_seq = max(self._last_seq, entry.seq)
                if not is_worker_output(payload):
                    self.slot_usage.note_activity()
                self.replay_state.apply(
                    Event(
                        seq=entry.seq,
                        run_id=self.run_id,
                        parent_run_id=self.replay_state.parent_run_id,
                        child_run_id=child_run_id,
                        type=payload.event_type,
                        path=step_key.path,
                        iteration=step_key.iteration,
                        timestamp="",
                        payload=payload,
                    )
                )
                return entry

    def append_now(self, payload: Payload) -> None:
        """Append from another thread, while the loop is blocked. The replay state is not updated."""
        if not self.abandonable_task.is_abandoned:
            self._log.append_now(payload)

    def publish_delta(self, step_try: StepTry, message_id: str, **delta: Any) -> None:
        """Send new text of a partial message to live viewers. Not written to the log."""
        key = step_try.step_key
        self._log.publish_delta(
            Delta(after=self._last_seq, path=key.path, iteration=key.iteration, message_id=message_id, **delta)
        )

    @property
    def mask(self) -> Masking | None:
        """The masking of secrets in this log, if there is any."""
        return self._log.mask

    @property
    def is_durable(self) -> bool:
        """Whether every appended event would survive a power cut."""
        return self._log.is_durable

    async def make_durable(self) -> None:
        """Return when every appended event is durable. Waits while the log cannot be written, as `append` does."""
        deadline = time.monotonic() + STORAGE_FULL_TIMEOUT_SECONDS
        while True:
            try:
                return await self._log.make_durable()
            except StorageError:
                await self._retry_storage(deadline)

    def conversation(self, step_key: StepKey) -> list[ConversationEvent]:
        """Return the messages and tool calls of a step, oldest first."""
        return self.replay_state.conversation.get(step_key, [])

    # Steps.

    async def step(
        self,
        step_key: StepKey,
        work: StepFunction,
        *,
        name: str,
        kind: str,
        retry: Retry | None = None,
        timeout_seconds: float | None = None,
        repeatable: bool = False,
        starts_itself: bool = False,
        branches: list[str] | None = None,
        session: Session | None = None,
    ) -> Any:
        """Execute a step and return its result. A step that the log has as completed is not executed again.

        `repeatable`: the step can be resumed after a crash interrupted it. `starts_itself`: the work appends its own
        start event, once it knows the content. `timeout_seconds` limits each try, from its start in the log; the work
        is cancelled then, and must end soon.
        """
        policy = StepPolicy(retry=retry, timeout_seconds=timeout_seconds)
        record = self.replay_state.steps.get(step_key)
        if record is not None and record.done is not None and record.done.error is None:
            return record.done.result
        resumed = repeatable and record is not None and record.done is None
        try_ = record.try_ if record is not None and resumed else await self._next_try(step_key, record, policy)
        while True:
            started = record.started_monotonic if record is not None and resumed else time.monotonic()
            step_try = StepTry(step_key, name, kind, try_, started, branches, resumed, policy, session)
            if record is not None and resumed:
                step_try.start_timer(seconds_since(record.started_at))
            elif not starts_itself:
                await self.begin(step_try)
            try:
                result = await self._within_time_limit(step_try, work)
            except anyio.get_cancelled_exc_class():
                with anyio.CancelScope(shield=True):
                    await self._end_interrupted(step_try, repeatable=repeatable)
                raise
            except Finished:
                await self.end(step_try, StepResult(None))
                raise
            except (StorageError, DatabaseDamaged, DatabaseLost) as error:
                # Not a failure of this step. The run handles a storage error; without the database the run stops,
                # and the next host resumes it from the log, which is intact.
                if not isinstance(error, StorageError):
                    self.interrupt("stopped")
                raise
            except GeneratorExit:
                raise  # The coroutine is being closed: nothing can be awaited.
            except BaseException as error:  # noqa: BLE001 - any error of a worker ends only its own run
                failure = as_run_failed(error)
                await self.end(step_try, error=failure, is_decided=True)
                try_, resumed = await self._wait_for_retry(policy, try_, name_step(failure, name, kind)), False
            else:
                await self.end(step_try, result)
                return result.value

    async def _within_time_limit(self, step_try: StepTry, work: StepFunction) -> StepResult:
        """Do the work of a try. Raises `StepTimeout` if it was stopped at its time limit."""
        if step_try.time_limit is None:
            with self._track_branch():
                return await work(step_try)
        # A suspended run would not notice the end of its time limit.
        with self._track_branch(), self.slot_usage.prevent_suspension(), step_try.time_limit:
            # A resumed try may have used up its time: then it starts no process any more.
            await anyio.lowlevel.checkpoint()
            return await work(step_try)
        record = self.replay_state.steps.get(step_try.step_key)
        if record is not None and record.done is not None and record.done.error is None:
            # The work was done just before it was stopped.
            return StepResult(record.done.result)
        raise step_try.timeout_error()

    async def begin(self, step_try: StepTry, process: Process | None = None, session: Session | None = None) -> None:
        """Append `step.started` for this try."""
        name, kind, session = step_try.name, step_try.kind, session or step_try.session
        try_, branches = step_try.try_, step_try.branches
        started = StepStarted(name=name, kind=kind, try_=try_, process=process, session=session, branches=branches)
        await self.append(started, step_try.step_key)
        step_try.start_timer()

    async def end(
        self,
        step_try: StepTry,
        result: StepResult | None = None,
        error: ShopfloorError | None = None,
        *,
        is_decided: bool = False,
    ) -> None:
        """Append the end of this try. Does nothing if the try has ended already or the attempt is abandoned.

        `is_decided`: the step itself failed, and its retry policy decides what follows, which is recorded too.
        """
        record = self.replay_state.steps.get(step_try.step_key)
        is_open = record is not None and record.done is None and record.try_ == step_try.try_
        if record is None or not is_open or self.abandonable_task.is_abandoned:
            return
        ended = CallCompleted if record.child_run_id else StepCompleted
        step_result = result or step_try.result or StepResult(None)
        coded = error if step_result.failure_reason is None else None
        payload = ended(
            name=step_try.name,
            kind=step_try.kind,
            try_=step_try.try_,
            error=step_result.failure_reason or (error.message if error else None),
            error_code=coded.code if coded else None,
            error_hint=coded.hint if coded else None,
            traceback=format_worker_traceback(coded) if coded else None,
            retryable=coded.retryable if isinstance(coded, RunFailed) else None,
            decision=step_try.policy.decide(step_try.try_, error) if error is not None and is_decided else None,
            result=step_result.value,
            usage=step_result.usage,
            cost=step_result.cost,
            sub_usage=step_result.sub_usage,
            sub_cost=step_result.sub_cost,
            covers=step_result.covers,
            session=step_result.session,
            rate_limits=step_result.limits,
            ended_processes=step_result.ended_processes or None,
            duration_ms=None if (start := step_try.started_monotonic) is None else elapsed_ms(start),
        )
        # Record the end even if the attempt is being interrupted.
        with anyio.CancelScope(shield=True):
            await self.append(payload, step_try.step_key, child_run_id=record.child_run_id)

    async def _next_try(self, step_key: StepKey, record: StepRecord | None, policy: StepPolicy) -> int:
        """Return the number of the next try of a step that has not completed. Raises if there must be none."""
        if record is None:
            return 1
        if record.done is None:
            return await self._retry_interrupted(step_key, record, policy)
        if record.stopped_by is not None:
            # An earlier attempt stopped this step because another step failed: raise that failure again.
            raise failure_from_record(record.stopped_by)
        return await self._wait_for_retry(policy, record.try_, failure_from_record(record))

    async def _retry_interrupted(self, step_key: StepKey, record: StepRecord, policy: StepPolicy) -> int:
        """End a try that a crash interrupted, and return the number of the next one.

        Raises `OutcomeUnknown` unless the retry policy allows the step to be executed twice.
        """
        step_try = StepTry(step_key, record.name, record.kind, record.try_, None, policy=policy)
        unknown = OutcomeUnknown(
            f"a crash interrupted the step {record.name!r}: its outcome is unknown",
            hint="check the effects of the step; `retry: {always: true}` repeats interrupted steps",
        )
        await self.end(step_try, error=unknown, is_decided=True)
        if policy.decide(record.try_, unknown).action != "retry":
            raise unknown
        return record.try_ + 1

    async def _wait_for_retry(self, policy: StepPolicy, try_: int, failure: RunFailed) -> int:
        """Wait for the backoff and return the number of the next try. Raises `failure` if there is no retry left."""
        decision = policy.decide(try_, failure)
        if decision.action != "retry":
            raise failure
        await self.pause(decision.delay_seconds or 0.0)
        return try_ + 1

    async def _end_interrupted(self, step_try: StepTry, *, repeatable: bool) -> None:
        """Record the end of an interrupted step, unless the step stays open to be resumed by another attempt."""
        match self.interruption:
            case "cancelled":
                # The code tells a conversation that was cancelled from one that failed.
                kind = StepFailed if step_try.session is None else ExecutionCancelled
                await self.end(step_try, error=kind(self.cancellation.reason or "cancelled"))
            case "failed":
                await self.end(step_try, error=self.failure)
            case "stopped" if not repeatable:
                await self.end(
                    step_try, error=HostStopped("the process that executes the run was stopped during this step")
                )
            case None:
                await self.end(step_try, error=self.stop_error(step_try.step_key))
            case _:
                pass

    def stop_error(self, step_key: StepKey) -> RunFailed:
        """Return the error for a step that was stopped while the run was not interrupted.

        The step never gets the error of another step as its own.
        """
        if self._has_worker_ended and self._worker_failure is None:
            return StepFailed("the worker ended without waiting for this step")
        reason = self.stop_reason(step_key)
        # Without a reason, the worker itself has cancelled the step, for example because of a time limit.
        return ExecutionCancelled(reason) if reason else StepFailed("the worker cancelled this step")

    def stop_reason(self, step_key: StepKey) -> str | None:
        """Return what stopped this step: a cancel, the failure of a sibling or of the worker. None if nothing did."""
        failure = self._worker_failure
        of_worker = f"stopped because the run failed: {failure.message}" if failure is not None else None
        return self.cancellation.reason or self.replay_state.stop_reason(step_key) or of_worker

    # Interruption.

    def interrupt(self, reason: Interruption) -> None:
        """Cancel the steps of this attempt. Only the first call counts."""
        if self.interruption is None:
            self.interruption = reason
            self.interrupted.set()
            self.abandonable_task.cancel()

    async def close(self, failure: ShopfloorError | None) -> Attempt:
        """Cancel the tasks that the worker left running and close the log to them.

        `failure` is the error that ended the worker. Return a copy of this attempt: only the copy can still append, to
        end the run.
        """
        self._has_worker_ended, self._worker_failure = True, failure
        for task in self._branch_tasks:
            task.cancel()
        if self._branch_tasks and not self.abandonable_task.is_abandoned:
            await asyncio.wait(list(self._branch_tasks), timeout=self.abandonable_task.grace_seconds)
        await self.output.close()
        self.abandonable_task.is_abandoned = True
        while self._pending_writes:
            # The replay state must have every event that is being written before the open steps are listed.
            self._writes_done = asyncio.Event()
            await self._writes_done.wait()
        closing_attempt = copy.copy(self)
        closing_attempt.abandonable_task = AbandonableTask(grace_seconds=self.abandonable_task.grace_seconds)
        with suppress(ShopfloorError):
            await closing_attempt.flush_output()
        return closing_attempt

    @contextmanager
    def _track_branch(self) -> Generator[None]:
        """Track the current task while it executes a step or waits: the worker may end without awaiting the task."""
        task = asyncio.current_task()
        if task is not None:
            self._branch_tasks.append(task)
        try:
            yield
        finally:
            if task is not None:
                self._branch_tasks.remove(task)

    def cancel(self, reason: str) -> None:
        """Cancel the run."""
        self.cancellation.request(reason)
        self.interrupt("cancelled")

    def fail(self, error: RunFailed | StorageError) -> None:
        """End the run as failed with this error."""
        self.failure = error
        self.interrupt("failed")

    async def append_call_started(self, step_try: StepTry, child_run_id: str, worker: str, worker_input: Any) -> None:
        """Append `step.call_workflow.started`: the start of a step that is a sub-run."""
        name, kind, key = step_try.name, step_try.kind, step_try.step_key
        started = CallStarted(name=name, kind=kind, try_=step_try.try_, worker=worker, input=worker_input)
        await self.append(started, key, child_run_id=child_run_id)

    # Notifications.

    @contextmanager
    def notification(self, key: str) -> Generator[anyio.Event]:
        """Yield an event that `notify(key)` sets. The key is the id of a call or of a sub-run."""
        event = self._notifications.setdefault(key, anyio.Event())
        try:
            with self._track_branch():
                yield event
        finally:
            self._notifications.pop(key, None)

    def notify(self, key: str) -> bool:
        """Set the event for this call or sub-run. Return whether any task waits for it."""
        event = self._notifications.get(key)
        if event is not None:
            event.set()
            self.slot_usage.note_activity()
        return event is not None
