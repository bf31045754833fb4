"""The limit of open runs per tree: a worker that calls itself must not exhaust the machine."""

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
    """The count of open runs of a tree."""

    open_runs: int
    """An upper bound: the open runs at the last count, and all that were admitted since."""
    starting: int = 0
    """Admitted runs that may have no row yet."""
    full_since: float | None = None


class TreeLimiter:
    """The admission of sub-runs to trees. `count` returns the open runs of a tree; their rows may lag behind."""

    def __init__(self, count: Callable[[str], Awaitable[int]], *, limit: int) -> None:
        self._count = count
        self._limit = limit
        self._trees: OrderedDict[str, _Tree] = OrderedDict()
        self._count_lock = anyio.Lock()

    @asynccontextmanager
    async def admitted(self, root_run_id: str) -> AsyncGenerator[None]:
        """Admit a sub-run while it is dispatched. Waits while the tree is full; then raises `TreeLimit`."""
        tree = await self._tree(root_run_id)
        while tree.open_runs >= self._limit:
            await self._wait_for_room(root_run_id, tree)
        tree.open_runs += 1
        tree.starting += 1
        try:
            yield
        finally:
            tree.starting -= 1

    async def _tree(self, root_run_id: str) -> _Tree:
        if root_run_id not in self._trees:
            counted = await self._count(root_run_id)
            self._trees.setdefault(root_run_id, _Tree(counted))
            while len(self._trees) > TREE_COUNTS_CACHED:
                self._trees.popitem(last=False)
        return self._trees.setdefault(root_run_id, _Tree(0))

    async def _wait_for_room(self, root_run_id: str, tree: _Tree) -> None:
        """Count the open runs again, since some may have ended. One waiting task counts at a time."""
        async with self._count_lock:
            if tree.open_runs < self._limit:
                return
            tree.open_runs = await self._count(root_run_id) + tree.starting
            if tree.open_runs < self._limit:
                tree.full_since = None
                return
            now = time.monotonic()
            tree.full_since = tree.full_since or now
            if now - tree.full_since < TREE_FULL_TIMEOUT_SECONDS:
                await anyio.sleep(TREE_CHECK_SECONDS)
                return
        raise TreeLimit(
            f"the tree of the run {root_run_id} has {tree.open_runs:,} open runs, but the maximum is {self._limit:,}",
            hint="check whether a worker calls itself without end, or call fewer workers at once",
        )
