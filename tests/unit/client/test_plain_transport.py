"""The transport over plain HTTP, against servers that misbehave."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from shopfloor.client import PlainTransport, TransportError

pytestmark = pytest.mark.anyio
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@asynccontextmanager
async def transport_to(serve: Serve) -> AsyncGenerator[PlainTransport]:
    async def close_after(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await serve(reader, writer)
        finally:
            writer.close()

    server = await asyncio.start_server(close_after, "127.0.0.1", 0)
    transport = PlainTransport(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/base", "secret")
    try:
        yield transport
    finally:
        await transport.close()
        server.close()
        await server.wait_closed()


async def send(transport: PlainTransport, method: str = "GET", body: bytes | None = None) -> tuple[int, str, bytes]:
    async with transport.send(method, "/api/x?y=1", body) as response:
        return response.status, response.content_type, b"".join([chunk async for chunk in response.chunks])


async def test_requests_reuse_one_connection_and_carry_the_token() -> None:
    heads: list[bytes] = []
    connections = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        while head := await reader.readuntil(b"\r\n\r\n"):
            heads.append(head)
            if b"Content-Length: 4" in head:
                assert await reader.readexactly(4) == b"body"
            writer.write(OK)
            if len(heads) == 2:
                return

    async with transport_to(serve) as transport:
        assert await send(transport) == (200, "application/json", b"{}")
        assert await send(transport, "POST", b"body") == (200, "application/json", b"{}")
    assert connections == 1
    assert heads[0].startswith(b"GET /base/api/x?y=1 HTTP/1.1\r\n")
    assert b"Authorization: Bearer secret\r\n" in heads[0]
    assert b"Content-Type: application/json\r\nContent-Length: 4\r\n" in heads[1]


async def test_a_chunked_response_is_joined() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 404 Not Found\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
        await writer.drain()
        writer.write(b"2\r\nde\r\n0\r\n\r\n")

    async with transport_to(serve) as transport:
        assert await send(transport) == (404, "", b"abcde")


async def test_a_connection_that_the_server_has_closed_is_replaced() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(OK)

    async with transport_to(serve) as transport:
        for _ in range(3):
            assert (await send(transport))[0] == 200


@pytest.mark.parametrize(
    ("sent", "message"),
    [
        (b"", "closed the connection without a response"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc", "the response broke off"),
        (b"SSH-2.0-OpenSSH\r\n", "HTTP"),
    ],
)
async def test_a_response_that_breaks_off_or_is_not_http_is_an_error(sent: bytes, message: str) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(sent)

    async with transport_to(serve) as transport:
        with pytest.raises(TransportError, match=message):
            await send(transport)


async def test_no_server_is_a_connect_error() -> None:
    with pytest.raises(TransportError, match=r"refused|Connect"):
        await send(PlainTransport("http://127.0.0.1:1", "secret"))
