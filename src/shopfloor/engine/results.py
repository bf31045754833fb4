"""What steps give, and how they fail."""

from __future__ import annotations

import asyncio
import traceback
from pathlib import Path
from typing import Any, cast

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
    TurnsExceeded,
    error_of,
)
from shopfloor.log import CallCompleted, Cost, Covers, EndedProcess, Limit, Session, StepCompleted, Usage


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
    complaint: str | None = None
    """For a command: what is wrong with its exit, such as `exit code 3`. The step's error is this, without a code."""


FINAL = (AuthenticationFailed, RequestRejected, OutcomeUnknown, AgentMissing, BudgetExceeded, TurnsExceeded)
"""What no further try can mend, as far as we know."""


def failure_of(done: StepCompleted | CallCompleted) -> RunFailed:
    """The failure that a step ended with, as an error again."""
    if done.error is not None and done.error_code is None:
        return command_failed(done.error)
    kind = error_of(done.error_code or StepFailed.code)
    if not issubclass(kind, RunFailed):
        kind = StepFailed
    return kind(done.error or "the step failed", hint=done.error_hint)


def command_failed(complaint: str) -> StepFailed:
    """The failure that a worker gets for a bad exit of its command."""
    return StepFailed(f"the command failed: {complaint}")


LEAVING = (asyncio.CancelledError, GeneratorExit)
"""By what a worker's code is told to leave. All else it raises, even what would end a program, ends its run alone."""


def readable(error: BaseException) -> RunFailed:
    """What went wrong in a step, as an error of ours."""
    if isinstance(error, RunFailed):
        return error
    if isinstance(error, BaseExceptionGroup):
        return readable(cast("BaseExceptionGroup[BaseException]", error).exceptions[0])
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
