"""Slots: how many runs a host works on at once."""

from __future__ import annotations

import anyio


class Slots:
    """How many runs may be worked on at once."""

    def __init__(self, count: int) -> None:
        self._free = anyio.Semaphore(count)

    def slot(self) -> Slot:
        return Slot(self._free)

    def take_free(self) -> list[Slot]:
        """All that are free, taken."""
        slots: list[Slot] = []
        while self._free.value:
            slots.append(self.slot())
            slots[-1].take_now()
        return slots


class Slot:
    """One run's place among them."""

    def __init__(self, free: anyio.Semaphore) -> None:
        self._free = free
        self.held = False

    async def take(self) -> None:
        if not self.held:
            await self._free.acquire()
            self.held = True

    def take_now(self) -> None:
        self._free.acquire_nowait()
        self.held = True

    def give(self) -> None:
        if self.held:
            self.held = False
            self._free.release()
