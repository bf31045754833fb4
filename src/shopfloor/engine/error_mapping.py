"""Errors of steps and runs: exceptions as recorded errors and back, and temporary errors."""

from __future__ import annotations

import asyncio
import errno
import logging
import traceback
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, cast

import msgspec

from shopfloor.errors import (
    AgentMissing,
    ApprovalDenied,
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
from shopfloor.log import CallCompleted, RunError, StepCompleted

NON_RETRYABLE = (
    AuthenticationFailed,
    RequestRejected,
    OutcomeUnknown,
    AgentMissing,
    ApprovalDenied,
    BudgetExceeded,
    TurnsExceeded,
)
"""Failures that a retry is not expected to fix."""
CANCELLATION_EXCEPTIONS = (asyncio.CancelledError, GeneratorExit)
"""Exceptions that stop the code of a worker. Any other one, even `SystemExit`, only ends the run of that worker."""
_log = logging.getLogger("shopfloor.engine")
_SHORTAGE_ERRNOS: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.ENOBUFS})


def to_run_error(failure: ShopfloorError) -> RunError:
    """Return an error as the outcome of a run records it."""
    retryable = failure.retryable if isinstance(failure, RunFailed) else isinstance(failure, StorageError)
    after = failure.retry_after if isinstance(failure, RunFailed) else None
    return RunError(
        code=failure.code,
        message=failure.message,
        retryable=retryable,
        retry_after=msgspec.UNSET if after is None else after,
        hint=failure.hint or msgspec.UNSET,
    )


def failure_from_record(done: StepCompleted | CallCompleted) -> RunFailed:
    """Return the recorded failure of a step as an exception."""
    if done.error is not None and done.error_code is None:
        return command_failed(done.error)
    kind = error_class(done.error_code or StepFailed.code)
    if not issubclass(kind, RunFailed):
        kind = StepFailed
    return kind(done.error or "the step failed", hint=done.error_hint)


def command_failed(failure_reason: str) -> StepFailed:
    """Return the error that a worker gets when its command fails."""
    return StepFailed(f"the command failed: {failure_reason}")


def as_run_failed(error: BaseException) -> RunFailed:
    """Return the failure of a step as a `RunFailed`, with the place in the code of a foreign exception."""
    if isinstance(error, RunFailed):
        return error
    if isinstance(error, BaseExceptionGroup):
        return as_run_failed(cast("BaseExceptionGroup[BaseException]", error).exceptions[0])
    if isinstance(error, ShopfloorError):
        return StepFailed(error.message, hint=error.hint)
    text = _message_of(error)
    description = f"{type(error).__name__}: {text}" if text else type(error).__name__
    *_, frame = [None, *traceback.extract_tb(error.__traceback__)]
    return StepFailed(f"{description} ({Path(frame.filename).name}:{frame.lineno})" if frame else description)


def _message_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - `__str__` of a foreign exception may raise anything
        return ""


def is_shortage(error: BaseException) -> bool:
    """Return whether the process ran out of memory, threads or descriptors. A group counts if all its errors do."""
    match error:
        case BaseExceptionGroup():
            return all(map(is_shortage, error.exceptions))
        case MemoryError():
            return True
        case OSError():
            return error.errno in _SHORTAGE_ERRNOS
        case RuntimeError():
            # Python has no exception class for this error.
            return str(error) == "can't start new thread"
        case _:
            return False


def is_temporary(error: BaseException) -> bool:
    """Return whether a retry may succeed, so that a background loop continues. A group counts if all its errors do."""
    if isinstance(error, BaseExceptionGroup):
        return all(map(is_temporary, cast("BaseExceptionGroup[BaseException]", error).exceptions))
    return isinstance(error, ShopfloorError | OSError) or is_shortage(error)


@contextmanager
def tolerate_temporary_errors(failed: str) -> Generator[None]:
    """Log a temporary error and suppress it. `failed` is the beginning of the log line. Other errors are raised."""
    try:
        yield
    except Exception as error:
        if not is_temporary(error):
            raise
        _log.warning("%s: %s", failed, error)
