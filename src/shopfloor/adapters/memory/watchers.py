"""The clients that execute runs, where one server serves a storage."""

from __future__ import annotations

from collections import Counter
from itertools import count


class MemoryWatchers:
    """Implements `Watchers` for the clients of this process. Nothing of them outlives it."""

    def __init__(self) -> None:
        self._open: Counter[str] = Counter()
        self._bound: set[str] = set()
        self._left: dict[str, str] = {}
        """The bound runs without a client, each with the name of the hang-up; a client that returns removes it."""
        self._names = count(1)

    async def enter(self, run_id: str, *, bound: bool = True) -> None:
        (self._bound.add if bound else self._bound.discard)(run_id)
        self._left.pop(run_id, None)
        self._open[run_id] += 1

    async def leave(self, run_id: str) -> str | None:
        self._open[run_id] -= 1
        if self._open[run_id] > 0:
            return None
        del self._open[run_id]
        if run_id not in self._bound:
            return None
        self._left[run_id] = hang_up = str(next(self._names))
        return hang_up

    async def release(self, run_id: str) -> None:
        self._bound.discard(run_id)
        self._left.pop(run_id, None)

    async def is_abandoned(self, run_id: str, hang_up: str) -> bool:
        if self._left.get(run_id) != hang_up:
            return False
        await self.release(run_id)
        return True
