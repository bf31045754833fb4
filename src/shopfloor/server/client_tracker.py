"""Cancellation of runs whose client has disconnected."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
import anyio.abc
from starlette.requests import Request

from shopfloor.errors import RunEnded, RunNotFound
from shopfloor.ports import audit_entry
from shopfloor.server.run_tree import find_sub_run_calls
from shopfloor.server.services import Services
from shopfloor.views import RATE_LIMIT

_log = logging.getLogger("shopfloor.server")


class ClientTracker:
    """Tracks the clients that execute runs, and cancels runs that all their clients have left.

    `execute` binds a run to its clients until the server ends the stream, because the run has ended or waits for an
    answer. When the last client of a bound run disconnects and none returns within the grace period, the run is
    cancelled. Clients that only read a run's log do not count.
    """

    def __init__(self, services: Services, shutdown_event: anyio.Event) -> None:
        self._services = services
        self._shutdown_event = shutdown_event
        self._tasks: anyio.abc.TaskGroup | None = None

    @asynccontextmanager
    async def cancel_abandoned_runs(self) -> AsyncGenerator[None]:
        """Cancel abandoned runs while the context lasts. A run in its grace period at the end is not cancelled."""
        async with anyio.create_task_group() as self._tasks:
            try:
                yield
            finally:
                self._tasks.cancel_scope.cancel()
        self._tasks = None

    @asynccontextmanager
    async def track_client(self, run_id: str, *, bound: bool = True) -> AsyncGenerator[None]:
        """Count a client of this run while the context lasts. `bound` binds the run to its clients, or unbinds it."""
        # Shielded: a request that is cancelled here must still be counted, because the code below uncounts it.
        with anyio.CancelScope(shield=True):
            await self._services.watchers.connect(run_id, bound=bound)
        try:
            yield
        finally:
            # Shielded: the client of a cancelled request must be uncounted too.
            with anyio.CancelScope(shield=True):
                await self._leave(run_id)

    async def unbind(self, run_id: str) -> None:
        """Unbind a run that has ended or waits for an answer, before the server ends its streams."""
        await self._services.watchers.unbind(run_id)

    async def _leave(self, run_id: str) -> None:
        disconnect_id = await self._services.watchers.disconnect(run_id)
        if disconnect_id is None:
            return
        if self._tasks is None or self._shutdown_event.is_set():
            # The server ended the stream, not the client: the next server resumes the run.
            await self.unbind(run_id)
            return
        self._tasks.start_soon(self._cancel_unless_watched, run_id, disconnect_id)

    async def _cancel_unless_watched(self, run_id: str, disconnect_id: str) -> None:
        await anyio.sleep(self._services.execute_grace_seconds)
        try:
            if not await self._services.watchers.is_abandoned(run_id, disconnect_id):
                return
            if self._services.run_service is not None and not await self._waits_for_answer(run_id):
                await self._services.run_service.cancel(run_id, reason="its client disconnected")
                if self._services.audit is not None:
                    entry = audit_entry("run.cancelled", by="server", run_id=run_id, detail="its client disconnected")
                    await self._services.audit.write(entry)
        except (RunEnded, RunNotFound):
            pass
        except Exception as error:  # noqa: BLE001 - one failure must not stop the cancellation of other runs
            _log.exception("run %s, whose client disconnected, cannot be cancelled", run_id, exc_info=error)

    async def _waits_for_answer(self, run_id: str) -> bool:
        """Return whether a run waits for its client or a person. Neither needs a connection meanwhile."""
        run = await self._services.store.get_run(run_id)
        if run is None or run.row.status != "waiting":
            return False
        if any(kind != RATE_LIMIT for kind in run.row.waits.kinds.values()):
            return True
        calls = await find_sub_run_calls(self._services.store, self._services.logs, run_id, run.row.last_seq)
        return calls is not None and bool(calls.tool_calls)


def get_client_tracker(request: Request) -> ClientTracker:
    """Return the client tracker of the app that handles the request."""
    return request.app.state.client_tracker
