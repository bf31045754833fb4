"""Bytes to our own stdout and stderr, as they are."""

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


class Echo:
    """Writes what it is given, in order. Whoever reads it sets the pace; `on_closed` is told when nobody does any more.

    In a thread of its own that nobody waits for: a reader who has stopped reading must not keep us from ending.
    """

    def __init__(self, on_closed: Callable[[], None]) -> None:
        self._on_closed = on_closed
        self._loop = asyncio.get_running_loop()
        self._todo: queue.SimpleQueue[tuple[Sequence[OutputChunk], anyio.Event]] = queue.SimpleQueue()
        threading.Thread(target=self._work, name="shopfloor-echo", daemon=True).start()

    async def pieces(self, pieces: Sequence[OutputChunk]) -> None:
        written = anyio.Event()
        self._todo.put((pieces, written))
        await written.wait()

    def _work(self) -> None:
        listening = True
        while True:
            pieces, written = self._todo.get()
            # The loop is closed when the run ended without waiting for us.
            with contextlib.suppress(RuntimeError):
                if listening and not _wrote(pieces):
                    listening = False
                    self._loop.call_soon_threadsafe(self._on_closed)
                self._loop.call_soon_threadsafe(written.set)


def _wrote(pieces: Sequence[OutputChunk]) -> bool:
    for piece in pieces:
        descriptor = 1 if piece.stream == "stdout" else 2
        rest = memoryview(piece.data)
        while rest:
            try:
                rest = rest[os.write(descriptor, rest) :]
            except BlockingIOError:
                select.select([], [descriptor], [])
            except OSError:
                return False
    return True
