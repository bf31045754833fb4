"""Threads that force logs to disk."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from shopfloor.limits import DISK_THREADS

T = TypeVar("T")


class DiskThreads:
    """Threads that block on the disk in the place of the event loop.

    Every run needs one at its outcome. An executor takes twice the time, for its futures.
    """

    def __init__(self, count: int = DISK_THREADS) -> None:
        self._count = count
        self._threads: list[threading.Thread] = []
        self._idle = threading.Semaphore(0)
        self._work: queue.SimpleQueue[tuple[Callable[[], Any], asyncio.Future[Any]]] = queue.SimpleQueue()

    def submit(self, work: Callable[[], T]) -> asyncio.Future[T]:
        """Have the work done by a thread. Raises where the first thread cannot be started."""
        if not self._idle.acquire(blocking=False) and len(self._threads) < self._count:
            self._start()
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._work.put((work, future))
        return future

    def _start(self) -> None:
        thread = threading.Thread(target=self._run, name=f"shopfloor-disk_{len(self._threads)}", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            if not self._threads:
                raise
        else:
            self._threads.append(thread)

    def _run(self) -> None:
        while True:
            work, future = self._work.get()
            error, result = None, None
            try:
                result = work()
            except BaseException as raised:  # noqa: BLE001 - the caller gets it
                error = raised
            # Nobody waits in a loop that is closed.
            with suppress(RuntimeError):
                future.get_loop().call_soon_threadsafe(_answer, future, result, error)
            del work, future, result, error
            self._idle.release()


def _answer(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
