"""MCP over standard input and output, on an API that survives restarts of its server."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import anyio
from mcp.server.stdio import stdio_server

from shopfloor.client import Address, Api, Response, Transport, TransportError
from shopfloor.errors import ShopfloorError
from shopfloor.mcp.limits import MCP_POLL_SECONDS, MCP_RECONNECT_SECONDS
from shopfloor.mcp.protocol_server import Connection, create_server

FindServer = Callable[[], Awaitable[Address]]
"""Returns the address of the running server, or of one that is started for it."""
OpenTransport = Callable[[Address], Transport]


class ReconnectingTransport:
    """Sends requests to the server that is up. If it does not respond, finds or starts one and sends the request again.

    Responses are read whole before they are returned. A request may therefore be processed twice; the tools only send
    requests for which that makes no difference.
    """

    def __init__(self, find_server: FindServer, open_transport: OpenTransport) -> None:
        self._find_server = find_server
        self._open_transport = open_transport
        self._transport: Transport | None = None
        self._lock = anyio.Lock()
        self.url = ""
        """The address of the server that was found last."""

    @asynccontextmanager
    async def send(self, method: str, target: str, body: bytes | None = None) -> AsyncGenerator[Response]:
        """Send a request, again if the server was lost. Raises `TransportError`."""
        yield await self._send(method, target, body)

    async def _send(self, method: str, target: str, body: bytes | None) -> Response:
        transport = self._transport or await self._reconnect(None)
        deadline = anyio.current_time() + MCP_RECONNECT_SECONDS
        while True:
            try:
                return await _send(transport, method, target, body)
            except TransportError:
                if anyio.current_time() >= deadline:
                    raise
            # A server that is ending still has its address, and does not respond any more.
            await anyio.sleep(MCP_POLL_SECONDS)
            transport = await self._reconnect(transport)

    async def connect(self) -> None:
        """Find or start the server now, before the first request. If that fails, each request tries again."""
        with suppress(ShopfloorError):
            await self._reconnect(None)

    async def _reconnect(self, failed: Transport | None) -> Transport:
        """Return a transport to the server that is up now, unless another call has replaced the failed one already."""
        async with self._lock:
            if self._transport is None or self._transport is failed:
                address = await self._find_server()
                if failed is not None:
                    await failed.close()
                self.url, self._transport = address.url, self._open_transport(address)
            return self._transport

    async def close(self) -> None:
        """Close all connections."""
        if self._transport is not None:
            await self._transport.close()


async def _send(transport: Transport, method: str, target: str, body: bytes | None) -> Response:
    async with transport.send(method, target, body) as response:
        chunks = [chunk async for chunk in response.chunks]
    return response._replace(chunks=_iterate(chunks))


async def _iterate(chunks: list[bytes]) -> AsyncGenerator[bytes]:
    for chunk in chunks:
        yield chunk


async def serve_stdio(
    find_server: FindServer, open_transport: OpenTransport, *, folder: str | None, session_id: str | None
) -> None:
    """Serve one client until it closes standard input. If no server can be started, each tool call says why."""
    transport = ReconnectingTransport(find_server, open_transport)
    api = Api("the server", transport=transport)
    server = create_server(lambda _: Connection(api, transport.url, folder, session_id))
    try:
        async with anyio.create_task_group() as tasks, stdio_server() as (received, sent):
            tasks.start_soon(transport.connect)
            await server.run(received, sent, server.create_initialization_options())
            tasks.cancel_scope.cancel()
    finally:
        await transport.close()
