"""Slots, and how much of them a run takes: it works, it waits, or it pauses for a moment."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import anyio


class SlotPool:
    """How many runs a process works on at once."""

    def __init__(self, count: int) -> None:
        self._free = anyio.Semaphore(count)

    def slot(self) -> Slot:
        return Slot(self._free)

    def acquire_free(self) -> list[Slot]:
        """Take all that are free."""
        slots: list[Slot] = []
        while self._free.value:
            self._free.acquire_nowait()
            slots.append(Slot(self._free, is_acquired=True))
        return slots


class Slot:
    """The place of one run among them: a run that waits gives it to others."""

    def __init__(self, free: anyio.Semaphore, *, is_acquired: bool = False) -> None:
        self._free = free
        self.is_acquired = is_acquired

    async def acquire(self) -> None:
        if not self.is_acquired:
            await self._free.acquire()
            self.is_acquired = True

    def release(self) -> None:
        if self.is_acquired:
            self.is_acquired = False
            self._free.release()


class SlotUsage:
    """Counts what a run's branches are at. A run all of whose branches wait gives its slot to others."""

    def __init__(self, slot: Slot, *, on_idle: Callable[[], None], left: Callable[[], bool]) -> None:
        self.idle_since: float | None = None
        self.has_activity = False
        """Whether something was written since: then a branch may be on its way, though the others wait."""
        self._slot = slot
        self._slot_lock = asyncio.Lock()
        self._on_idle = on_idle
        self._left = left
        self._working = 0
        self._waiting = 0
        self._pausing = 0

    @asynccontextmanager
    async def hold_slot(self) -> AsyncGenerator[None]:
        """Around what keeps the host busy."""
        # Counted before there is a slot for it: a step that has begun is no wait that can be left.
        self._working += 1
        try:
            await self._need_slot()
            yield
        finally:
            self._working -= 1
            self._look_idle()

    @asynccontextmanager
    async def yield_slot(self) -> AsyncGenerator[None]:
        """Around a wait for something that the log tells of: it can be gone on with after any time."""
        self._waiting += 1
        self._look_idle()
        try:
            yield
        finally:
            self._waiting -= 1
            # While other branches wait, this one needs a slot only when it works.
            if not self._left() and not self._waiting:
                # Counted as work: a run that is on its way must not be let go while it waits for its slot.
                async with self.hold_slot():
                    pass

    async def pause(self, seconds: float) -> None:
        """A wait that only this attempt knows of."""
        self._pausing += 1
        try:
            await anyio.sleep(seconds)
        finally:
            self._pausing -= 1
            self._look_idle()

    def _look_idle(self) -> None:
        if self._waiting and not self._working and self.idle_since is None:
            self.idle_since = time.monotonic()
            self._slot.release()
            self._on_idle()

    async def _need_slot(self) -> None:
        async with self._slot_lock:
            if self.idle_since is not None:
                await self._slot.acquire()
                self.idle_since, self.has_activity = None, False

    def note_activity(self) -> None:
        if self.idle_since is not None:
            self.idle_since, self.has_activity = time.monotonic(), True

    @property
    def is_suspendable(self) -> bool:
        """Nothing would be lost by going on in another process."""
        return self.idle_since is not None and not self._pausing and not self._working
