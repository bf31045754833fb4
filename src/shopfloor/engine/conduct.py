"""From a worker's first step to the run's outcome, or to where it has to be left for now."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime
from typing import Any

import anyio
import anyio.lowlevel
import msgspec

from shopfloor.engine.attempt import Attempt, Finished, Trying
from shopfloor.engine.journal import Journal
from shopfloor.engine.leash import LeftBehind
from shopfloor.engine.outcome import error_of
from shopfloor.engine.results import readable
from shopfloor.errors import InvalidEvent, ShopfloorError, StepFailed, StorageError, StorageFull
from shopfloor.log import RunCompleted, RunError, Status, Usage, now
from shopfloor.ports import Logs

_log = logging.getLogger("shopfloor.engine")
_OPEN = ("suspended", "stopped")
"""How a run is left that has not ended."""


class _Ended(msgspec.Struct, frozen=True):
    result: Any = None
    failure: ShopfloorError | None = None


async def conduct(
    attempt: Attempt,
    body: Callable[[], Awaitable[Any]],
    *,
    before_end: Callable[[], Awaitable[None]] = anyio.lowlevel.checkpoint,
    finish: Callable[[RunCompleted], RunCompleted] = lambda outcome: outcome,
) -> RunCompleted | None:
    """The outcome, once the log has it; None where the run is left to be gone on with later.

    `before_end` is called when the steps that are still open are about to be ended; `finish` may add to the outcome.
    """
    began = time.monotonic()
    ended: _Ended | None = None
    try:
        ended = await attempt.leash.lead(lambda: _end_of(attempt, body))
    except LeftBehind:
        then = "it stays open, to be gone on with" if attempt.leaving in _OPEN else "it ended without it"
        _log.warning("run %s: its worker did not leave when it was told to; %s", attempt.run_id, then)
    result, failure = (ended.result, ended.failure) if ended is not None else (None, None)
    with anyio.CancelScope(shield=True):
        attempt = await attempt.close(failure)
        if attempt.lost is not None:
            raise attempt.lost
        # A worker may make an error of its own out of being left; that is no reason of the run's.
        left = attempt.leaving if ended is None or failure is not None else None
        if left in _OPEN:
            return None
        status: Status = "completed" if failure is None else "failed"
        error = failure and error_of(failure)
        if left == "cancelled":
            status, error = "cancelled", RunError(code="cancelled", message=attempt.cancellation.reason or "cancelled")
        elif left == "failed" and attempt.failure is not None:
            status, error = "failed", error_of(attempt.failure)
        outcome = finish(_outcome(attempt, status, error, result, began))
        await before_end()
        await end_open_steps(attempt, StepFailed(error.message) if left and error else None)
        try:
            await attempt.append(outcome)
        except InvalidEvent as wrong:
            error = error_of(StepFailed(f"what it gave cannot be recorded: {wrong.message}", hint=wrong.hint))
            outcome = _outcome(attempt, "failed", error, None, began)
            await attempt.append(outcome)
        return outcome


def end_if_disk_is_low(logs: Logs, attempts: Iterable[Attempt]) -> None:
    """Fail these runs where the disk is nearly full, while their outcomes can still be recorded."""
    if logs.room() < 0:
        for attempt in attempts:
            attempt.fail(StorageFull("the disk is nearly full: the run was ended while it can still be recorded"))


async def _end_of(attempt: Attempt, body: Callable[[], Awaitable[Any]]) -> _Ended:
    """What the worker gave, or why it failed; to leave when it is told to is neither."""
    try:
        # A run that is cancelled before it has begun does not begin.
        await anyio.lowlevel.checkpoint_if_cancelled()
        return _Ended(await body())
    except Finished as finished:
        return _Ended(finished.output, StepFailed(finished.failed) if finished.failed is not None else None)
    except StorageError as error:
        return _Ended(failure=error)
    except anyio.get_cancelled_exc_class() as error:
        if attempt.leaving is not None:
            raise
        # Of its own making: a task of its that it cancelled, and then awaited.
        return _Ended(failure=readable(error))
    except BaseException as error:  # noqa: BLE001 - whatever its code raises ends this run, and no other
        return _Ended(failure=readable(error))


async def end_open_steps(attempt: Attempt, why: ShopfloorError | None) -> None:
    """Nothing stays open when a run has ended: what an earlier attempt left is ended too.

    `why` is for all of them, where the run as a whole was left.
    """
    for place, record in reversed(attempt.journal.open_steps()):
        trying = Trying(place, record.name, record.kind, record.try_, time.monotonic())
        await attempt.end(trying, error=why or attempt.stopped(place))


def _outcome(attempt: Attempt, status: Status, error: RunError | None, result: Any, began: float) -> RunCompleted:
    journal = attempt.journal
    first, own, sub = journal.first, journal.spending.own, journal.spending.sub
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
        covers=journal.covers,
        duration_ms=_duration_ms(journal, began),
    )


def _duration_ms(journal: Journal, began: float) -> int:
    """From the first attempt on; what lay between attempts only the calendar knows."""
    here = round((time.monotonic() - began) * 1000)
    if not journal.started_at:
        return here
    since = datetime.fromisoformat(now()) - datetime.fromisoformat(journal.started_at)
    return max(here, round(since.total_seconds() * 1000))
