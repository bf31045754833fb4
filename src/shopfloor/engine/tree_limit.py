"""How many runs of one tree may be open at once: a worker that calls itself must not fill the machine."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

import anyio
import msgspec

from shopfloor.errors import TreeLimit
from shopfloor.limits import TREE_CHECK_SECONDS, TREE_COUNTS_CACHED, TREE_FULL_TIMEOUT_SECONDS


class _Tree(msgspec.Struct):
    open_runs: int
    """At most so many: those that the rows had when they were counted last, and all that began since."""
    beginning: int = 0
    """Runs that were admitted and may have no row yet."""
    full_since: float | None = None


class TreeLimiter:
    """Admits runs to trees. `count` gives the open runs of a tree by their rows, which may be late to see an end."""

    def __init__(self, count: Callable[[str], Awaitable[int]], *, limit: int) -> None:
        self._count = count
        self._limit = limit
        self._trees: OrderedDict[str, _Tree] = OrderedDict()
        self._counting = anyio.Lock()

    @asynccontextmanager
    async def admitted(self, root_run_id: str) -> AsyncGenerator[None]:
        """Around making a sub-run. Raises `TreeLimit` where the tree has no room for it, and gets none soon."""
        tree = await self._tree(root_run_id)
        while tree.open_runs >= self._limit:
            await self._make_room(root_run_id, tree)
        tree.open_runs += 1
        tree.beginning += 1
        try:
            yield
        finally:
            tree.beginning -= 1

    async def _tree(self, root_run_id: str) -> _Tree:
        if root_run_id not in self._trees:
            counted = await self._count(root_run_id)
            self._trees.setdefault(root_run_id, _Tree(counted))
            while len(self._trees) > TREE_COUNTS_CACHED:
                self._trees.popitem(last=False)
        return self._trees.setdefault(root_run_id, _Tree(0))

    async def _make_room(self, root_run_id: str, tree: _Tree) -> None:
        """Count again: runs have ended since. Of those who wait for room one counts at a time."""
        async with self._counting:
            if tree.open_runs < self._limit:
                return
            tree.open_runs = await self._count(root_run_id) + tree.beginning
            if tree.open_runs < self._limit:
                tree.full_since = None
                return
            now = time.monotonic()
            tree.full_since = tree.full_since or now
            if now - tree.full_since < TREE_FULL_TIMEOUT_SECONDS:
                await anyio.sleep(TREE_CHECK_SECONDS)
                return
        raise TreeLimit(
            f"the tree of the run {root_run_id} has {tree.open_runs:,} open runs, and {self._limit:,} is the most",
            hint="does a worker call itself without an end? else call fewer at once",
        )
