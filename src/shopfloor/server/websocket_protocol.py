"""uvicorn's WebSocket protocol with limits: connections are counted with those of HTTP, and clients must read."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Iterable
from typing import Any, ClassVar, cast

from starlette.types import Scope
from uvicorn.config import Config
from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState
from websockets.http11 import Request

from shopfloor.server.connections import ConnectionLimits, Connections
from shopfloor.server.http_protocol import server_errors
from shopfloor.server.limits import WEBSOCKET_WRITE_BYTES

_NEVER = float("inf")
_TRY_AGAIN_LATER = 1013
_EXTENSION = "shopfloor.connection"
_TEXT_FRAME = 0x81
_SHORT, _MEDIUM = 126, 1 << 16


class LimitedWebSocket(WebSocketsSansIOProtocol):
    """One connection. Use a subclass made by `websocket_class`, which knows the connections and limits of its server.

    Until its client is authenticated, the connection counts as one that waits for a request: a new one may take its
    place.
    """

    open_connections: ClassVar[Connections]
    limits: ClassVar[ConnectionLimits]

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.logger = server_errors
        self.last_message = b""
        """A message that is sent before the connection is closed because the server stops."""
        self._stalled_at = _NEVER
        self._resumed_at = -_NEVER

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if not self.open_connections.admit(self, self.client[0] if self.client else None):
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self.open_connections.remove(self)
        self._stalled_at = _NEVER
        super().connection_lost(exc)

    def handle_connect(self, event: Request) -> None:
        super().handle_connect(event)
        if not self.close_sent:
            cast("dict[str, Any]", self.scope.get("extensions"))[_EXTENSION] = self

    def mark_authenticated(self) -> None:
        """Record that the client is known: no new connection takes the place of this one."""
        self.open_connections.mark_busy(self)

    async def send_texts(self, texts: Iterable[bytes]) -> None:
        """Send messages. Waits while the client does not read; raises `ClientDisconnected`."""
        await self.send_frames([text_frame(text) for text in texts])

    async def send_frames(self, frames: list[bytes]) -> None:
        """Send complete frames of text, like `send_texts`.

        Each write is small enough that a slow client can read it within the limit for stalled clients.
        """
        part, size = list[bytes](), 0
        for frame in frames:
            part.append(frame)
            size += len(frame)
            if size >= WEBSOCKET_WRITE_BYTES:
                await self._write(part)
                part, size = [], 0
        if part:
            await self._write(part)

    async def _write(self, frames: list[bytes]) -> None:
        await self.writable.wait()
        if self.disconnected or self.close_sent or self.transport.is_closing():
            raise ClientDisconnected
        self.transport.write(frames[0] if len(frames) == 1 else b"".join(frames))

    def pause_writing(self) -> None:
        self._stalled_at = self.loop.time() + self.limits.stalled_seconds
        super().pause_writing()

    def resume_writing(self) -> None:
        self._stalled_at, self._resumed_at = _NEVER, self.loop.time()
        super().resume_writing()

    def keepalive_timeout(self) -> None:
        """Close the connection because a ping was not answered, unless the client may not have read the ping yet.

        A ping is queued behind the bytes that the client has not read. While it is stalled, only `expire` judges it.
        """
        if self._stalled_at == _NEVER and self._resumed_at < self.ping_sent_at:
            super().keepalive_timeout()
            return
        self.pong_timer = self.pending_ping_payload = None
        self.schedule_ping()

    def expire(self, now: float) -> None:
        """Close the connection if its client does not read, and later even if it does not read the reason."""
        if now < self._stalled_at:
            return
        self._stalled_at = _NEVER
        if self.close_sent or not self.handshake_complete or self.transport.is_closing():
            self.transport.abort()
        else:
            self._close(_TRY_AGAIN_LATER, "the client reads too slowly; connect again to resume")

    def evict(self) -> None:
        """Close the connection to make room for another one."""
        self.open_connections.remove(self)
        self.transport.close()

    def _close(self, code: int, reason: str) -> None:
        """Send a close frame behind what the client has not read yet, and end the tasks that wait for the client.

        What the client sends until it has read the frame is still received: closing a socket with unread data would
        delete what the client has not read.
        """
        self.queue.put_nowait({"type": "websocket.disconnect", "code": code, "reason": reason})
        self.conn.send_close(code, reason)
        self.transport.write(b"".join(self.conn.data_to_send()))
        self.close_sent = self.disconnected = True
        self.close_timer = self.loop.call_later(self.limits.stalled_seconds, self.transport.abort)
        if self.read_paused:
            self.read_paused = False
            self.transport.resume_reading()
        self.writable.set()

    def shutdown(self) -> None:
        if self.last_message and self.handshake_complete and not self.close_sent:
            self.transport.write(text_frame(self.last_message))
        super().shutdown()


def text_frame(text: bytes) -> bytes:
    """Return a message of text as a frame."""
    size = len(text)
    if size < _SHORT:
        return struct.pack("!BB", _TEXT_FRAME, size) + text
    if size < _MEDIUM:
        return struct.pack("!BBH", _TEXT_FRAME, _SHORT, size) + text
    return struct.pack("!BBQ", _TEXT_FRAME, _SHORT + 1, size) + text


def websocket_class(connections: Connections, limits: ConnectionLimits) -> type[LimitedWebSocket]:
    """Return the protocol class of one server."""
    return type("ServerWebSocket", (LimitedWebSocket,), {"open_connections": connections, "limits": limits})


def get_connection(scope: Scope) -> LimitedWebSocket:
    """Return the connection that a request for a WebSocket came over."""
    return scope["extensions"][_EXTENSION]
