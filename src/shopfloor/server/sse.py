"""Server-sent events: frames, and the response that streams them."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, nullcontext
from typing import TypeVar

import anyio
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from shopfloor.server.auth import wait_until_revoked

HEADERS = {
    "Content-Type": "text/event-stream",
    "Cache-Control": "no-cache, no-transform",
    "X-Accel-Buffering": "no",
}
HEARTBEAT = b": heartbeat\n\n"
"""A comment: it keeps the connection open, and clients pass over it."""

T = TypeVar("T")
Frames = AsyncGenerator[bytes]
"""Chunks of complete frames, as many in each as were available."""


def log_frame(seq: int, raw: bytes) -> bytes:
    """Return the frame of a log event: its bytes, with its `seq` as the id."""
    return b"id: %d\ndata: %b\n\n" % (seq, _one_line(raw))


def frame(event: bytes, data: bytes, event_id: bytes | None = None) -> bytes:
    """Return a frame with an event name."""
    id_line = b"" if event_id is None else b"id: %b\n" % event_id
    return b"%bevent: %b\ndata: %b\n\n" % (id_line, event, _one_line(data))


def data_frame(data: bytes, seq: int | None = None) -> bytes:
    """Return a frame whose data has its own type. `seq` is the log event up to which the stream is complete."""
    return b"data: %b\n\n" % data if seq is None else b"id: %d\ndata: %b\n\n" % (seq, data)


def _one_line(data: bytes) -> bytes:
    # A CR would end the line. JSON can contain one only between values, and only in a log that other software wrote.
    return data.replace(b"\r", b"") if b"\r" in data else data


@asynccontextmanager
async def closing(iterator: AsyncIterator[T]) -> AsyncGenerator[AsyncIterator[T]]:
    """Close an asynchronous generator at the end of the context, instead of when it is garbage collected."""
    try:
        yield iterator
    finally:
        if isinstance(iterator, AsyncGenerator):
            await iterator.aclose()


class EventStream(Response):
    """Sends the frames of its sources until all sources end, the client disconnects or the server stops.

    The stream also ends when the token or session of the client is revoked.
    A source waits until its frames are sent, so a slow client delays its own sources only. `context` is entered while
    the stream lasts, and exited however the stream ends.
    """

    def __init__(
        self,
        *sources: Frames,
        heartbeat_seconds: float,
        shutdown_event: anyio.Event,
        context: AbstractAsyncContextManager[object] | None = None,
        heartbeat: bytes = HEARTBEAT,
    ) -> None:
        self.status_code = 200
        self.background = None
        self.raw_headers = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]
        self._sources = sources
        self._heartbeat_seconds = heartbeat_seconds
        self._heartbeat = heartbeat
        self._shutdown_event = shutdown_event
        self._context: AbstractAsyncContextManager[object] = context or nullcontext()
        self._sent_at = 0.0
        # No lock for a single source, and no checkpoint when acquiring it: either would double the cost of a send.
        self._send_lock = anyio.Lock(fast_acquire=True) if len(sources) > 1 else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._context:
            await self._stream(scope, receive, send)

    async def _stream(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        self._sent_at = time.monotonic()
        async with anyio.create_task_group() as watchers:
            watchers.start_soon(self._cancel_on_disconnect, receive, watchers.cancel_scope)
            watchers.start_soon(self._cancel_on_shutdown, watchers.cancel_scope)
            watchers.start_soon(self._cancel_on_revocation, scope, watchers.cancel_scope)
            watchers.start_soon(self._send_heartbeats, send)
            async with anyio.create_task_group() as senders:
                for source in self._sources:
                    senders.start_soon(self._forward, source, send)
            watchers.cancel_scope.cancel()
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _forward(self, source: Frames, send: Send) -> None:
        async with aclosing(source):
            async for frames in source:
                if frames:
                    await self._send(send, frames)

    async def _send(self, send: Send, data: bytes) -> None:
        # The lock is fair: frames of all sources are sent in the order in which they were made.
        async with self._send_lock or nullcontext():
            await send({"type": "http.response.body", "body": data, "more_body": True})
            self._sent_at = time.monotonic()

    async def _send_heartbeats(self, send: Send) -> None:
        while True:
            if (left := self._sent_at + self._heartbeat_seconds - time.monotonic()) > 0:
                await anyio.sleep(left)
            else:
                await self._send(send, self._heartbeat)

    async def _cancel_on_disconnect(self, receive: Receive, scope: anyio.CancelScope) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        scope.cancel()

    async def _cancel_on_shutdown(self, scope: anyio.CancelScope) -> None:
        await self._shutdown_event.wait()
        scope.cancel()

    async def _cancel_on_revocation(self, scope: Scope, cancel_scope: anyio.CancelScope) -> None:
        await wait_until_revoked(scope)
        cancel_scope.cancel()
