"""MCP over HTTP, as a part of the server's app. The SDK is loaded by the first request."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from http import HTTPStatus
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

import anyio
import anyio.abc
import anyio.to_thread
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import Message, Receive, Scope, Send

from shopfloor.client import Api, AppTransport
from shopfloor.errors import ExtraMissing, ServerUnreachable, Unauthorized, sole_error
from shopfloor.limits import REQUEST_BYTES
from shopfloor.mcp.limits import MCP_SESSION_SECONDS, MCP_SESSIONS

if TYPE_CHECKING:
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

    from shopfloor.mcp.protocol_server import Connection


_STOPPING: Final = "the server is stopping"


def require_sdk() -> None:
    """Raise `ExtraMissing` if the SDK is not installed."""
    try:
        is_installed = find_spec("mcp") is not None and find_spec("mcp_types") is not None
    except ImportError:
        is_installed = False
    if not is_installed:
        raise ExtraMissing("MCP is not available here", hint="install Shopfloor with its extra `mcp`")


class McpHttpApp:
    """The ASGI app at `/mcp`. Each call uses the API of the app that it is part of, with the token of its caller."""

    def __init__(self) -> None:
        self._app: Starlette | None = None
        self._tasks: anyio.abc.TaskGroup | None = None
        self._manager: StreamableHTTPSessionManager | None = None
        self._lock = anyio.Lock()

    @asynccontextmanager
    async def run(self, app: Starlette) -> AsyncGenerator[None]:
        """Serve requests while the context lasts; `app` is the app that this one is part of."""
        async with anyio.create_task_group() as tasks:
            self._app, self._tasks = app, tasks
            try:
                yield
            finally:
                tasks.cancel_scope.cancel()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request. Ends open streams when the server stops."""
        token = _bearer_token(scope)
        manager = await self._loaded_manager()
        _bind_session(scope, token)
        response = _ResponseEnd(scope, receive, send)
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_cancel_at_shutdown, scope["app"].state.shutdown_event, tasks.cancel_scope)
                await manager.handle_request(scope, receive, response.send)
                tasks.cancel_scope.cancel()
        except Exception as error:
            raise sole_error(error) from error
        await response.end()

    async def _loaded_manager(self) -> StreamableHTTPSessionManager:
        async with self._lock:
            if self._manager is None:
                require_sdk()
                if self._tasks is None:
                    raise ServerUnreachable(_STOPPING)
                # In a thread: importing the SDK takes a second.
                manager = await anyio.to_thread.run_sync(self._create_manager)
                await self._tasks.start(_run_manager, manager)
                self._manager = manager
        return self._manager

    def _create_manager(self) -> StreamableHTTPSessionManager:
        from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

        from shopfloor.mcp.protocol_server import create_server

        return StreamableHTTPSessionManager(
            create_server(self._connect),
            session_idle_timeout=MCP_SESSION_SECONDS,
            max_request_body_size=REQUEST_BYTES,
            max_sessions=MCP_SESSIONS,
        )

    def _connect(self, request: Request | None) -> Connection:
        from shopfloor.mcp.protocol_server import Connection

        if request is None or self._app is None or self._tasks is None:
            raise ServerUnreachable("the call has no HTTP request")
        transport = AppTransport(
            self._app,
            _bearer_token(request.scope),
            self._tasks,
            client=request.scope.get("client") or ("", 0),
            user_agent=request.headers.get("user-agent"),
        )
        page_url = str(request.base_url).rstrip("/")
        return Connection(Api(page_url, transport=transport), page_url)


async def _run_manager(
    manager: StreamableHTTPSessionManager, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED
) -> None:
    async with manager.run():
        task_status.started()
        await anyio.sleep_forever()


async def _cancel_at_shutdown(shutdown_event: anyio.Event, scope: anyio.CancelScope) -> None:
    await shutdown_event.wait()
    scope.cancel()


def _bearer_token(scope: Scope) -> str:
    """Return the token of a request. Raises `Unauthorized` for a browser's session, which has none."""
    scheme, _, token = Headers(scope=scope).get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise Unauthorized(
            "MCP needs a token",
            hint="`shopfloor tokens new NAME` creates one; send it as `Authorization: Bearer <token>`",
        )
    return token.strip()


def _bind_session(scope: Scope, token: str) -> None:
    """Name the caller for the SDK, which lets only the caller that opened a session use it."""
    from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
    from mcp.server.auth.provider import AccessToken

    name = hashlib.sha256(token.encode()).hexdigest()
    scope["user"] = AuthenticatedUser(AccessToken(token=name, client_id=name, scopes=[]))


class _ResponseEnd:
    """Ends a response that broke off because the server stops, so that its client sees the end."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._scope, self._receive, self._send = scope, receive, send
        self._is_started = False
        self._is_complete = False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._is_started = True
        elif message["type"] == "http.response.body":
            self._is_complete = not message.get("more_body", False)
        await self._send(message)

    async def end(self) -> None:
        if not self._is_started:
            body = {"error": {"code": ServerUnreachable.code, "message": _STOPPING, "hint": "try again when it is up"}}
            await JSONResponse(body, HTTPStatus.SERVICE_UNAVAILABLE)(self._scope, self._receive, self._send)
        elif not self._is_complete:
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})
