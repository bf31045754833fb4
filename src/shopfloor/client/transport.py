"""How a request reaches a server: over HTTP, or by calling an app in this process."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, MutableMapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any, Final, NamedTuple, Protocol
from urllib.parse import unquote

import anyio
import anyio.abc

from shopfloor.errors import RunFailed, RunNotFound, ShopfloorError, error_class
from shopfloor.log import is_run_id
from shopfloor.views import ErrorEvent


def failure_of(event: ErrorEvent) -> ShopfloorError:
    """The error that an event tells of, as the error it is; `RunFailed` where it is a worker's own."""
    kind = error_class(event.code)
    if issubclass(kind, RunFailed):
        return kind(event.message, hint=event.hint, retry_after=event.retry_after)
    if kind is ShopfloorError:
        return RunFailed(event.message, hint=event.hint, retry_after=event.retry_after)
    return kind(event.message, hint=event.hint)


def run_not_found(run_id: object) -> RunNotFound:
    """The error for a text that can be no run's id: the same as for an id that no run has."""
    return RunNotFound(f"there is no run {run_id!r}", hint="a run id is a UUID v4 in lower case")


def require_run_id(run_id: str) -> str:
    """The id, if a run can have it. Raises `RunNotFound`."""
    if not is_run_id(run_id):
        raise run_not_found(run_id)
    return run_id


_Message = MutableMapping[str, Any]
App = Callable[[_Message, Callable[[], Awaitable[_Message]], Callable[[_Message], Awaitable[None]]], Awaitable[None]]
"""An ASGI application."""
_HOST: Final = "localhost"
_log = logging.getLogger("shopfloor.client")


class TransportError(Exception):
    """There is no answer, or the answer breaks off."""


class ConnectError(TransportError):
    """There is no server at the address."""


class Response(NamedTuple):
    """The head of an answer. Its body comes in `chunks`, which raise `TransportError` where it breaks off."""

    url: str
    status: int
    content_type: str
    chunks: AsyncIterator[bytes]


class Transport(Protocol):
    def send(self, method: str, target: str, body: bytes | None = None) -> AbstractAsyncContextManager[Response]:
        """Send a request to a path with its query; a body is JSON. Leaving the context disconnects.

        Raises `TransportError`.
        """
        ...

    async def close(self) -> None: ...


class AppTransport:
    """Calls an ASGI app in this process. Its answers stream, and it is told when a client disconnects."""

    def __init__(self, app: App, token: str, tasks: anyio.abc.TaskGroup) -> None:
        self._app = app
        self._token = token
        self._tasks = tasks

    @asynccontextmanager
    async def send(self, method: str, target: str, body: bytes | None = None) -> AsyncGenerator[Response]:
        headers = {"host": _HOST, "authorization": f"Bearer {self._token}"}
        if body is not None:
            headers |= {"content-type": "application/json", "content-length": str(len(body))}
        exchange = _Exchange(body or b"")
        self._tasks.start_soon(exchange.run, self._app, _scope(method, target, headers))
        try:
            status, kind = await exchange.begin()
            yield Response(f"http://{_HOST}{target}", status, kind, exchange.chunks())
        finally:
            exchange.disconnect()

    async def close(self) -> None:
        """Nothing is open between requests."""


def _scope(method: str, target: str, headers: Mapping[str, str]) -> _Message:
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
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        "client": ("127.0.0.1", 0),
        "server": (_HOST, 80),
        "state": {},
    }


class _Exchange:
    """One request and its answer: the app runs in a task of its own, and waits where nobody takes what it sends."""

    def __init__(self, body: bytes) -> None:
        self._request: _Message | None = {"type": "http.request", "body": body, "more_body": False}
        self._head: _Message | None = None
        self._begun = anyio.Event()
        self._disconnected = anyio.Event()
        self._whole = False
        self._sent, self._received = anyio.create_memory_object_stream[bytes](0)

    async def run(self, app: App, scope: _Message) -> None:
        with self._sent:
            try:
                await app(scope, self._receive, self._send)
            except Exception as error:  # noqa: BLE001 - the answer breaks off, as it would over a connection
                self._whole = False
                _log.error("an answer broke off", exc_info=error)
            finally:
                self._begun.set()

    async def begin(self) -> tuple[int, str]:
        """The status and the content type, once the app has said them."""
        await self._begun.wait()
        if self._head is None:
            raise TransportError("the request was not answered")
        return self._head["status"], dict(self._head["headers"]).get(b"content-type", b"").decode("latin-1")

    async def chunks(self) -> AsyncIterator[bytes]:
        async for piece in self._received:
            yield piece
        if not self._whole:
            raise TransportError("the answer broke off")

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
            self._begun.set()
        elif not self._disconnected.is_set():
            self._whole = not message.get("more_body", False)
            # A client that leaves meanwhile is no error; the app hears of it when it listens.
            with suppress(anyio.BrokenResourceError):
                if message.get("body"):
                    await self._sent.send(message["body"])
