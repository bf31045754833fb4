"""Why a run failed, as its outcome tells it."""

from __future__ import annotations

import asyncio
import errno
import logging
import traceback
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, cast

import msgspec

from shopfloor.errors import (
    AgentMissing,
    AuthenticationFailed,
    BudgetExceeded,
    OutcomeUnknown,
    RequestRejected,
    RunFailed,
    ShopfloorError,
    StepFailed,
    StorageError,
    TurnsExceeded,
    error_class,
)
from shopfloor.log import CallCompleted, Cost, Covers, EndedProcess, Limit, RunError, Session, StepCompleted, Usage


def to_run_error(failure: ShopfloorError) -> RunError:
    retryable = failure.retryable if isinstance(failure, RunFailed) else isinstance(failure, StorageError)
    after = failure.retry_after if isinstance(failure, RunFailed) else None
    return RunError(
        code=failure.code,
        message=failure.message,
        retryable=retryable,
        retry_after=msgspec.UNSET if after is None else after,
        hint=failure.hint or msgspec.UNSET,
    )


class Cancellation:
    def __init__(self) -> None:
        self.reason: str | None = None
        self.requested = asyncio.Event()
        self.forced = asyncio.Event()

    def request(self, reason: str) -> None:
        """The first time asks for a clean end; from the second time on it is to end at once."""
        if self.reason is None:
            self.reason = reason
            self.requested.set()
        else:
            self.forced.set()


class StepResult(msgspec.Struct, frozen=True):
    """What a step gave, with what it cost."""

    value: Any
    usage: Usage | None = None
    cost: Cost | None = None
    session: Session | None = None
    limits: list[Limit] | None = None
    sub_usage: Usage | None = None
    sub_cost: Cost | None = None
    covers: Covers | None = None
    ended_processes: list[EndedProcess] | None = None
    failure_reason: str | None = None
    """For a command: what is wrong with its exit, such as `exit code 3`. The step's error is this, without a code."""


NON_RETRYABLE = (AuthenticationFailed, RequestRejected, OutcomeUnknown, AgentMissing, BudgetExceeded, TurnsExceeded)
"""What no further try can mend, as far as we know."""


def failure_from_record(done: StepCompleted | CallCompleted) -> RunFailed:
    """The failure that a step ended with, as an error again."""
    if done.error is not None and done.error_code is None:
        return command_failed(done.error)
    kind = error_class(done.error_code or StepFailed.code)
    if not issubclass(kind, RunFailed):
        kind = StepFailed
    return kind(done.error or "the step failed", hint=done.error_hint)


def command_failed(failure_reason: str) -> StepFailed:
    """The failure that a worker gets for a bad exit of its command."""
    return StepFailed(f"the command failed: {failure_reason}")


CANCELLATION_EXCEPTIONS = (asyncio.CancelledError, GeneratorExit)
"""By what a worker's code is told to leave. All else it raises, even what would end a program, ends its run alone."""


def as_run_failed(error: BaseException) -> RunFailed:
    """What went wrong in a step, as an error of ours."""
    if isinstance(error, RunFailed):
        return error
    if isinstance(error, BaseExceptionGroup):
        return as_run_failed(cast("BaseExceptionGroup[BaseException]", error).exceptions[0])
    if isinstance(error, ShopfloorError):
        return StepFailed(error.message, hint=error.hint)
    text = _text_of(error)
    said = f"{type(error).__name__}: {text}" if text else type(error).__name__
    *_, where = [None, *traceback.extract_tb(error.__traceback__)]
    return StepFailed(f"{said} ({Path(where.filename).name}:{where.lineno})" if where else said)


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - it is somebody else's, too
        return ""


_log = logging.getLogger("shopfloor.engine")
_SHORT: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.ENOBUFS})


def is_shortage(error: BaseException) -> bool:
    """Whether the process had too little memory, threads or descriptors; of a group, whether all are that."""
    match error:
        case BaseExceptionGroup():
            return all(is_shortage(one) for one in error.exceptions)
        case MemoryError():
            return True
        case OSError():
            return error.errno in _SHORT
        case RuntimeError():
            # Python has no class for it.
            return str(error) == "can't start new thread"
        case _:
            return False


def is_temporary(error: BaseException) -> bool:
    """Whether the next look may go better, so that an endless loop goes on; of a group, whether all are that."""
    if isinstance(error, BaseExceptionGroup):
        return all(is_temporary(one) for one in cast("BaseExceptionGroup[BaseException]", error).exceptions)
    return isinstance(error, ShopfloorError | OSError) or is_shortage(error)


@contextmanager
def tolerate_temporary_errors(failed: str) -> Generator[None]:
    """Log a temporary error, with what failed, and go on; raise any other."""
    try:
        yield
    except Exception as error:
        if not is_temporary(error):
            raise
        _log.warning("%s: %s", failed, error)
