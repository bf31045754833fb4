"""A real server on a loopback port, and runs whose logs have fleet events."""

from __future__ import annotations

import socket
import threading
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any

import anyio
import msgspec
from anyio.abc import TaskStatus
from anyio.from_thread import BlockingPortal, start_blocking_portal
from starlette.applications import Starlette
from tests.login import StorageAccess

from shopfloor.adapters.local import LocalBus
from shopfloor.log import (
    RunCompleted,
    RunStarted,
    Session,
    StepCompleted,
    StepStarted,
    ToolCall,
    ToolResult,
    new_run_id,
)
from shopfloor.record import Durability, Recorder, Storage
from shopfloor.server import ConnectionLimits, FleetFeed, create_app, serve
from shopfloor.views import FleetEvent
from shopfloor.wiring import StorageBackend, local_backend


class FleetServer(msgspec.Struct, kw_only=True):
    """A running server without an engine: runs are written by the tests."""

    url: str
    storage: Storage
    backend: StorageBackend
    fleet: FleetFeed
    portal: BlockingPortal
    tokens: StorageAccess

    @property
    def token(self) -> str:
        return self.tokens.admin_token()

    def append(self, *events: FleetEvent) -> int:
        """Store events as a host does, and return the newest cursor."""
        cursor = self.portal.call(self.backend.fleet_events.append, events)
        self.backend.bus.notify_fleet()
        return cursor

    def heartbeat(self, number: int) -> None:
        payload = {"workerId": f"host-{number}", "status": "idle", "metrics": {}}
        self.backend.bus.publish_heartbeat(FleetEvent(type="worker.heartbeat", payload=payload, timestamp=TIMESTAMP))

    def cursor(self) -> int:
        return self.portal.call(self.backend.fleet_events.cursor)


TIMESTAMP = "2026-02-23T10:30:00.000Z"


def host_event(number: int, **more: Any) -> FleetEvent:
    payload = {"workerId": f"host-{number}", "previous": "idle", "current": "busy"}
    return FleetEvent(type="worker.status_changed", payload=payload, timestamp=TIMESTAMP, **more)


def provider_event(provider: str) -> FleetEvent:
    payload = {"providerId": provider, "name": provider, "reason": "disabled"}
    return FleetEvent(type="provider.unavailable", payload=payload, timestamp=TIMESTAMP, provider=provider)


@asynccontextmanager
async def _run(
    storage: Storage, limits: ConnectionLimits | None, port: int
) -> AsyncGenerator[tuple[str, StorageBackend, FleetFeed]]:
    async with local_backend(storage, is_server=True) as backend:
        services = backend.services(allowed_hosts=("127.0.0.1",))
        app = create_app(services)
        assert services.fleet is not None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(backend.ingest.run)
            url = await tasks.start(_serve, app, limits, port)
            yield url, backend, services.fleet
            tasks.cancel_scope.cancel()


async def _serve(app: Starlette, limits: ConnectionLimits | None, port: int, *, task_status: TaskStatus[str]) -> None:
    await serve(app, "127.0.0.1", port, task_status.started, limits)


@contextmanager
def fleet_server(storage: Storage, *, limits: ConnectionLimits | None = None, port: int = 0) -> Generator[FleetServer]:
    """Start a server, which ends with the context."""
    with (
        start_blocking_portal(backend_options={"use_uvloop": True}) as portal,
        portal.wrap_async_context_manager(_run(storage, limits, port)) as (url, backend, fleet),
    ):
        yield FleetServer(
            url=url, storage=storage, backend=backend, fleet=fleet, portal=portal, tokens=StorageAccess(storage.tokens)
        )


class WrittenRun:
    """A run with one session, which the test writes call by call, as another process would."""

    def __init__(self, storage: Storage, provider: str = "claude-code", parent: str | None = None) -> None:
        self.id = new_run_id()
        self._bus = LocalBus(storage)
        self._provider = provider
        self._recorder = Recorder(
            storage.log_path(self.id), self.id, durability=Durability.OS, new=True, parent_run_id=parent
        )
        storage.announce(self.id)
        self._append(RunStarted(name="w", kind="worker", attempt=1, host="host-1", task="build"), path="")
        session = Session(provider=provider)
        self._append(StepStarted(name="s", kind="agent", try_=1, session=session))

    def _append(self, payload: Any, path: str = "s") -> None:
        self._bus.publish(self.id, self._recorder.append(payload, path=path))

    def call(self, *names: str) -> None:
        """Call tools: two events each."""
        for name in names:
            fields: dict[str, Any] = {"name": name, "call_id": name, "fidelity": "agent_emitted"}
            self._append(ToolCall(input={"command": name}, output=None, **fields))
            self._append(ToolResult(input=None, output="done", duration_ms=5, **fields))

    def end(self) -> None:
        self._append(StepCompleted(name="s", kind="agent", try_=1))
        self._append(RunCompleted(name="w", kind="worker", status="completed"), path="")
        self._recorder.close()

    @staticmethod
    def write(storage: Storage, *names: str, **more: Any) -> str:
        """Write a complete run with these calls and return its id."""
        run = WrittenRun(storage, **more)
        run.call(*names)
        run.end()
        return run.id


class Proxy:
    """A TCP proxy in front of a server, which a test can cut, as a network does."""

    def __init__(self, target: str) -> None:
        host, _, port = target.removeprefix("http://").rpartition(":")
        self._target = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        # The server checks the name and port that the client uses.
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self.is_open = True
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if not self.is_open:
                client.close()
                continue
            server = socket.create_connection(self._target)
            self._pairs.append((client, server))
            for source, target in ((client, server), (server, client)):
                threading.Thread(target=self._forward, args=(source, target), daemon=True).start()

    @staticmethod
    def _forward(source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                target.sendall(data)
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def cut(self) -> None:
        """Cut all connections, and refuse new ones until `is_open` is set again."""
        self.is_open = False
        for pair in self._pairs:
            for end in pair:
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
        self._pairs.clear()

    def close(self) -> None:
        self.cut()
        self._listener.close()
