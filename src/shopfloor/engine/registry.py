"""The runs that this process has claimed and executes, with the events that wake the scheduler."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from enum import Enum
from typing import Protocol

import anyio
import msgspec

from shopfloor.engine.attempt import Attempt
from shopfloor.engine.slot_usage import Slot
from shopfloor.errors import ShopfloorError
from shopfloor.log import AssistantMessage, RunCompleted, RunStarted
from shopfloor.ports import QueuedRun
from shopfloor.views import UsageTotal


class RunObserver(Protocol):
    """Is told which runs this process executes. Must not block or raise."""

    def attempt_started(self, run_id: str, first: RunStarted) -> None:
        """Note that an attempt has started. `first` is the first event of the run's log."""
        ...

    def attempt_ended(self, run_id: str, outcome: RunCompleted | None, spent: UsageTotal) -> None:
        """Note that the attempt is over. `outcome` is what it has recorded; None if the run stays open.

        `spent` is what the run and its sub-runs have spent.
        """
        ...


class _NoObserver:
    def attempt_started(self, run_id: str, first: RunStarted) -> None: ...

    def attempt_ended(self, run_id: str, outcome: RunCompleted | None, spent: UsageTotal) -> None: ...


class ClaimPolicy(Enum):
    """Which runs a process claims."""

    QUEUED = "every run that is queued, and every open run that has no host"
    OWN = "the runs that were requested of this process, and their sub-runs"
    CANCELLED = "runs that have no host, to cancel them"


class Claim(msgspec.Struct):
    """A run that this process executes or is about to execute."""

    run_id: str
    queued: QueuedRun | None = None
    """The run as it was queued; None if the run has a log."""
    cancel_reason: str | None = None
    """Set if the run is to be cancelled instead of executed."""
    has_started: bool = False
    """Whether the run has started here: even if its log is lost, the run must not start a second time."""
    is_resumed_again: bool = False
    """Whether to resume the run once more after the current attempt."""
    wait: anyio.CancelScope | None = None
    """The scope of the wait for a slot."""

    async def acquire(self, slot: Slot) -> None:
        """Wait for the slot. Returns without the slot if the run is to be cancelled, which needs none."""
        if self.cancel_reason is None and not slot.is_acquired:
            with anyio.CancelScope() as self.wait:
                await slot.acquire()

    def cancel(self, reason: str) -> None:
        """Cancel the run before its start. Has no effect afterwards."""
        self.cancel_reason = self.cancel_reason or reason
        if self.wait is not None:
            self.wait.cancel()


class RunRegistry:
    """The claims and live attempts of this process.

    Other parts add claims; the scheduler takes them in the same order.
    """

    def __init__(self, host_id: str, policy: ClaimPolicy) -> None:
        self.host_id = host_id
        self._policy = policy
        self.is_draining = False
        """Whether this host claims no more runs, and lets other hosts resume those that it does not execute."""
        self.observer: RunObserver = _NoObserver()
        self.wake_up = asyncio.Event()
        """Set when the queue has something new, or a slot may be free."""
        self.live_attempts: dict[str, Attempt] = {}
        """The attempts that are being executed, by run id."""
        self.started: list[Attempt] = []
        """Attempts of started runs that are still in the queue."""
        self._claims: dict[str, Claim] = {}
        self._ready: list[Claim] = []
        self._has_ready = asyncio.Event()
        self._is_closed = False

    @property
    def policy(self) -> ClaimPolicy:
        """Which runs this process claims now."""
        return ClaimPolicy.CANCELLED if self.is_draining else self._policy

    @property
    def is_caller_process(self) -> bool:
        """Whether this is the process of the caller, which executes only the runs requested of it."""
        return self.policy is ClaimPolicy.OWN

    @property
    def claims(self) -> Mapping[str, Claim]:
        """All claims of this process, by run id."""
        return self._claims

    def register(self, claim: Claim) -> bool:
        """Note a claim that the scheduler is about to start. Return False if the run is claimed already."""
        is_new = not self._is_closed and claim.run_id not in self._claims
        if is_new:
            self._claims[claim.run_id] = claim
        return is_new

    def add(self, claim: Claim) -> bool:
        """Queue a claim for the scheduler. Return False if the run is claimed already."""
        is_new = self.register(claim)
        if is_new:
            self._ready.append(claim)
            self._has_ready.set()
        return is_new

    def resume(self, run_id: str) -> None:
        """Resume a run that has a log: now, or after its current attempt."""
        if run_id in self._claims:
            self._claims[run_id].is_resumed_again = True
        else:
            self.add(Claim(run_id))

    def remove(self, claim: Claim) -> None:
        """Remove a claim whose run this process no longer executes."""
        del self._claims[claim.run_id]

    async def take_ready(self) -> list[Claim]:
        """Wait until there are claims to start, and return them."""
        await self._has_ready.wait()
        self._has_ready.clear()
        ready, self._ready = self._ready, []
        return ready

    def recorded(self) -> list[str]:
        """Return the started runs whose logs are durable: the queue may delete them."""
        return [attempt.run_id for attempt in self.started if attempt.is_durable]

    def forget_started(self, run_ids: Sequence[str]) -> None:
        """Forget started runs that the queue has deleted."""
        if run_ids:
            deleted = frozenset(run_ids)
            self.started = [attempt for attempt in self.started if attempt.run_id not in deleted]

    def close(self) -> None:
        """Refuse new claims, and drop those that the scheduler has not taken."""
        self._is_closed = True
        for claim in self._ready:
            self.remove(claim)
        self._ready = []

    def append_note(self, run_id: str, note: AssistantMessage) -> None:
        """Append a note to the log of a live run. Called from another thread, while the loop is blocked."""
        attempt = self.live_attempts.get(run_id)
        if attempt is not None:
            with suppress(ShopfloorError, OSError):
                attempt.append_now(note)
