"""Live: whoever follows a log that is written in this process hears of it at once, and of text as it is typed."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress

import anyio

from shopfloor.limits import FOLLOWER_DELTAS
from shopfloor.log import Delta


class Live:
    """Between the writers and the followers of one process, in whatever threads they are."""

    def __init__(self) -> None:
        self._ears: dict[str, tuple[Ear, ...]] = {}
        self._lock = threading.Lock()

    def wake(self, run_id: str) -> None:
        """Something happened to this log."""
        for ear in self._ears.get(run_id, ()):
            ear.wake()

    def tell(self, run_id: str, delta: Delta) -> None:
        for ear in self._ears.get(run_id, ()):
            ear.tell(delta)

    @contextmanager
    def listen(self, run_id: str, *, deltas: bool = False) -> Generator[Ear]:
        """To be called in the loop that will wait."""
        ear = Ear(deltas=deltas)
        with self._lock:
            self._ears[run_id] = (*self._ears.get(run_id, ()), ear)
        try:
            yield ear
        finally:
            with self._lock:
                left = tuple(one for one in self._ears[run_id] if one is not ear)
                if left:
                    self._ears[run_id] = left
                else:
                    del self._ears[run_id]


class Ear:
    """One follower's: that something happened, and the pieces that it has not been given yet."""

    def __init__(self, *, deltas: bool) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._news = asyncio.Event()
        self._woken = False
        self._wants_deltas = deltas
        self._deltas: deque[Delta] = deque()

    def wake(self) -> None:
        if self._woken:
            return
        self._woken = True
        if threading.get_ident() == self._thread:
            self._news.set()
            return
        # A loop that is closed has no followers left to wake.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._news.set)

    def tell(self, delta: Delta) -> None:
        if self._wants_deltas and len(self._deltas) < FOLLOWER_DELTAS:
            self._deltas.append(delta)
            self.wake()

    def look(self) -> None:
        """From now on whatever happens is news. To be called before looking at the log, so that nothing is missed."""
        self._news.clear()
        self._woken = False

    async def wait(self, seconds: float) -> None:
        """Until there is news, but no longer than that."""
        with anyio.move_on_after(seconds):
            await self._news.wait()

    def has_deltas(self) -> bool:
        return bool(self._deltas)

    def take(self, given: int, whole: Mapping[str, int]) -> list[Delta]:
        """The deltas that follow what was given up to the `seq` `given`. Deltas of a message are left out that came
        before its whole: `whole` has the `seq` of that, by the message's id."""
        taken: list[Delta] = []
        while self._deltas and self._deltas[0].after <= given:
            delta = self._deltas.popleft()
            if delta.after >= whole.get(delta.message_id, 0):
                taken.append(delta)
        return taken

    def drop(self) -> None:
        """Forgets the pieces: the log that they follow has lost its end."""
        self._deltas.clear()
