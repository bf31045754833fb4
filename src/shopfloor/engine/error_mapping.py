"""Errors of steps and runs: exceptions as recorded errors and back, and temporary errors."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import traceback
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import anyio
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
from shopfloor.limits import PREVIEW_CHARS, TRACEBACK_CHARS
from shopfloor.log import RunError

if TYPE_CHECKING:
    from shopfloor.engine.replay_state import StepRecord

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
_PACKAGE: Final = Path(__file__).parent.parent
_OWN_FOLDERS: Final = tuple(
    f"{folder}{os.sep}" for folder in (_PACKAGE, Path(anyio.__file__).parent, Path(asyncio.__file__).parent)
)
_EXAMPLES: Final = f"{_PACKAGE / 'examples'}{os.sep}"
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
        traceback=format_worker_traceback(failure) or msgspec.UNSET,
    )


def failure_from_record(record: StepRecord) -> RunFailed:
    """Return the recorded failure of a step as the exception that its worker gets."""
    done = record.done
    if done is not None and done.error is not None and done.error_code is None:
        return command_failed(record.name, record.command, done.error)
    kind = error_class((done and done.error_code) or StepFailed.code)
    if not issubclass(kind, RunFailed):
        kind = StepFailed
    failure = kind((done and done.error) or "the step failed", hint=done and done.error_hint)
    return name_step(failure, record.name, record.kind)


def command_failed(step: str, line: str, failure_reason: str) -> StepFailed:
    """Return the error that a worker gets when its command fails."""
    line = " ".join(line.split())
    line = line if len(line) <= PREVIEW_CHARS else f"{line[:PREVIEW_CHARS]}…"
    return StepFailed(f"step {step}: command `{line}` failed: {failure_reason}")


def name_step(failure: RunFailed, step: str, kind: str) -> RunFailed:
    """Return the failure of a function of the worker with the name of its step. Other failures name what failed."""
    if kind != "step" or type(failure) is not StepFailed or repr(step) in failure.message:
        return failure
    named = StepFailed(f"step {step}: {failure.message}", hint=failure.hint)
    # The error of the worker is the cause, not the error that only describes it.
    return _caused_by(failure.__cause__ or failure, named)


def as_run_failed(error: BaseException) -> RunFailed:
    """Return the failure of a step as a `RunFailed`, with the place in the code of a foreign exception."""
    if isinstance(error, RunFailed):
        return error
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        first, *others = group.exceptions
        failure = as_run_failed(first)
        # Only the traceback of the group has the other errors, and the place of errors that were never raised.
        is_complete = failure is first or (not others and first.__traceback__ is not None)
        return failure if is_complete else _caused_by(group, failure)
    if isinstance(error, ShopfloorError):
        return _caused_by(error, StepFailed(error.message, hint=error.hint))
    text = _message_of(error)
    description = f"{type(error).__name__}: {text}" if text else type(error).__name__
    *_, frame = [None, *traceback.extract_tb(error.__traceback__)]
    return _caused_by(
        error, StepFailed(f"{description} ({Path(frame.filename).name}:{frame.lineno})" if frame else description)
    )


def _caused_by(error: BaseException, failure: RunFailed) -> RunFailed:
    failure.__cause__ = error
    return failure


def format_worker_traceback(error: BaseException) -> str | None:
    """Return the end of the traceback of an error and its causes, without frames of Shopfloor and the event loop.

    None if no code of a worker was involved.
    """
    formatted = traceback.TracebackException.from_exception(error)
    if not _remove_own_frames(formatted):
        return None
    if not formatted.stack and formatted.__cause__ is not None:
        # Our error only describes the worker's.
        formatted = formatted.__cause__
    text = "".join(formatted.format()).rstrip("\n")
    excess = len(text) - TRACEBACK_CHARS
    return text if excess <= 0 else f"… {excess:,} characters cut\n{text[excess:]}"


def _remove_own_frames(formatted: traceback.TracebackException) -> bool:
    """Remove frames that are not the worker's, in place. Return whether any frame is left."""
    frames = [frame for frame in formatted.stack if not _is_own_file(frame.filename)]
    # Without a stack, only the line of the exception is formatted.
    formatted.stack = traceback.StackSummary.from_list(frames) if frames else cast("Any", None)
    inner = [formatted.__cause__, formatted.__context__, *(formatted.exceptions or ())]
    return any([bool(frames), *(_remove_own_frames(each) for each in inner if each is not None)])


def _is_own_file(filename: str) -> bool:
    return filename.startswith(_OWN_FOLDERS) and not filename.startswith(_EXAMPLES)


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
