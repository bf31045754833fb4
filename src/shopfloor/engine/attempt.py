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

from shopfloor.engine.cancel import Cancellation
from shopfloor.engine.journal import Journal, Place, Said, StepRecord
from shopfloor.engine.leash import Leash
from shopfloor.engine.occupancy import Occupancy, Slot, Slots
from shopfloor.engine.results import FINAL, StepResult, failure_of, readable
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
from shopfloor.limits import LEAVING_SECONDS, STORAGE_PATIENCE_SECONDS, STORAGE_RETRY_SECONDS
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

TOP: Final = Place("")
"""The run itself."""
Leaving = Literal["cancelled", "suspended", "stopped", "failed"]


class Finished(Exception):
    """A worker says that the run ends here."""

    def __init__(self, output: Any = None, *, failed: str | None = None) -> None:
        super().__init__(failed or "finished")
        self.output = output
        self.failed = failed


class Trying(msgspec.Struct):
    """A step that is being tried."""

    place: Place
    name: str
    kind: str
    try_: int
    began: float
    branches: list[str] | None = None
    resumed: bool = False
    """True where the log has a beginning of it from an earlier attempt."""
    result: StepResult | None = None
    """What is known of its result, for the record of a step that is left or fails."""


Work = Callable[[Trying], Awaitable[StepResult]]


async def _cancel_alone(attempt: Attempt, reason: str) -> None:
    """Cancel a run that is its whole tree."""
    attempt.cancel(reason)


class Attempt:
    """Holds the log of a run as long as it goes on."""

    def __init__(
        self,
        journal: Journal,
        log: Log,
        *,
        slot: Slot | None = None,
        on_idle: Callable[[], None] = lambda: None,
        cancel_tree: Callable[[Attempt, str], Awaitable[None]] = _cancel_alone,
        cancellation: Cancellation | None = None,
        leaving_seconds: float = LEAVING_SECONDS,
    ) -> None:
        self.journal = journal
        self.run_id = journal.run_id
        self.cancellation = cancellation or Cancellation()
        self.leash: Leash[Any] = Leash(patience=leaving_seconds)
        self.leaving: Leaving | None = None
        self.failure: RunFailed | StorageError | None = None
        self.left = asyncio.Event()
        """Set when it is to be left, whatever for."""
        # No reference back to the attempt: it would keep the input and the results in memory until a full collection.
        self.occupancy = Occupancy(slot or Slots(1).slot(), on_idle=on_idle, left=self.left.is_set)
        self.working, self.waiting, self.pause = self.occupancy.working, self.occupancy.waiting, self.occupancy.pause
        self._log = log
        self.cancel_tree = cancel_tree
        self.settling = asyncio.Lock()
        """An answer may come at the moment when nobody waits for it any more: one of the two is on record."""
        self._awaited: dict[str, anyio.Event] = {}
        self._last_seq = journal.last_seq
        self._has_worker_ended = False
        self._worker_failure: ShopfloorError | None = None
        """What the worker raised at its end, if anything."""
        self._branches: list[asyncio.Task[Any]] = []
        """The tasks that are in the middle of a step or wait for an answer."""
        self._writing = 0
        """How many events are being written."""
        self._written = asyncio.Event()
        self.lost: BaseException | None = None
        """Why it is not known what the log has: nothing more is written; another attempt reads the log."""

    # Writing.

    async def append(
        self, payload: Payload, place: Place = TOP, *, child_run_id: str | None = None, at: str | None = None
    ) -> Entry:
        """Waits for room where there is none. What is written is in the journal too."""
        if self.leash.loose or self.lost is not None:
            raise LogClosed(f"the run {self.run_id} goes on without this worker, or has ended")
        self._writing += 1
        try:
            return await self._append(payload, place, child_run_id=child_run_id, at=at)
        except BaseException as error:
            if isinstance(error, LogBusy) or not isinstance(error, ShopfloorError | asyncio.CancelledError):
                # The log belongs to another host, or may have the event (as without memory): nothing may follow it.
                self.lost = error
                self.leave("stopped")
            raise
        finally:
            self._writing -= 1
            if not self._writing:
                self._written.set()

    async def _retry_storage(self, deadline: float) -> None:
        """Wait a moment before the storage is asked again; raise its error where there is no time left for that."""
        if time.monotonic() > deadline or self.cancellation.forced.is_set() or self.leash.loose:
            raise  # noqa: PLE0704 - called while the error is handled
        await anyio.sleep(STORAGE_RETRY_SECONDS)

    async def _append(self, payload: Payload, place: Place, *, child_run_id: str | None, at: str | None) -> Entry:
        deadline = time.monotonic() + STORAGE_PATIENCE_SECONDS
        while True:
            try:
                entry = await self._log.append(
                    payload, path=place.path, iteration=place.iteration, child_run_id=child_run_id, at=at
                )
            except StorageError:
                await self._retry_storage(deadline)
            else:
                self._last_seq = max(self._last_seq, entry.seq)
                self.occupancy.stir()
                self.journal.take(
                    Event(
                        seq=entry.seq,
                        run_id=self.run_id,
                        parent_run_id=self.journal.parent_run_id,
                        child_run_id=child_run_id,
                        type=payload.event_type,
                        path=place.path,
                        iteration=place.iteration,
                        timestamp="",
                        payload=payload,
                    )
                )
                return entry

    def append_now(self, payload: Payload) -> None:
        """Append from another thread, while the loop is blocked. The journal of this attempt does not get it."""
        if not self.leash.loose:
            self._log.append_now(payload)

    def tell(self, trying: Trying, message_id: str, **piece: Any) -> None:
        """Passes on a piece of a message that is being made."""
        self._log.publish_delta(
            Delta(
                after=self._last_seq,
                path=trying.place.path,
                iteration=trying.place.iteration,
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
        deadline = time.monotonic() + STORAGE_PATIENCE_SECONDS
        while True:
            try:
                return await self._log.make_durable()
            except StorageError:
                await self._retry_storage(deadline)

    def said(self, place: Place) -> list[Said]:
        return self.journal.said.get(place, [])

    # Steps.

    async def step(
        self,
        place: Place,
        work: Work,
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
        record = self.journal.steps.get(place)
        if record is not None and record.done is not None and record.done.error is None:
            return record.done.result
        resumed = repeatable and record is not None and record.done is None
        try_ = record.try_ if record is not None and resumed else await self._next_try(place, record, retry)
        while True:
            trying = Trying(place, name, kind, try_, time.monotonic(), branches, resumed)
            if not resumed and not starts_itself:
                await self.begin(trying)
            try:
                with self._branch():
                    result = await work(trying)
            except anyio.get_cancelled_exc_class():
                with anyio.CancelScope(shield=True):
                    await self._leave(trying, repeatable=repeatable)
                raise
            except Finished:
                await self.end(trying, StepResult(None))
                raise
            except (StorageError, DatabaseDamaged, DatabaseLost) as error:
                # The run as a whole has to see to it. Without the database, the next host does: the log is sound.
                if not isinstance(error, StorageError):
                    self.leave("stopped")
                raise
            except GeneratorExit:
                raise  # It is being closed: nothing can be awaited any more.
            except BaseException as error:  # noqa: BLE001 - whatever its code raises ends this run, and no other
                failure = readable(error)
                await self.end(trying, error=failure)
                try_, resumed = await self._again(retry, try_, failure), False
            else:
                await self.end(trying, result)
                return result.value

    async def begin(self, trying: Trying, process: Process | None = None, session: Session | None = None) -> None:
        name, kind, try_, branches = trying.name, trying.kind, trying.try_, trying.branches
        started = StepStarted(name=name, kind=kind, try_=try_, process=process, session=session, branches=branches)
        await self.append(started, trying.place)

    async def end(self, trying: Trying, result: StepResult | None = None, error: ShopfloorError | None = None) -> None:
        record = self.journal.steps.get(trying.place)
        if record is None or record.done is not None or record.try_ != trying.try_ or self.leash.loose:
            return
        ended = CallCompleted if record.child_run_id else StepCompleted
        gave = result or trying.result or StepResult(None)
        coded = error if gave.complaint is None else None
        payload = ended(
            name=trying.name,
            kind=trying.kind,
            try_=trying.try_,
            error=gave.complaint or (error.message if error else None),
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
            duration_ms=round((time.monotonic() - trying.began) * 1000),
        )
        # What is done is on record, also where the run is being left just now.
        with anyio.CancelScope(shield=True):
            await self.append(payload, trying.place, child_run_id=record.child_run_id)

    async def _next_try(self, place: Place, record: StepRecord | None, retry: Retry | None) -> int:
        if record is None:
            return 1
        if record.done is None:
            return await self._after_cut(place, record, retry)
        if record.stopped_by is not None:
            # An earlier attempt stopped it for a failure, which is what the worker is told again.
            raise failure_of(record.stopped_by)
        return await self._again(retry, record.try_, failure_of(record.done))

    async def _after_cut(self, place: Place, record: StepRecord, retry: Retry | None) -> int:
        """A step that a crash cut off, and that must not be done twice unless its rule says so."""
        trying = Trying(place, record.name, record.kind, record.try_, time.monotonic())
        unknown = OutcomeUnknown(
            f"a crash cut off the step {place.path or record.name!r}: whether it was done is not known",
            hint="look at what it did; `retry: {always: true}` lets such a step be done again",
        )
        await self.end(trying, error=unknown)
        if retry is None or not retry.always or record.try_ > retry.limit:
            raise unknown
        return record.try_ + 1

    async def _again(self, retry: Retry | None, try_: int, failure: RunFailed) -> int:
        """The number of the next try, when it is time for it; raises the failure where there is to be none."""
        if retry is None or try_ > retry.limit or (isinstance(failure, FINAL) and not retry.always):
            raise failure
        await self.pause(min(retry.delay * retry.factor ** (try_ - 1), retry.max_delay))
        return try_ + 1

    async def _leave(self, trying: Trying, *, repeatable: bool) -> None:
        """What is left in the middle: a cancelled step is over; another one is gone on with, if that can be."""
        match self.leaving:
            case "cancelled":
                await self.end(trying, error=StepFailed(self.cancellation.reason or "cancelled"))
            case "failed":
                await self.end(trying, error=self.failure)
            case "stopped" if not repeatable:
                await self.end(trying, error=HostStopped("the host was stopped in the middle of this step"))
            case None:
                await self.end(trying, error=self.stopped(trying.place))
            case _:
                pass

    def stopped(self, place: Place) -> RunFailed:
        """Why a step is over that the run as a whole is not left for: it never has the error of another."""
        if self._has_worker_ended and self._worker_failure is None:
            return StepFailed("the worker went on without it")
        reason = self.stop_reason(place)
        # Else the worker itself has left it, as for a time limit.
        return ExecutionCancelled(reason) if reason else StepFailed("it was left in the middle")

    def stop_reason(self, place: Place) -> str | None:
        """Say what stopped this step: a cancel, the failure of a sibling or of the worker; None if nothing."""
        failure = self._worker_failure
        of_worker = f"stopped because the run failed: {failure.message}" if failure is not None else None
        return self.cancellation.reason or self.journal.stop_reason(place) or of_worker

    # Leaving.

    def leave(self, why: Leaving) -> None:
        """Has the run unwind: its steps see a cancellation."""
        if self.leaving is None:
            self.leaving = why
            self.left.set()
            self.leash.pull()

    async def close(self, failure: ShopfloorError | None) -> Attempt:
        """Stop what the worker did not wait for, close the log to it, and give the attempt that alone ends the run.

        `failure` is what the worker raised.
        """
        self._has_worker_ended, self._worker_failure = True, failure
        for task in self._branches:
            task.cancel()
        if self._branches and not self.leash.loose:
            await asyncio.wait(list(self._branches), timeout=self.leash.patience)
        self.leash.loose = True
        while self._writing:
            # What was begun to be written is in the journal before anybody looks what is open.
            self._written = asyncio.Event()
            await self._written.wait()
        heir = copy.copy(self)
        heir.leash = Leash(patience=self.leash.patience)
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
        self.leave("cancelled")

    def fail(self, error: RunFailed | StorageError) -> None:
        self.failure = error
        self.leave("failed")

    # Sub-runs.

    async def child_started(self, trying: Trying, child_run_id: str, worker: str, given: Any) -> None:
        started = CallStarted(name=trying.name, kind=trying.kind, try_=trying.try_, worker=worker, input=given)
        await self.append(started, trying.place, child_run_id=child_run_id)

    # What is waited for.

    @contextmanager
    def news(self, key: str) -> Generator[anyio.Event]:
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
            self.occupancy.stir()
        return event is not None
