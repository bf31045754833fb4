"""A thread pool for forcing logs to disk."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Generic, TypeVar, cast

from shopfloor.limits import DISK_THREADS

T = TypeVar("T")


class DiskJob(Generic[T]):
    """A job of a disk thread. It continues if the task that waits for it is cancelled."""

    def __init__(self, work: Callable[[], T]) -> None:
        self.is_done = False
        self._work = work
        self._result: T | None = None
        self._error: BaseException | None = None
        self._loop = asyncio.get_running_loop()
        self.waiter = self._loop.create_future()

    def wait_again(self) -> asyncio.Future[None]:
        """Return a new future for a task whose wait was cancelled."""
        self.waiter = self._loop.create_future()
        return self.waiter

    def result(self) -> T:
        if self._error is not None:
            raise self._error
        return cast("T", self._result)

    def run(self) -> None:
        """Execute the job. Called by the thread."""
        try:
            self._result = self._work()
        except BaseException as error:  # noqa: BLE001 - the caller gets it
            self._error = error
        # A closed loop raises RuntimeError; no task waits in it.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        self.is_done = True
        if not self.waiter.done():
            self.waiter.set_result(None)


class DiskThreads:
    """Threads that block on the disk so that the event loop does not.

    Every run uses one at its outcome. An executor would take twice the time because of its futures.
    """

    def __init__(self, count: int = DISK_THREADS) -> None:
        self._count = count
        self._threads: list[threading.Thread] = []
        self._idle = threading.Semaphore(0)
        self._jobs: queue.SimpleQueue[DiskJob[Any]] = queue.SimpleQueue()

    def submit(self, work: Callable[[], T]) -> DiskJob[T]:
        """Queue the work for a thread. Raises `RuntimeError` if not even the first thread can be started."""
        if not self._idle.acquire(blocking=False) and len(self._threads) < self._count:
            self._start()
        job = DiskJob(work)
        self._jobs.put(job)
        return job

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
            self._jobs.get().run()
            self._idle.release()
