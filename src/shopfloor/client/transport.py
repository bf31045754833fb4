"""Transports of requests: the interface, and one that calls an ASGI app in this process."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, MutableMapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any, Final, NamedTuple, Protocol
from urllib.parse import unquote

import anyio
import anyio.abc

_Message = MutableMapping[str, Any]
App = Callable[[_Message, Callable[[], Awaitable[_Message]], Callable[[_Message], Awaitable[None]]], Awaitable[None]]
"""An ASGI application."""
_HOST: Final = "localhost"
_log = logging.getLogger("shopfloor.client")


class TransportError(Exception):
    """The server sent no response, or the response broke off."""


class ConnectError(TransportError):
    """No server listens at the address."""


class Response(NamedTuple):
    """The head of a response. Its body comes in `chunks`, which raise `TransportError` if it breaks off."""

    url: str
    status: int
    content_type: str
    chunks: AsyncIterator[bytes]


class Transport(Protocol):
    """Sends requests to a server."""

    def send(self, method: str, target: str, body: bytes | None = None) -> AbstractAsyncContextManager[Response]:
        """Send a request to a path with its query, and a JSON body if there is one. Leaving the context disconnects.

        Raises `TransportError`.
        """
        ...

    async def close(self) -> None:
        """Close all connections."""
        ...


class AppTransport:
    """Calls an ASGI app in this process. Responses are streamed, and the app learns when the client disconnects."""

    def __init__(
        self,
        app: App,
        token: str,
        tasks: anyio.abc.TaskGroup,
        *,
        client: tuple[str, int] = ("127.0.0.1", 0),
        user_agent: str | None = None,
    ) -> None:
        """Create the transport. `client` and `user_agent` say on whose behalf requests are sent, for the audit log."""
        self._app = app
        self._headers = {"host": _HOST, "authorization": f"Bearer {token}"}
        if user_agent is not None:
            self._headers["user-agent"] = user_agent
        self._client = client
        self._tasks = tasks

    @asynccontextmanager
    async def send(self, method: str, target: str, body: bytes | None = None) -> AsyncGenerator[Response]:
        """Call the app in a task of its own. Leaving the context disconnects. Raises `TransportError`."""
        headers = self._headers
        if body is not None:
            headers = headers | {"content-type": "application/json", "content-length": str(len(body))}
        exchange = _Exchange(body or b"")
        self._tasks.start_soon(exchange.run, self._app, _scope(method, target, headers, self._client))
        try:
            status, content_type = await exchange.read_head()
            yield Response(f"http://{_HOST}{target}", status, content_type, exchange.chunks())
        finally:
            exchange.disconnect()

    async def close(self) -> None:
        """Do nothing: nothing is open between requests."""


def _scope(method: str, target: str, headers: Mapping[str, str], client: tuple[str, int]) -> _Message:
    path, _, query = target.partition("?")
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": unquote(path),
        "raw_path": path.encode("ascii"),
        "query_string": query.encode("ascii"),
        "root_path": "",
        "headers": [(name.encode(), value.encode("latin-1")) for name, value in headers.items()],
        "client": client,
        "server": (_HOST, 80),
        "state": {},
    }


class _Exchange:
    """One request and its response. The app runs in a task of its own, and waits while the client does not read."""

    def __init__(self, body: bytes) -> None:
        self._request: _Message | None = {"type": "http.request", "body": body, "more_body": False}
        self._head: _Message | None = None
        self._head_ready = anyio.Event()
        self._disconnected = anyio.Event()
        self._is_complete = False
        self._sent, self._received = anyio.create_memory_object_stream[bytes](0)

    async def run(self, app: App, scope: _Message) -> None:
        with self._sent:
            try:
                await app(scope, self._receive, self._send)
            except Exception as error:  # noqa: BLE001 - the response breaks off, as it would over a connection
                self._is_complete = False
                _log.error("a response broke off", exc_info=error)
            finally:
                self._head_ready.set()

    async def read_head(self) -> tuple[int, str]:
        """Return the status and the content type, once the app has sent them."""
        await self._head_ready.wait()
        if self._head is None:
            raise TransportError("the app sent no response")
        return self._head["status"], dict(self._head["headers"]).get(b"content-type", b"").decode("latin-1")

    async def chunks(self) -> AsyncIterator[bytes]:
        async for chunk in self._received:
            yield chunk
        if not self._is_complete:
            raise TransportError("the response broke off")

    def disconnect(self) -> None:
        self._disconnected.set()
        self._received.close()

    async def _receive(self) -> _Message:
        if self._request is not None:
            request, self._request = self._request, None
            return request
        await self._disconnected.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: _Message) -> None:
        if message["type"] == "http.response.start":
            self._head = message
            self._head_ready.set()
        elif not self._disconnected.is_set():
            self._is_complete = not message.get("more_body", False)
            # A client that disconnects meanwhile is no error: the app learns it from `receive`.
            with suppress(anyio.BrokenResourceError):
                if message.get("body"):
                    await self._sent.send(message["body"])
