"""The WebSocket at `/trpc`: fleet events for the stock client of tRPC."""

from __future__ import annotations

import math
import time
from contextlib import aclosing, suppress
from typing import Final

import anyio
import anyio.abc
from starlette.routing import WebSocketRoute
from starlette.types import Message
from starlette.websockets import WebSocket, WebSocketDisconnect
from uvicorn.protocols.utils import ClientDisconnected

from shopfloor.errors import RequestTimeout
from shopfloor.server.audit import get_caller
from shopfloor.server.auth import TRPC_PATH, get_authenticator, get_refusal, wait_until_revoked
from shopfloor.server.error_handlers import to_public_error
from shopfloor.server.fleet_feed import FeedItem, FleetFeed
from shopfloor.server.limits import WEBSOCKET_AUTH_SECONDS
from shopfloor.server.trpc_protocol import (
    POLICY_VIOLATION,
    RECONNECT,
    Action,
    Authenticate,
    Close,
    RequestId,
    Send,
    Stop,
    Subscribe,
    TrpcConnection,
    data_message,
    error_message,
    started_message,
    stopped_message,
)
from shopfloor.server.websocket_protocol import LimitedWebSocket, get_connection, text_frame

_NORMAL: Final = 1000
_REASON_BYTES: Final = 123
_UNSUPPORTED_DATA: Final = 1003
_DISCONNECTED: Final = (ClientDisconnected, WebSocketDisconnect)


async def handle_trpc(socket: WebSocket) -> None:
    """Serve one connection until its client or the server closes it."""
    feed: FleetFeed | None = socket.app.state.services.fleet
    if feed is None:
        await socket.close(POLICY_VIOLATION, "this server has no fleet events")
        return
    await socket.accept()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_close_when_revoked, socket, tasks.cancel_scope)
        with suppress(*_DISCONNECTED):
            await _TrpcSocket(socket, feed, tasks).run()
        tasks.cancel_scope.cancel()


async def _close_when_revoked(socket: WebSocket, scope: anyio.CancelScope) -> None:
    await wait_until_revoked(socket.scope)
    with suppress(*_DISCONNECTED):
        await socket.close(POLICY_VIOLATION, "this token or session was revoked")
    scope.cancel()


class _TrpcSocket:
    """One connection: receives messages and runs a task for each subscription."""

    def __init__(self, socket: WebSocket, feed: FleetFeed, tasks: anyio.abc.TaskGroup) -> None:
        self._socket = socket
        self._connection: LimitedWebSocket = get_connection(socket.scope)
        self._feed = feed
        self._tasks = tasks
        self._scopes: dict[RequestId, anyio.CancelScope] = {}
        self._receive_scope = anyio.CancelScope()
        self._protocol = TrpcConnection(
            is_authenticated=get_caller(socket.scope) is not None, refusal=get_refusal(socket.scope)
        )
        self._auth_deadline = anyio.current_time() + WEBSOCKET_AUTH_SECONDS
        if self._protocol.is_authenticated:
            self._connection.mark_authenticated()
        self._connection.last_message = RECONNECT

    async def run(self) -> None:
        """Handle messages until the connection is closed."""
        while True:
            message = await self._receive()
            if message is None:
                await self._close_silent()
                return
            if message["type"] == "websocket.disconnect":
                return
            text: str | None = message.get("text")
            if text is None:
                await self._socket.close(_UNSUPPORTED_DATA, "messages must be text")
                return
            for action in self._protocol.receive(text, time.monotonic()):
                if not await self._perform(action):
                    return

    async def _receive(self) -> Message | None:
        """Return the next message, or None if the client was silent for too long."""
        with anyio.CancelScope(deadline=self._deadline()) as self._receive_scope:
            return await self._socket.receive()
        return None

    def _deadline(self) -> float:
        """Return until when the client may be silent, from now on: without end while it has a subscription."""
        if not self._protocol.is_authenticated:
            return self._auth_deadline
        if self._protocol.subscriptions:
            return math.inf
        return anyio.current_time() + self._connection.limits.websocket_idle_seconds

    async def _close_silent(self) -> None:
        if self._protocol.is_authenticated:
            await self._socket.close(_NORMAL, "the connection was idle")
            return
        error = RequestTimeout(
            f"the token must arrive within {WEBSOCKET_AUTH_SECONDS:g} seconds",
            hint="send it as `token` in `connectionParams`, or in the header Authorization",
        )
        await self._connection.send_texts([error_message(None, error)])
        await self._socket.close(POLICY_VIOLATION, error.message)

    async def _perform(self, action: Action) -> bool:
        """Do what the protocol asks for. Return False if the connection is closed."""
        match action:
            case Send(text):
                await self._connection.send_texts([text])
            case Authenticate(token):
                await self._authenticate(token)
            case Subscribe():
                self._scopes[action.id] = scope = anyio.CancelScope()
                self._tasks.start_soon(self._run_subscription, action, scope)
            case Stop(request_id):
                # An earlier request of the same message may have stopped the subscription.
                if scope := self._scopes.get(request_id):
                    scope.cancel()
            case Close(code, reason):
                # A frame for closing has no room for more; the error was sent before.
                await self._socket.close(code, reason.encode()[:_REASON_BYTES].decode(errors="ignore"))
                return False
        return True

    async def _authenticate(self, token: str) -> None:
        try:
            await get_authenticator(self._socket.scope)(token)
        except Exception as error:  # noqa: BLE001 - any failure refuses the client
            refusal = to_public_error(error)
            self._protocol.refuse(refusal)
            await self._connection.send_texts([error_message(None, refusal)])
        else:
            self._protocol.accept()
            self._connection.mark_authenticated()

    async def _run_subscription(self, request: Subscribe, scope: anyio.CancelScope) -> None:
        # The main task learns from `receive` that the client has disconnected.
        with suppress(*_DISCONNECTED):
            try:
                with scope:
                    await self._send_events(request)
            except Exception as error:
                if isinstance(error, _DISCONNECTED):
                    raise
                text = error_message(request.id, to_public_error(error), request.path)
            else:
                text = stopped_message(request.id)
            finally:
                del self._scopes[request.id]
                self._protocol.subscriptions.discard(request.id)
                # The client may already be silent, and be so only as long as a client without a subscription.
                self._receive_scope.deadline = self._deadline()
            await self._connection.send_texts([text])

    async def _send_events(self, request: Subscribe) -> None:
        def encode(item: FeedItem) -> bytes:
            return text_frame(data_message(request.id, item))

        is_started = False
        async with aclosing(self._feed.follow(request.wanted, request.after)) as batches:
            async for batch in batches:
                if not is_started:
                    await self._connection.send_texts([started_message(request.id)])
                    is_started = True
                if batch:
                    # Most clients use the same ids, so that a frame is made once for all of them.
                    await self._connection.send_frames([item.encoded(("trpc", request.id), encode) for item in batch])


ROUTE: Final = WebSocketRoute(TRPC_PATH, handle_trpc)
