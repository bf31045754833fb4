"""The end of runs whose client hung up."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
import anyio.abc
from starlette.requests import Request

from shopfloor.errors import RunEnded, RunNotFound
from shopfloor.ports import audit_entry
from shopfloor.server.run_tree import calls_below
from shopfloor.server.services import Services
from shopfloor.views import RATE_LIMIT

_log = logging.getLogger("shopfloor.server")


class ClientTracker:
    """Tracks the clients that execute runs, and cancels the runs that they leave.

    A run is bound to its clients from `execute` or `continue` on, until the server ends the stream: because the run has
    ended, or because it waits for somebody. When the last client of a bound run hangs up and none returns within the
    grace, the run is cancelled. Mere readers of a run's log are not counted.
    """

    def __init__(self, served: Services, shutdown_event: anyio.Event) -> None:
        self._served = served
        self._stopping = shutdown_event
        self._tasks: anyio.abc.TaskGroup | None = None

    @asynccontextmanager
    async def cancel_abandoned_runs(self) -> AsyncGenerator[None]:
        """Cancel abandoned runs while the context lasts. A run that is in its grace at the end goes on."""
        async with anyio.create_task_group() as self._tasks:
            try:
                yield
            finally:
                self._tasks.cancel_scope.cancel()
        self._tasks = None

    @asynccontextmanager
    async def track_client(self, run_id: str, *, bound: bool = True) -> AsyncGenerator[None]:
        """Count a client of this run, which is bound to its clients from now on, or no longer."""
        # A request that is cancelled meanwhile is counted as a whole, and leaves below.
        with anyio.CancelScope(shield=True):
            await self._served.watchers.connect(run_id, bound=bound)
        try:
            yield
        finally:
            # A request that is cancelled has a client less, too.
            with anyio.CancelScope(shield=True):
                await self._leave(run_id)

    async def unbind(self, run_id: str) -> None:
        """Unbind a run that has ended, or that waits for somebody: the server ends its streams."""
        await self._served.watchers.unbind(run_id)

    async def _leave(self, run_id: str) -> None:
        disconnect_id = await self._served.watchers.disconnect(run_id)
        if disconnect_id is None:
            return
        if self._tasks is None or self._stopping.is_set():
            # The server ended the stream, not the client: the next server goes on with the run.
            await self.unbind(run_id)
            return
        self._tasks.start_soon(self._cancel_unless_watched, run_id, disconnect_id)

    async def _cancel_unless_watched(self, run_id: str, disconnect_id: str) -> None:
        await anyio.sleep(self._served.execute_grace_seconds)
        try:
            if not await self._served.watchers.is_abandoned(run_id, disconnect_id):
                return
            if self._served.run_service is not None and not await self._waits_for_somebody(run_id):
                await self._served.run_service.cancel(run_id, reason="its client has gone")
                if self._served.audit is not None:
                    entry = audit_entry("run.cancelled", by="server", run_id=run_id, detail="its client has gone")
                    await self._served.audit.write(entry)
        except (RunEnded, RunNotFound):
            pass
        except Exception as error:  # noqa: BLE001 - a run that cannot be cancelled must not keep the others from it
            _log.exception("run %s, whose client has gone, cannot be cancelled", run_id, exc_info=error)

    async def _waits_for_somebody(self, run_id: str) -> bool:
        """Whether a run waits for its client or for a person, who need no connection."""
        run = await self._served.store.get_run(run_id)
        if run is None or run.row.status != "waiting":
            return False
        if any(kind != RATE_LIMIT for kind in run.row.waits.kinds.values()):
            return True
        below = await calls_below(self._served.store, self._served.logs, run_id, run.row.last_seq)
        return below is not None and bool(below.tool_calls)


def get_client_tracker(request: Request) -> ClientTracker:
    return request.app.state.watchers
