"""A real server on a loopback port with a real storage (SQLite, files, ingest) and no engine."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import anyio
import httpx
import msgspec
from anyio.abc import TaskStatus
from anyio.from_thread import BlockingPortal, start_blocking_portal
from starlette.applications import Starlette
from tests.ingest_factory import create_ingest
from tests.login import StorageAccess
from tests.timeouts import TIMEOUT_SECONDS

from shopfloor.adapters.local import LocalLogReader, LocalTokens
from shopfloor.adapters.memory import MemoryWatchers
from shopfloor.adapters.sqlite import SqliteQueue, SqliteStore
from shopfloor.log import RunStarted, new_run_id, now
from shopfloor.ports import QueuedRun, Role
from shopfloor.record import Storage
from shopfloor.server import AccessControl, ConnectionLimits, Services, create_app, serve


class RunningServer(msgspec.Struct, kw_only=True):
    """A running server, and the means to log in to it."""

    url: str
    app: Starlette
    storage: Storage
    tokens: StorageAccess
    portal: BlockingPortal | None = None

    @property
    def host(self) -> str:
        return self.url.removeprefix("http://")

    def client(self, role: Role = "admin", **settings: Any) -> httpx.Client:
        token = self.tokens.admin_token() if role == "admin" else self.tokens.issue_token(role)
        return self.anonymous_client(headers={"Authorization": f"Bearer {token}"}, **settings)

    def anonymous_client(self, **settings: Any) -> httpx.Client:
        """Return a client without a token."""
        return httpx.Client(base_url=self.url, timeout=TIMEOUT_SECONDS, trust_env=False, verify=False, **settings)


@asynccontextmanager
async def _run_server(
    storage: Storage, change: Callable[[Services], Services], limits: ConnectionLimits | None
) -> AsyncGenerator[RunningServer]:
    store = await SqliteStore.open(storage.database)
    ingest = create_ingest(storage, store)
    services = Services(
        store=store,
        logs=LocalLogReader(storage),
        changes=ingest,
        access=AccessControl(LocalTokens(storage.tokens)),
        watchers=MemoryWatchers(),
        version="1.2.3",
    )
    app = create_app(change(services))
    await ingest.catch_up(everything=True)
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ingest.run)
            url = await tasks.start(_serve_app, app, limits)
            yield RunningServer(url=url, app=app, storage=storage, tokens=StorageAccess(storage.tokens))
            tasks.cancel_scope.cancel()
    finally:
        await store.close()


async def _serve_app(app: Starlette, limits: ConnectionLimits | None, *, task_status: TaskStatus[str]) -> None:
    await serve(app, "127.0.0.1", 0, task_status.started, limits)


@contextmanager
def open_server(
    storage: Storage, *, limits: ConnectionLimits | None = None, **changes: Any
) -> Generator[RunningServer]:
    """Start a server. `changes` replace fields of its services."""

    def change(services: Services) -> Services:
        return msgspec.structs.replace(services, **changes)

    with (
        start_blocking_portal(backend_options={"use_uvloop": True}) as portal,
        portal.wrap_async_context_manager(_run_server(storage, change, limits)) as server,
    ):
        server.portal = portal
        yield server


def queue_run(server: RunningServer) -> str:
    """Queue a run, which nothing executes, and return its id."""
    run_id = new_run_id()
    started = RunStarted(
        name="tester",
        kind="worker",
        attempt=0,
        host="",
        task="later",
        agent_id="ada",
        channel_id="api",
        root_run_id=run_id,
        queued_at=now(),
    )
    assert server.portal is not None
    queue = SqliteQueue(server.app.state.services.store)
    return server.portal.call(queue.dispatch, QueuedRun(run_id=run_id, started=started))
