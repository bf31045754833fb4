"""Server-sent events: frames, and the answer that sends them."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, nullcontext
from typing import TypeVar

import anyio
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

HEADERS = {
    "Content-Type": "text/event-stream",
    "Cache-Control": "no-cache, no-transform",
    "X-Accel-Buffering": "no",
}
_HEARTBEAT = b": heartbeat\n\n"

T = TypeVar("T")
Frames = AsyncGenerator[bytes]
"""Whole frames, as many in one piece as were there at the time."""


def log_frame(seq: int, raw: bytes) -> bytes:
    """An event of a log: its bytes, and its `seq` as the id."""
    return b"id: %d\ndata: %b\n\n" % (seq, _one_line(raw))


def frame(event: bytes, data: bytes, place: bytes | None = None) -> bytes:
    """An event with a name of its own."""
    said = b"" if place is None else b"id: %b\n" % place
    return b"%bevent: %b\ndata: %b\n\n" % (said, event, _one_line(data))


def data_frame(data: bytes, place: int | None = None) -> bytes:
    """An event that says itself what it is; with the `seq` of the log that all up to here tells of."""
    return b"data: %b\n\n" % data if place is None else b"id: %d\ndata: %b\n\n" % (place, data)


def _one_line(data: bytes) -> bytes:
    # A CR would end a line here. In JSON it can only stand between values, and only where others wrote the log.
    return data.replace(b"\r", b"") if b"\r" in data else data


@asynccontextmanager
async def closing(iterator: AsyncIterator[T]) -> AsyncGenerator[AsyncIterator[T]]:
    """Ends a generator that is left before its end now, not when somebody collects it."""
    try:
        yield iterator
    finally:
        if isinstance(iterator, AsyncGenerator):
            await iterator.aclose()


class EventStream(Response):
    """Sends what its sources give, each as it comes, until all of them end, the client goes or the server stops.

    A source waits until what it gave is taken, so a slow client holds up its own sources and nothing else. `context` is
    entered for as long as it lasts, however it ends.
    """

    def __init__(
        self,
        *sources: Frames,
        heartbeat_seconds: float,
        shutdown_event: anyio.Event,
        context: AbstractAsyncContextManager[None] | None = None,
    ) -> None:
        self.status_code = 200
        self.background = None
        self.raw_headers = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]
        self._sources = sources
        self._heartbeat = heartbeat_seconds
        self._stopping = shutdown_event
        self._within = context or nullcontext()
        self._sent_at = 0.0
        # Without a pause where nobody else sends: that would cost as much as all the rest.
        self._sending = anyio.Lock(fast_acquire=True) if len(sources) > 1 else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._within:
            await self._stream(receive, send)

    async def _stream(self, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        self._sent_at = time.monotonic()
        async with anyio.create_task_group() as watchers:
            watchers.start_soon(self._end_when_gone, receive, watchers.cancel_scope)
            watchers.start_soon(self._end_when_stopping, watchers.cancel_scope)
            watchers.start_soon(self._show_life, send)
            async with anyio.create_task_group() as senders:
                for source in self._sources:
                    senders.start_soon(self._pass_on, source, send)
            watchers.cancel_scope.cancel()
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _pass_on(self, source: Frames, send: Send) -> None:
        async with aclosing(source):
            async for frames in source:
                if frames:
                    await self._send(send, frames)

    async def _send(self, send: Send, data: bytes) -> None:
        # The lock is fair: frames go out in the order in which they were made, whatever source they are of.
        async with self._sending or nullcontext():
            await send({"type": "http.response.body", "body": data, "more_body": True})
            self._sent_at = time.monotonic()

    async def _show_life(self, send: Send) -> None:
        while True:
            if (left := self._sent_at + self._heartbeat - time.monotonic()) > 0:
                await anyio.sleep(left)
            else:
                await self._send(send, _HEARTBEAT)

    async def _end_when_gone(self, receive: Receive, scope: anyio.CancelScope) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        scope.cancel()

    async def _end_when_stopping(self, scope: anyio.CancelScope) -> None:
        await self._stopping.wait()
        scope.cancel()
