"""uvicorn's HTTP protocol with limits: the size of a request, and the time a client may take to send it."""

from __future__ import annotations

import asyncio
import logging
from http import HTTPStatus
from typing import Any, ClassVar

import msgspec
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.server import ServerState

from shopfloor.errors import (
    AddressTooLong,
    HeadersTooLarge,
    MalformedRequest,
    RequestRefused,
    RequestTimeout,
    TooManyConnections,
)
from shopfloor.server.connections import ConnectionLimits, Connections
from shopfloor.server.limits import (
    CHUNK_FRAME_BYTES,
    HEADERS_BYTES,
    HEADERS_MAX,
    PIPELINED_REQUESTS,
    REQUEST_LINE_BYTES,
)
from shopfloor.server.response_models import Problem, ProblemAnswer

_NEVER = float("inf")
_HEAD_BYTES = REQUEST_LINE_BYTES + HEADERS_BYTES
server_errors = logging.getLogger("uvicorn.error.requests")
server_errors.setLevel(logging.ERROR)
"""Logs the server's own errors only: a client that sends malformed requests must not be able to fill the log."""


class LimitedProtocol(HttpToolsProtocol):
    """One connection. Use a subclass made by `protocol_class`, which knows the connections and limits of its server.

    A request has three phases: the server waits for the head, receives the body, and sends the response. The first two
    have a deadline; in the third the client must keep reading. `Connections.expire` checks the deadlines of all
    connections together, so that a request costs no timer.
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
        self._deadline = _NEVER
        self._stalled_at = _NEVER
        self.logger = server_errors
        self._head_bytes = 0
        self._frame_bytes = 0
        """Bytes received since the head that are not body: sizes of chunks, extensions, trailers."""
        self._in_head = True
        self._in_body = False
        self._refusal: RequestRefused | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._deadline = self.loop.time() + self.limits.header_seconds
        if not self.open_connections.admit(self, self.client[0] if self.client else None):
            self._refuse(TooManyConnections("too many open connections", hint="close some, or try again later"))

    def connection_lost(self, exc: Exception | None) -> None:
        self.open_connections.remove(self)
        self._deadline = self._stalled_at = _NEVER
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._refusal is not None:
            return
        if self._in_head:
            if not self._head_bytes:
                # The first byte ends the idle time. So do bytes between two requests, such as empty lines.
                self._deadline = self.loop.time() + self.limits.header_seconds
            self._head_bytes += len(data)
        if self._in_body:
            self._frame_bytes += len(data)
        super().data_received(data)
        is_too_large = (self._in_head and self._head_bytes > _HEAD_BYTES) or (
            self._in_body and self._frame_bytes > _HEAD_BYTES
        )
        if is_too_large and self._refusal is None:
            self._refusal = _headers_too_large()
        if self._refusal is not None:
            self._refuse(self._refusal)

    def on_message_begin(self) -> None:
        # Also set when the first bytes of this request came together with the end of the one before.
        self._head_bytes = self._head_bytes or 1
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        # Trailers are ignored.
        if not self._in_body:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        if self._refusal is not None:
            return
        self._in_head = False
        self._head_bytes = self._frame_bytes = 0
        if len(self.url) > REQUEST_LINE_BYTES:
            self._refusal = AddressTooLong(f"the address of a request has at most {REQUEST_LINE_BYTES:,} bytes")
        elif len(self.headers) > HEADERS_MAX or sum(len(n) + len(v) for n, v in self.headers) > HEADERS_BYTES:
            self._refusal = _headers_too_large()
        elif len(self.pipeline) >= PIPELINED_REQUESTS:
            self._refusal = TooManyConnections(f"at most {PIPELINED_REQUESTS} requests may wait in a connection")
        if self._refusal is not None:
            return
        self._in_body = True
        self._deadline = self.loop.time() + self.limits.body_seconds
        self.open_connections.mark_busy(self)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._frame_bytes = max(0, self._frame_bytes - CHUNK_FRAME_BYTES * len(body))
        if self._refusal is None:
            super().on_body(body)

    def on_message_complete(self) -> None:
        if self._refusal is not None:
            return
        self._in_head, self._in_body = True, False
        self._deadline = _NEVER
        super().on_message_complete()
        is_upgrade = self.parser is not None and self.parser.should_upgrade() and self._should_upgrade()
        if not is_upgrade and self.cycle.response_complete:
            self._await_request()

    def handle_websocket_upgrade(self) -> None:
        # The protocol of the WebSocket counts the connection from now on.
        self.open_connections.remove(self)
        self._deadline = self._stalled_at = _NEVER
        super().handle_websocket_upgrade()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.pipeline or not self.cycle.response_complete:
            return
        if self._in_body:
            # The response was sent before the whole body arrived: the deadline of the body stays.
            self.open_connections.mark_idle(self)
        else:
            self._await_request()

    def _await_request(self) -> None:
        seconds = self.limits.header_seconds if self._head_bytes else self.limits.idle_seconds
        self._deadline = self.loop.time() + seconds
        self.open_connections.mark_idle(self)

    def timeout_keep_alive_handler(self) -> None:
        if not self._head_bytes:
            super().timeout_keep_alive_handler()

    def pause_writing(self) -> None:
        self._stalled_at = self.loop.time() + self.limits.stalled_seconds
        super().pause_writing()

    def resume_writing(self) -> None:
        self._stalled_at = _NEVER
        super().resume_writing()

    def expire(self, now: float) -> None:
        """Close the connection if one of its deadlines has passed."""
        if now >= self._stalled_at:
            self.transport.abort()
        elif now >= self._deadline and not self.flow.read_paused:
            self._time_out()

    def _time_out(self) -> None:
        is_idle = not self._in_body and not self._head_bytes
        if is_idle or (self._in_body and self.cycle.response_started):
            self._close()
        else:
            part, seconds = (
                ("body", self.limits.body_seconds) if self._in_body else ("head", self.limits.header_seconds)
            )
            self._refuse(RequestTimeout(f"the {part} of a request must arrive within {seconds:g} seconds"))

    def evict(self) -> None:
        """Close the connection to make room for another one."""
        self.open_connections.remove(self)
        self._close()

    def _close(self) -> None:
        self._deadline = _NEVER
        self.transport.close()

    def send_400_response(self, msg: str) -> None:
        del msg
        self._refuse(MalformedRequest("the request is not valid HTTP/1.1"))

    def _refuse(self, error: RequestRefused) -> None:
        """Send an error, ignore what the client still sends, and close the connection."""
        self._refusal = error
        if self.transport.is_closing():
            return
        if self.pipeline:
            # Responses to earlier requests are pending: the client would take this error for one of them.
            self._close()
            return
        body = msgspec.json.encode(ProblemAnswer(Problem(error.code, error.message, error.hint)))
        retry = b"retry-after: 1\r\n" if error.status == HTTPStatus.SERVICE_UNAVAILABLE else b""
        self.transport.write(
            STATUS_LINE[error.status]
            + b"content-type: application/json\r\ncache-control: no-store\r\nx-content-type-options: nosniff\r\n"
            + b"connection: close\r\n%bcontent-length: %d\r\n\r\n%b" % (retry, len(body), body)
        )
        self._close()


def protocol_class(connections: Connections, limits: ConnectionLimits) -> type[LimitedProtocol]:
    """Return the protocol class of one server."""
    return type("ServerProtocol", (LimitedProtocol,), {"open_connections": connections, "limits": limits})


def _headers_too_large() -> HeadersTooLarge:
    return HeadersTooLarge(f"a request has at most {HEADERS_MAX} headers, with {HEADERS_BYTES:,} bytes in all")
