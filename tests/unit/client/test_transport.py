"""Requests to an app in this process: they stream, break off and disconnect like those over a connection."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, MutableMapping
from contextlib import aclosing, asynccontextmanager
from typing import Any

import anyio
import anyio.abc
import anyio.lowlevel
import pytest
from tests.sample_events import RUN_ID
from tests.timeouts import TIMEOUT_SECONDS

from shopfloor.client import Api, AppTransport
from shopfloor.client.http_transport import HttpTransport
from shopfloor.client.transport import Transport, TransportError
from shopfloor.errors import InvalidInput, RunNotFound, ServerUnreachable

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


def start(status: int = 200, kind: bytes = b"application/json") -> Message:
    return {"type": "http.response.start", "status": status, "headers": [(b"content-type", kind)]}


def body(content: bytes, *, more: bool = False) -> Message:
    return {"type": "http.response.body", "body": content, "more_body": more}


@asynccontextmanager
async def opened(app: Callable[[Message, Receive, Send], Awaitable[None]]) -> AsyncGenerator[Api]:
    with anyio.fail_after(TIMEOUT_SECONDS):
        async with anyio.create_task_group() as tasks:
            yield Api("this process", transport=AppTransport(app, "secret", tasks))
            tasks.cancel_scope.cancel()


def test_the_app_gets_the_request_and_the_client_the_response() -> None:
    seen: list[Message] = []

    async def app(scope: Message, receive: Receive, send: Send) -> None:
        seen.extend([scope, await receive()])
        await send(start())
        await send(body(b'{"a": ', more=True))
        await send(body(b"1}"))

    async def main() -> None:
        async with opened(app) as api:
            assert await api.post("/api/x%20y", {"b": 2}) == {"a": 1}
            assert await api.get("/api/x", q="a b&c", limit=3, none=None, flag=True) == {"a": 1}

    anyio.run(main)
    posted, first, got, second = seen
    assert (posted["method"], posted["path"], posted["raw_path"]) == ("POST", "/api/x y", b"/api/x%20y")
    assert (b"authorization", b"Bearer secret") in posted["headers"]
    assert (b"content-type", b"application/json") in posted["headers"]
    assert first == {"type": "http.request", "body": b'{"b":2}', "more_body": False}
    assert (got["method"], got["query_string"], second["body"]) == ("GET", b"q=a+b%26c&limit=3&flag=true", b"")


def test_a_stream_arrives_in_chunks_and_the_app_learns_of_a_disconnect() -> None:
    messages: list[str] = []

    async def app(scope: Message, receive: Receive, send: Send) -> None:
        await receive()
        await send(start(kind=b"text/event-stream"))
        await send(body(b'data: {"seq":1,"type":"x"}\n\n', more=True))
        # The app makes the next chunk only after the client took the first and waits for more.
        messages.append((await receive())["type"])
        await send(body(b'data: {"seq":2,"type":"x"}\n\n', more=True))
        messages.append("ended")

    async def main() -> None:
        async with opened(app) as api:
            async with aclosing(api.stream(RUN_ID)) as entries:
                assert (await anext(entries)).seq == 1
                assert messages == []
            while "ended" not in messages:
                await anyio.lowlevel.checkpoint()

    anyio.run(main)
    assert messages == ["http.disconnect", "ended"]


def test_a_client_that_disconnects_releases_an_app_that_waits_to_send() -> None:
    ended = False

    async def app(scope: Message, receive: Receive, send: Send) -> None:
        nonlocal ended
        await send(start(kind=b"text/event-stream"))
        for seq in range(1, 100):
            await send(body(b'data: {"seq":%d,"type":"x"}\n\n' % seq, more=True))
        ended = True

    async def main() -> None:
        async with opened(app) as api:
            async with aclosing(api.stream(RUN_ID)) as entries:
                await anext(entries)
            while not ended:
                await anyio.lowlevel.checkpoint()

    anyio.run(main)


def test_a_response_that_breaks_off_or_never_comes_is_an_unreachable_server() -> None:
    async def breaks(scope: Message, receive: Receive, send: Send) -> None:
        await send(start())
        await send(body(b'{"a"', more=True))
        raise LookupError

    async def ends(scope: Message, receive: Receive, send: Send) -> None:
        await send(start())
        await send(body(b'{"a"', more=True))

    async def never(scope: Message, receive: Receive, send: Send) -> None:
        raise LookupError

    async def main() -> None:
        for app in (breaks, ends, never):
            async with opened(app) as api:
                with pytest.raises(ServerUnreachable, match="this process"):
                    await api.get("/api/x")

    anyio.run(main)


async def take_pieces(transport: Transport) -> list[bytes]:
    """Read the chunks of a body that breaks off, and return what they raise before `send` does."""
    taken: list[bytes] = []
    async with transport.send("GET", "/api/x") as answer:
        taken.append(await anext(answer.chunks))
        with pytest.raises(TransportError):
            await anext(answer.chunks)
    return taken


def test_the_chunks_of_a_body_that_breaks_off_raise_a_transport_error() -> None:
    async def breaks(scope: Message, receive: Receive, send: Send) -> None:
        await send(start())
        await send(body(b'{"a"', more=True))

    async def serve(connection: anyio.abc.SocketStream) -> None:
        async with connection:
            await connection.receive()
            await connection.send(b'HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"a"')

    async def main() -> None:
        with anyio.fail_after(TIMEOUT_SECONDS):
            async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener:
                port = listener.extra(anyio.abc.SocketAttribute.local_port)
                over_http = HttpTransport(f"http://127.0.0.1:{port}", "secret")
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(listener.serve, serve)
                    for transport in (AppTransport(breaks, "secret", tasks), over_http):
                        assert await take_pieces(transport) == [b'{"a"']
                    tasks.cancel_scope.cancel()
                await over_http.close()

    anyio.run(main)


def test_errors_of_the_app_are_raised_as_their_exceptions() -> None:
    async def app(scope: Message, receive: Receive, send: Send) -> None:
        await send(start(404))
        await send(body(b'{"error": {"code": "run_not_found", "message": "none", "hint": "look"}}'))

    async def main() -> None:
        async with opened(app) as api:
            with pytest.raises(RunNotFound, match="none") as missing:
                await api.run(RUN_ID)
            assert missing.value.hint == "look"
            with pytest.raises(RunNotFound):
                await anext(api.stream(RUN_ID))
            with pytest.raises(InvalidInput, match="UTF-8"):
                await api.get("/api/x", q="\ud800")

    anyio.run(main)
