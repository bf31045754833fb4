"""One attempt at a run: what is written, what is waited for, and how it is left. Steps are built on this."""

from __future__ import annotations

import asyncio
import copy
import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Literal

import anyio
import msgspec

from shopfloor.engine.abandonable_task import AbandonableTask
from shopfloor.engine.error_mapping import NON_RETRYABLE, Cancellation, StepResult, as_run_failed, failure_from_record
from shopfloor.engine.replay_state import ConversationEvent, ReplayState, StepKey, StepRecord
from shopfloor.engine.slot_usage import Slot, SlotPool, SlotUsage
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
"""The run itself."""
Interruption = Literal["cancelled", "suspended", "stopped", "failed"]


class Finished(Exception):
    """A worker says that the run ends here."""

    def __init__(self, output: Any = None, *, failed: str | None = None) -> None:
        super().__init__(failed or "finished")
        self.output = output
        self.failed = failed


class StepTry(msgspec.Struct):
    """A step that is being tried."""

    step_key: StepKey
    name: str
    kind: str
    try_: int
    started_monotonic: float
    branches: list[str] | None = None
    resumed: bool = False
    """True where the log has a beginning of it from an earlier attempt."""
    result: StepResult | None = None
    """What is known of its result, for the record of a step that is left or fails."""


StepFunction = Callable[[StepTry], Awaitable[StepResult]]


async def _cancel_alone(attempt: Attempt, reason: str) -> None:
    """Cancel a run that is its whole tree."""
    attempt.cancel(reason)


class Attempt:
    """Holds the log of a run as long as it goes on."""

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
        self.left = asyncio.Event()
        """Set when it is to be left, whatever for."""
        # No reference back to the attempt: it would keep the input and the results in memory until a full collection.
        self.slot_usage = SlotUsage(slot or SlotPool(1).slot(), on_idle=on_idle, left=self.left.is_set)
        self.hold_slot, self.yield_slot, self.pause = (
            self.slot_usage.hold_slot,
            self.slot_usage.yield_slot,
            self.slot_usage.pause,
        )
        self._log = log
        self.cancel_tree = cancel_tree
        self.answer_lock = asyncio.Lock()
        """An answer may come at the moment when nobody waits for it any more: one of the two is on record."""
        self._awaited: dict[str, anyio.Event] = {}
        self._last_seq = replay_state.last_seq
        self._has_worker_ended = False
        self._worker_failure: ShopfloorError | None = None
        """What the worker raised at its end, if anything."""
        self._branches: list[asyncio.Task[Any]] = []
        """The tasks that are in the middle of a step or wait for an answer."""
        self._writing = 0
        """How many events are being written."""
        self._written = asyncio.Event()
        self.log_failure: BaseException | None = None
        """Why it is not known what the log has: nothing more is written; another attempt reads the log."""

    # Writing.

    async def append(
        self, payload: Payload, step_key: StepKey = ROOT_KEY, *, child_run_id: str | None = None, at: str | None = None
    ) -> Entry:
        """Waits for room where there is none. What is written is in the journal too."""
        if self.abandonable_task.is_abandoned or self.log_failure is not None:
            raise LogClosed(f"the run {self.run_id} goes on without this worker, or has ended")
        self._writing += 1
        try:
            return await self._append(payload, step_key, child_run_id=child_run_id, at=at)
        except BaseException as error:
            if isinstance(error, LogBusy) or not isinstance(error, ShopfloorError | asyncio.CancelledError):
                # The log belongs to another host, or may have the event (as without memory): nothing may follow it.
                self.log_failure = error
                self.interrupt("stopped")
            raise
        finally:
            self._writing -= 1
            if not self._writing:
                self._written.set()

    async def _retry_storage(self, deadline: float) -> None:
        """Wait a moment before the storage is asked again; raise its error where there is no time left for that."""
        if time.monotonic() > deadline or self.cancellation.forced.is_set() or self.abandonable_task.is_abandoned:
            raise  # noqa: PLE0704 - called while the error is handled
        await anyio.sleep(STORAGE_RETRY_SECONDS)

    async def _append(self, payload: Payload, step_key: StepKey, *, child_run_id: str | None, at: str | None) -> Entry:
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
                self.slot_usage.note_activity()
                self.replay_state.take(
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
        """Append from another thread, while the loop is blocked. The journal of this attempt does not get it."""
        if not self.abandonable_task.is_abandoned:
            self._log.append_now(payload)

    def publish_delta(self, step_try: StepTry, message_id: str, **piece: Any) -> None:
        """Passes on a piece of a message that is being made."""
        self._log.publish_delta(
            Delta(
                after=self._last_seq,
                path=step_try.step_key.path,
                iteration=step_try.step_key.iteration,
                message_id=message_id,
                **piece,
            )
        )

    @property
    def mask(self) -> Masking | None:
        return self._log.mask

    @property
    def is_durable(self) -> bool:
        """Whether a power cut would take nothing of what is written."""
        return self._log.is_durable

    async def make_durable(self) -> None:
        """Return when every event that was appended is durable. Waits for a disk that refuses, as `append` does."""
        deadline = time.monotonic() + STORAGE_FULL_TIMEOUT_SECONDS
        while True:
            try:
                return await self._log.make_durable()
            except StorageError:
                await self._retry_storage(deadline)

    def conversation(self, step_key: StepKey) -> list[ConversationEvent]:
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
        repeatable: bool = False,
        starts_itself: bool = False,
        branches: list[str] | None = None,
    ) -> Any:
        """Does a step once, whatever dies: what the log has is not done again.

        `repeatable` says that one which a crash cut off can be gone on with. `starts_itself` says that the work calls
        `begin`, when it knows what to put into it.
        """
        record = self.replay_state.steps.get(step_key)
        if record is not None and record.done is not None and record.done.error is None:
            return record.done.result
        resumed = repeatable and record is not None and record.done is None
        try_ = record.try_ if record is not None and resumed else await self._next_try(step_key, record, retry)
        while True:
            step_try = StepTry(step_key, name, kind, try_, time.monotonic(), branches, resumed)
            if not resumed and not starts_itself:
                await self.begin(step_try)
            try:
                with self._branch():
                    result = await work(step_try)
            except anyio.get_cancelled_exc_class():
                with anyio.CancelScope(shield=True):
                    await self._leave(step_try, repeatable=repeatable)
                raise
            except Finished:
                await self.end(step_try, StepResult(None))
                raise
            except (StorageError, DatabaseDamaged, DatabaseLost) as error:
                # The run as a whole has to see to it. Without the database, the next host does: the log is sound.
                if not isinstance(error, StorageError):
                    self.interrupt("stopped")
                raise
            except GeneratorExit:
                raise  # It is being closed: nothing can be awaited any more.
            except BaseException as error:  # noqa: BLE001 - whatever its code raises ends this run, and no other
                failure = as_run_failed(error)
                await self.end(step_try, error=failure)
                try_, resumed = await self._again(retry, try_, failure), False
            else:
                await self.end(step_try, result)
                return result.value

    async def begin(self, step_try: StepTry, process: Process | None = None, session: Session | None = None) -> None:
        name, kind, try_, branches = step_try.name, step_try.kind, step_try.try_, step_try.branches
        started = StepStarted(name=name, kind=kind, try_=try_, process=process, session=session, branches=branches)
        await self.append(started, step_try.step_key)

    async def end(
        self, step_try: StepTry, result: StepResult | None = None, error: ShopfloorError | None = None
    ) -> None:
        record = self.replay_state.steps.get(step_try.step_key)
        if (
            record is None
            or record.done is not None
            or record.try_ != step_try.try_
            or self.abandonable_task.is_abandoned
        ):
            return
        ended = CallCompleted if record.child_run_id else StepCompleted
        gave = result or step_try.result or StepResult(None)
        coded = error if gave.failure_reason is None else None
        payload = ended(
            name=step_try.name,
            kind=step_try.kind,
            try_=step_try.try_,
            error=gave.failure_reason or (error.message if error else None),
            error_code=coded.code if coded else None,
            error_hint=coded.hint if coded else None,
            retryable=coded.retryable if isinstance(coded, RunFailed) else None,
            result=gave.value,
            usage=gave.usage,
            cost=gave.cost,
            sub_usage=gave.sub_usage,
            sub_cost=gave.sub_cost,
            covers=gave.covers,
            session=gave.session,
            rate_limits=gave.limits,
            ended_processes=gave.ended_processes or None,
            duration_ms=round((time.monotonic() - step_try.started_monotonic) * 1000),
        )
        # What is done is on record, also where the run is being left just now.
        with anyio.CancelScope(shield=True):
            await self.append(payload, step_try.step_key, child_run_id=record.child_run_id)

    async def _next_try(self, step_key: StepKey, record: StepRecord | None, retry: Retry | None) -> int:
        if record is None:
            return 1
        if record.done is None:
            return await self._after_cut(step_key, record, retry)
        if record.stopped_by is not None:
            # An earlier attempt stopped it for a failure, which is what the worker is told again.
            raise failure_from_record(record.stopped_by)
        return await self._again(retry, record.try_, failure_from_record(record.done))

    async def _after_cut(self, step_key: StepKey, record: StepRecord, retry: Retry | None) -> int:
        """A step that a crash cut off, and that must not be done twice unless its rule says so."""
        step_try = StepTry(step_key, record.name, record.kind, record.try_, time.monotonic())
        unknown = OutcomeUnknown(
            f"a crash cut off the step {step_key.path or record.name!r}: whether it was done is not known",
            hint="look at what it did; `retry: {always: true}` lets such a step be done again",
        )
        await self.end(step_try, error=unknown)
        if retry is None or not retry.always or record.try_ > retry.limit:
            raise unknown
        return record.try_ + 1

    async def _again(self, retry: Retry | None, try_: int, failure: RunFailed) -> int:
        """The number of the next try, when it is time for it; raises the failure where there is to be none."""
        if retry is None or try_ > retry.limit or (isinstance(failure, NON_RETRYABLE) and not retry.always):
            raise failure
        await self.pause(min(retry.delay * retry.factor ** (try_ - 1), retry.max_delay))
        return try_ + 1

    async def _leave(self, step_try: StepTry, *, repeatable: bool) -> None:
        """What is left in the middle: a cancelled step is over; another one is gone on with, if that can be."""
        match self.interruption:
            case "cancelled":
                await self.end(step_try, error=StepFailed(self.cancellation.reason or "cancelled"))
            case "failed":
                await self.end(step_try, error=self.failure)
            case "stopped" if not repeatable:
                await self.end(step_try, error=HostStopped("the host was stopped in the middle of this step"))
            case None:
                await self.end(step_try, error=self.stopped(step_try.step_key))
            case _:
                pass

    def stopped(self, step_key: StepKey) -> RunFailed:
        """Why a step is over that the run as a whole is not left for: it never has the error of another."""
        if self._has_worker_ended and self._worker_failure is None:
            return StepFailed("the worker went on without it")
        reason = self.stop_reason(step_key)
        # Else the worker itself has left it, as for a time limit.
        return ExecutionCancelled(reason) if reason else StepFailed("it was left in the middle")

    def stop_reason(self, step_key: StepKey) -> str | None:
        """Say what stopped this step: a cancel, the failure of a sibling or of the worker; None if nothing."""
        failure = self._worker_failure
        of_worker = f"stopped because the run failed: {failure.message}" if failure is not None else None
        return self.cancellation.reason or self.replay_state.stop_reason(step_key) or of_worker

    # Leaving.

    def interrupt(self, why: Interruption) -> None:
        """Has the run unwind: its steps see a cancellation."""
        if self.interruption is None:
            self.interruption = why
            self.left.set()
            self.abandonable_task.cancel()

    async def close(self, failure: ShopfloorError | None) -> Attempt:
        """Stop what the worker did not wait for, close the log to it, and give the attempt that alone ends the run.

        `failure` is what the worker raised.
        """
        self._has_worker_ended, self._worker_failure = True, failure
        for task in self._branches:
            task.cancel()
        if self._branches and not self.abandonable_task.is_abandoned:
            await asyncio.wait(list(self._branches), timeout=self.abandonable_task.grace_seconds)
        self.abandonable_task.is_abandoned = True
        while self._writing:
            # What was begun to be written is in the journal before anybody looks what is open.
            self._written = asyncio.Event()
            await self._written.wait()
        heir = copy.copy(self)
        heir.abandonable_task = AbandonableTask(grace_seconds=self.abandonable_task.grace_seconds)
        return heir

    @contextmanager
    def _branch(self) -> Generator[None]:
        """Around what a task of the worker is at: the worker may end without waiting for it."""
        task = asyncio.current_task()
        if task is not None:
            self._branches.append(task)
        try:
            yield
        finally:
            if task is not None:
                self._branches.remove(task)

    def cancel(self, reason: str) -> None:
        self.cancellation.request(reason)
        self.interrupt("cancelled")

    def fail(self, error: RunFailed | StorageError) -> None:
        self.failure = error
        self.interrupt("failed")

    # Sub-runs.

    async def append_call_started(self, step_try: StepTry, child_run_id: str, worker: str, given: Any) -> None:
        started = CallStarted(name=step_try.name, kind=step_try.kind, try_=step_try.try_, worker=worker, input=given)
        await self.append(started, step_try.step_key, child_run_id=child_run_id)

    # What is waited for.

    @contextmanager
    def notification(self, key: str) -> Generator[anyio.Event]:
        """An event that `notify` sets: for the answer to a call, or for the end of a sub-run, by its id."""
        event = self._awaited.setdefault(key, anyio.Event())
        try:
            with self._branch():
                yield event
        finally:
            self._awaited.pop(key, None)

    def notify(self, key: str) -> bool:
        """Wake whoever waits here for this call or sub-run; False where nobody does."""
        event = self._awaited.get(key)
        if event is not None:
            event.set()
            self.slot_usage.note_activity()
        return event is not None
