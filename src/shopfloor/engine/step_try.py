"""One try of a step: its result, its time limit, and the decision about the next try."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import anyio
import msgspec

from shopfloor.engine.error_mapping import NON_RETRYABLE
from shopfloor.engine.replay_state import StepKey
from shopfloor.errors import ShopfloorError, StepTimeout
from shopfloor.log import Cost, Covers, EndedProcess, FailureDecision, Limit, Session, Usage

if TYPE_CHECKING:
    from shopfloor.engine.workers.definition import Retry


class Finished(Exception):
    """Raised by a worker to end its run, with an output or as failed."""

    def __init__(self, output: Any = None, *, failed: str | None = None) -> None:
        super().__init__(failed or "finished")
        self.output = output
        self.failed = failed


class StepResult(msgspec.Struct, frozen=True):
    """The result of a step, with its usage and cost."""

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
    """For a command: why its exit is a failure, such as `exit code 3`. Recorded as the error, without a code."""


class StepPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How often a step is tried, and how long each try may take."""

    retry: Retry | None = None
    timeout_seconds: float | None = None

    def decide(self, try_: int, failure: ShopfloorError) -> FailureDecision:
        """Return what follows the failure of this try."""
        retry = self.retry
        if retry is None or try_ > retry.limit or (isinstance(failure, NON_RETRYABLE) and not retry.always):
            return FailureDecision(action="abort")
        delay = min(retry.delay * retry.factor ** (try_ - 1), retry.max_delay)
        return FailureDecision(action="retry", try_=try_ + 1, delay_seconds=delay)


NO_POLICY = StepPolicy()


class StepTry(msgspec.Struct):
    """One try of a step that is being executed."""

    step_key: StepKey
    name: str
    kind: str
    try_: int
    started_monotonic: float | None
    """None if a crash interrupted the try: how long it took is not known then."""
    branches: list[str] | None = None
    resumed: bool = False
    """Whether an earlier attempt has started this try, according to the log."""
    policy: StepPolicy = NO_POLICY
    session: Session | None = None
    """For a model: its conversation."""
    result: StepResult | None = None
    """The result so far, recorded if the step fails or is interrupted."""
    time_limit: anyio.CancelScope | None = None
    """Cancels the work of the try at its time limit, if it has one."""

    def __post_init__(self) -> None:
        if self.policy.timeout_seconds is not None:
            self.time_limit = anyio.CancelScope()

    def start_timer(self, elapsed_seconds: float = 0.0) -> None:
        """Start to measure the time limit, of which this much has passed since the start in the log."""
        if self.time_limit is not None and self.policy.timeout_seconds is not None:
            remaining = max(0.0, self.policy.timeout_seconds - elapsed_seconds)
            self.time_limit.deadline = anyio.current_time() + remaining

    @property
    def is_timed_out(self) -> bool:
        """Whether the try was stopped at its time limit."""
        return self.time_limit is not None and self.time_limit.cancel_called

    def timeout_error(self) -> StepTimeout:
        """Return the error of a try that was stopped at its time limit."""
        limit = f"{self.policy.timeout_seconds:g} s" if self.policy.timeout_seconds is not None else "0 s"
        return StepTimeout(f"the step {self.name!r} took longer than its time limit of {limit}")


StepFunction = Callable[[StepTry], Awaitable[StepResult]]
"""The work of a step. Called once per try."""
