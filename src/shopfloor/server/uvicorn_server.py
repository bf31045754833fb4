"""Serving the app until somebody says stop."""

from __future__ import annotations

import asyncio
import contextlib
import math
import signal
import socket
import threading
from collections.abc import Callable, Generator
from types import FrameType
from typing import Any

import anyio
import uvicorn
from starlette.applications import Starlette

from shopfloor.errors import ConflictError
from shopfloor.server.connection_limits import ConnectionLimits
from shopfloor.server.connections import Connections
from shopfloor.server.http_protocol import protocol_class
from shopfloor.server.limits import SHUTDOWN_SECONDS, SWEEP_TICKS


async def serve(
    app: Starlette,
    host: str,
    port: int,
    on_started: Callable[[str], None],
    limits: ConnectionLimits | None = None,
    *,
    on_signal: Callable[[], None] | None = None,
) -> None:
    """Serves until SIGINT or SIGTERM, or until it is cancelled; both end open requests first.

    `on_started` is told the address, with the port that was found where `port` is 0. `on_signal` is
    called for each signal, by the signal's handler: also while the loop is blocked. Run it on uvloop.
    """
    limits = limits or ConnectionLimits()
    connections = Connections(limits.connections, limits.connections_per_address)
    listening = _listen(host, port)
    config = uvicorn.Config(
        app,
        http=protocol_class(connections, limits),
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=math.ceil(limits.idle_seconds),
        timeout_graceful_shutdown=round(SHUTDOWN_SECONDS),
    )
    server = _Server(
        config, connections, app.state.shutdown_event, lambda: on_started(_address(listening, host)), on_signal
    )
    with contextlib.closing(listening):
        async with anyio.create_task_group() as group:
            ended = anyio.Event()
            group.start_soon(_run, server, listening, ended)
            try:
                await ended.wait()
            finally:
                server.should_exit = True


async def _run(server: _Server, listening: socket.socket, ended: anyio.Event) -> None:
    # Told to stop rather than cancelled, it lets requests end.
    with anyio.CancelScope(shield=True):
        await server.serve(sockets=[listening])
    ended.set()


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise ConflictError(
            f"cannot listen on {host}:{port}: {error.strerror}",
            hint="is another server running? choose a port with --port",
        ) from error


def _address(listening: socket.socket, host: str) -> str:
    port = listening.getsockname()[1]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class _Server(uvicorn.Server):
    def __init__(
        self,
        config: uvicorn.Config,
        connections: Connections,
        shutdown_event: anyio.Event,
        on_started: Callable[[], None],
        on_signal: Callable[[], None] | None,
    ) -> None:
        super().__init__(config)
        self._connections = connections
        self._stopping = shutdown_event
        self._on_started = on_started
        self._on_signal = on_signal

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._on_started()

    async def on_tick(self, counter: int) -> bool:
        if counter % SWEEP_TICKS == 0:
            self._connections.expire(asyncio.get_running_loop().time())
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # Streams would go on for ever: they are told before anybody waits for them.
        self._stopping.set()
        await super().shutdown(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self._on_signal is not None:
            self._on_signal()
        super().handle_exit(sig, frame)

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        """As the original, but what was caught is not raised again: whoever serves has yet to close what it opened."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before: dict[signal.Signals, Any] = {
            one: signal.signal(one, self.handle_exit) for one in (signal.SIGINT, signal.SIGTERM)
        }
        try:
            yield
        finally:
            for one, handler in before.items():
                signal.signal(one, handler)
