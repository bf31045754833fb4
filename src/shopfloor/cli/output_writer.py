"""A writer of raw bytes to stdout and stderr that never blocks the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import select
import threading
from collections.abc import Callable, Sequence

import anyio

from shopfloor.ports import OutputChunk


class OutputWriter:
    """Writes chunks in order and calls `on_closed` once when an output is closed.

    `write` returns when the chunks are written, so a slow reader slows the run down. The writing happens in a daemon
    thread: a reader that has stopped reading must not keep the process from ending.
    """

    def __init__(self, on_closed: Callable[[], None]) -> None:
        self._on_closed = on_closed
        self._loop = asyncio.get_running_loop()
        self._queue: queue.SimpleQueue[tuple[Sequence[OutputChunk], anyio.Event]] = queue.SimpleQueue()
        threading.Thread(target=self._work, name="shopfloor-echo", daemon=True).start()

    async def write(self, chunks: Sequence[OutputChunk]) -> None:
        """Write the chunks and wait until they are written, or discarded because the output is closed."""
        written = anyio.Event()
        self._queue.put((chunks, written))
        await written.wait()

    def _work(self) -> None:
        is_open = True
        while True:
            chunks, written = self._queue.get()
            # The loop is closed when the run has ended without waiting for this thread.
            with contextlib.suppress(RuntimeError):
                if is_open and not _try_write(chunks):
                    is_open = False
                    self._loop.call_soon_threadsafe(self._on_closed)
                self._loop.call_soon_threadsafe(written.set)


def _try_write(chunks: Sequence[OutputChunk]) -> bool:
    """Write the chunks; return False when an output is closed."""
    for chunk in chunks:
        descriptor = 1 if chunk.stream == "stdout" else 2
        rest = memoryview(chunk.data)
        while rest:
            try:
                rest = rest[os.write(descriptor, rest) :]
            except BlockingIOError:
                select.select([], [descriptor], [])
            except OSError:
                return False
    return True
