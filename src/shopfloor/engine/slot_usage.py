"""Slots limit how many runs a process works on at once. A run that only waits releases its slot."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager

import anyio


class SlotPool:
    """The slots of a process: one for each run that may work at the same time."""

    def __init__(self, count: int) -> None:
        self._free = anyio.Semaphore(count)

    def slot(self) -> Slot:
        """Return a slot of this pool that is not acquired yet."""
        return Slot(self._free)

    def acquire_free(self) -> list[Slot]:
        """Acquire and return all free slots."""
        slots: list[Slot] = []
        while self._free.value:
            self._free.acquire_nowait()
            slots.append(Slot(self._free, is_acquired=True))
        return slots


class Slot:
    """The slot of one run. Acquiring or releasing it twice has no effect."""

    def __init__(self, free: anyio.Semaphore, *, is_acquired: bool = False) -> None:
        self._free = free
        self.is_acquired = is_acquired

    async def acquire(self) -> None:
        """Wait until the pool has a free slot."""
        if not self.is_acquired:
            await self._free.acquire()
            self.is_acquired = True

    def release(self) -> None:
        """Return the slot to the pool."""
        if self.is_acquired:
            self.is_acquired = False
            self._free.release()


class SlotUsage:
    """The use of the slot of one run, which is released while all branches of the run wait.

    A branch works, waits for something that the log records, or pauses for a moment. `on_idle` is called when the run
    becomes idle; `is_interrupted` returns whether the attempt is being interrupted.
    """

    def __init__(self, slot: Slot, *, on_idle: Callable[[], None], is_interrupted: Callable[[], bool]) -> None:
        self.idle_since: float | None = None
        """Since when the run has no slot because all its branches wait (monotonic seconds)."""
        self.has_activity = False
        """Whether an event was written while idle: then a branch may be about to work again."""
        self._slot = slot
        self._slot_lock = asyncio.Lock()
        self._on_idle = on_idle
        self._is_interrupted = is_interrupted
        self._working_count = 0
        self._waiting_count = 0
        self._pausing_count = 0

    @asynccontextmanager
    async def hold_slot(self) -> AsyncGenerator[None]:
        """Hold the slot during work that keeps the host busy."""
        # Count before acquiring the slot: a run with a started step must not be suspended.
        self._working_count += 1
        try:
            await self._reacquire_slot()
            yield
        finally:
            self._working_count -= 1
            self._update_idle()

    @asynccontextmanager
    async def yield_slot(self) -> AsyncGenerator[None]:
        """Release the slot during a wait that the log records, so that the run can be suspended and resumed later."""
        self._waiting_count += 1
        self._update_idle()
        try:
            yield
        finally:
            self._waiting_count -= 1
            # While other branches wait, this one needs a slot only when it works.
            if not self._is_interrupted() and not self._waiting_count:
                # Count as work: a run that continues must not be suspended while it waits for its slot.
                async with self.hold_slot():
                    pass

    @asynccontextmanager
    async def release_slot(self) -> AsyncGenerator[None]:
        """Release the slot during work outside of this process. The run cannot be suspended meanwhile."""
        self._pausing_count += 1
        try:
            async with self.yield_slot():
                yield
        finally:
            self._pausing_count -= 1

    @asynccontextmanager
    async def release_held_slot(self) -> AsyncGenerator[None]:
        """Release the slot inside `hold_slot`, while a process of the run waits. The run cannot be suspended then."""
        self._working_count -= 1
        try:
            async with self.release_slot():
                yield
        finally:
            self._working_count += 1
            if not self._is_interrupted():
                await self._reacquire_slot()

    async def pause(self, seconds: float) -> None:
        """Sleep without recording the wait: the run cannot be suspended meanwhile."""
        self._pausing_count += 1
        try:
            await anyio.sleep(seconds)
        finally:
            self._pausing_count -= 1
            self._update_idle()

    @contextmanager
    def prevent_suspension(self) -> Generator[None]:
        """Keep the run in this process, even while it waits without a slot."""
        self._pausing_count += 1
        try:
            yield
        finally:
            self._pausing_count -= 1
            self._update_idle()

    def _update_idle(self) -> None:
        if self._waiting_count and not self._working_count and self.idle_since is None:
            self.idle_since = time.monotonic()
            self._slot.release()
            self._on_idle()

    async def _reacquire_slot(self) -> None:
        async with self._slot_lock:
            if self.idle_since is not None:
                await self._slot.acquire()
                self.idle_since, self.has_activity = None, False

    def note_activity(self) -> None:
        """Note that something happened in an idle run, which restarts its idle time."""
        if self.idle_since is not None:
            self.idle_since, self.has_activity = time.monotonic(), True

    def idle_seconds(self, now: float) -> float:
        """Return for how long the run has been idle at this time (monotonic seconds)."""
        return 0.0 if self.idle_since is None else now - self.idle_since

    @property
    def is_suspendable(self) -> bool:
        """Whether the run could continue in another process without losing anything."""
        return self.idle_since is not None and not self._pausing_count and not self._working_count
