"""Who watches which run; and the end of executions that nobody watches any more."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager

import anyio
import anyio.abc
from fastapi import Request

from shopfloor.errors import RunEnded, RunNotFound
from shopfloor.server.services import Services

_log = logging.getLogger("shopfloor.server")


class Watchers:
    """Counts the open streams of runs.

    An execution is bound to whoever watches it: where the last of them goes before the run has ended or asked for
    something, and nobody comes within the grace, it is cancelled. Other runs do not care who watches.
    """

    def __init__(self, served: Services) -> None:
        self._served = served
        self._open: Counter[str] = Counter()
        self._bound: set[str] = set()
        self._left: dict[str, object] = {}
        """The bound runs that nobody watches, each with what marks the moment: who comes back takes it away."""
        self._tasks: anyio.abc.TaskGroup | None = None

    @asynccontextmanager
    async def working(self) -> AsyncGenerator[None]:
        """While it lasts, those that were left are seen to. What is in its grace when it ends goes on."""
        async with anyio.create_task_group() as self._tasks:
            try:
                yield
            finally:
                self._tasks.cancel_scope.cancel()
        self._tasks = None

    @contextmanager
    def watching(self, run_id: str, *, bound: bool | None = None) -> Generator[None]:
        """A stream of this run is open. With `bound` the run is bound to its watchers from now on, or no longer."""
        if bound is not None:
            (self._bound.add if bound else self._bound.discard)(run_id)
        self._left.pop(run_id, None)
        self._open[run_id] += 1
        try:
            yield
        finally:
            self._open[run_id] -= 1
            if not self._open[run_id]:
                del self._open[run_id]
                self._all_gone(run_id)

    def release(self, run_id: str) -> None:
        """It has ended, or waits for somebody: it is not bound any more."""
        self._bound.discard(run_id)

    def _all_gone(self, run_id: str) -> None:
        if run_id not in self._bound:
            return
        if self._tasks is None:
            # The app is on its way out, or has never been started as one.
            self._bound.discard(run_id)
            return
        self._left[run_id] = left = object()
        self._tasks.start_soon(self._end_unless_watched, run_id, left)

    async def _end_unless_watched(self, run_id: str, left: object) -> None:
        await anyio.sleep(self._served.execute_grace_seconds)
        if self._left.get(run_id) is not left:
            return
        del self._left[run_id]
        self._bound.discard(run_id)
        try:
            if self._served.works is not None and not await self._waits_for_somebody(run_id):
                await self._served.works.cancel(run_id, reason="its client has gone")
        except (RunEnded, RunNotFound):
            pass
        except Exception as error:  # noqa: BLE001 - one that cannot be cancelled must not keep the others from it
            _log.exception("run %s, whose client has gone, cannot be cancelled", run_id, exc_info=error)

    async def _waits_for_somebody(self, run_id: str) -> bool:
        run = await self._served.store.get_run(run_id)
        return run is not None and run.row.status == "waiting" and bool(run.row.awaits)


def watchers_of(request: Request) -> Watchers:
    return request.app.state.watchers
