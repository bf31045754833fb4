"""The uvicorn server that runs the app until a signal or cancellation stops it."""

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
from starlette.types import Receive, Scope, Send

from shopfloor.errors import ConflictError
from shopfloor.server.connections import ConnectionLimits, Connections
from shopfloor.server.http_protocol import protocol_class
from shopfloor.server.limits import SHUTDOWN_SECONDS, SWEEP_TICKS, WEBSOCKET_MESSAGE_BYTES, WEBSOCKET_PING_SECONDS
from shopfloor.server.websocket_protocol import websocket_class


async def serve(
    app: Starlette,
    host: str,
    port: int,
    on_started: Callable[[str], None],
    limits: ConnectionLimits | None = None,
    *,
    on_signal: Callable[[], None] | None = None,
) -> None:
    """Serve until SIGINT or SIGTERM, or until cancelled. Either way open requests are finished first.

    `on_started` is called with the address, which has the chosen port if `port` is 0. `on_signal` is called for each
    signal by its handler, even while the event loop is blocked. Call this on uvloop. Raises ConflictError if the
    address is in use, and what a part of the app raises that runs as long as the server.
    """
    limits = limits or ConnectionLimits()
    connections = Connections(limits.connections, limits.connections_per_address)
    listening = _listen(host, port)
    failures: list[Exception] = []

    async def observed_app(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await app(scope, receive, send)
        except Exception as error:
            if scope["type"] == "lifespan":
                # uvicorn would only log the error, and serve without the part that failed.
                failures.append(error)
                server.should_exit = True
            raise

    config = uvicorn.Config(
        observed_app,
        http=protocol_class(connections, limits),
        ws=websocket_class(connections, limits),
        ws_max_size=WEBSOCKET_MESSAGE_BYTES,
        ws_ping_interval=WEBSOCKET_PING_SECONDS,
        ws_ping_timeout=WEBSOCKET_PING_SECONDS,
        # Most clients are on this machine, and compressing each event for each subscriber would take the most time.
        ws_per_message_deflate=False,
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
    if failures:
        raise failures[0]


async def _run(server: _Server, listening: socket.socket, ended: anyio.Event) -> None:
    # `should_exit` stops the server and lets requests finish; cancelling would break them off.
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
            hint="stop the other server, or choose another port with --port",
        ) from error


def _address(listening: socket.socket, host: str) -> str:
    port = listening.getsockname()[1]
    # A server on all interfaces is reached from this machine by its loopback address.
    host = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - replaced here
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
        self._shutdown_event = shutdown_event
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
        # Streams never end by themselves: stop them before waiting for open requests.
        self._shutdown_event.set()
        await super().shutdown(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self._on_signal is not None:
            self._on_signal()
        super().handle_exit(sig, frame)

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        """Capture signals like the original, but do not raise them again: the caller has resources to close first."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        previous: dict[signal.Signals, Any] = {
            sig: signal.signal(sig, self.handle_exit) for sig in (signal.SIGINT, signal.SIGTERM)
        }
        try:
            yield
        finally:
            for sig, handler in previous.items():
                signal.signal(sig, handler)
