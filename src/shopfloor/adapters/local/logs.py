"""Logs in files, as the engine writes them, and the threads that force them to disk."""

from __future__ import annotations

import asyncio
import math
import os
import queue
import threading
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, Generic, TypeVar, cast

import anyio

from shopfloor.adapters.limits import DISK_THREADS, FREE_SPACE_CACHE_SECONDS
from shopfloor.adapters.local.bus import LocalBus
from shopfloor.error_factories import storage_error
from shopfloor.errors import StorageError
from shopfloor.limits import DISK_LOW_WATER_BYTES
from shopfloor.log import Delta, Entry, Masking, Payload
from shopfloor.ports import Bus
from shopfloor.record import Durability, Recorder, Repair, Storage, make_folder, torn_files

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


_disk = DiskThreads()


class LocalLog:
    """Implements `Log`: the recorder of one run, which also publishes on the bus."""

    def __init__(self, recorder: Recorder, bus: Bus, *, mask: Masking | None = None) -> None:
        self.recorder = recorder
        self._bus = bus
        self.mask = mask

    @property
    def run_id(self) -> str:
        return self.recorder.run_id

    @property
    def seq(self) -> int:
        return self.recorder.seq

    async def append(
        self,
        payload: Payload,
        *,
        path: str = "",
        iteration: int = 0,
        child_run_id: str | None = None,
        at: str | None = None,
    ) -> Entry:
        write = partial(self._append, payload, path=path, iteration=iteration, child_run_id=child_run_id, at=at)
        return await _run_in_disk_thread(write) if self.recorder.waits_for_disk(payload) else write()

    def _append(
        self,
        payload: Payload,
        *,
        path: str = "",
        iteration: int = 0,
        child_run_id: str | None = None,
        at: str | None = None,
    ) -> Entry:
        entry = self.recorder.append(payload, path=path, iteration=iteration, child_run_id=child_run_id, at=at)
        self._bus.publish(self.recorder.run_id, entry)
        return entry

    @property
    def is_durable(self) -> bool:
        return self.recorder.is_on_disk

    async def make_durable(self) -> None:
        await _run_in_disk_thread(self.recorder.make_durable)

    def append_now(self, payload: Payload) -> Entry:
        return self._append(payload)

    def publish_delta(self, delta: Delta) -> None:
        # A secret split over deltas cannot be recognized. So with masking, viewers get the text from the log only.
        if self.mask is None:
            self._bus.publish_delta(self.run_id, delta)


async def _run_in_disk_thread(work: Callable[[], T]) -> T:
    """Run work that blocks on the disk in a thread. Waits for its end even if the task is cancelled."""
    job = _disk.submit(work)
    try:
        await job.waiter
    except asyncio.CancelledError:
        await _wait_uncancelled(job)
    return job.result()


async def _wait_uncancelled(job: DiskJob[T]) -> None:
    """Wait for a job in a task that is cancelled, and cancel the task again afterwards."""
    # A cancelled anyio scope cancels its task again at the next wait. A `task.cancel()`, which `gather` calls
    # on its tasks, comes once, and no shield delays it.
    is_task_cancelled = anyio.current_effective_deadline() != -math.inf
    with anyio.CancelScope(shield=True):
        while not job.is_done:
            try:
                await job.wait_again()
            except asyncio.CancelledError:
                is_task_cancelled = True
    if is_task_cancelled and (task := asyncio.current_task()) is not None:
        # Several cancellations count as one.
        task.uncancel()
        task.cancel()


class LocalLogs:
    """Implements `Logs` with the files of a storage."""

    def __init__(
        self,
        storage: Storage,
        *,
        durability: Durability = Durability.GROUP,
        mask: Masking | None = None,
        low_water: int = DISK_LOW_WATER_BYTES,
        on_repair: Callable[[Repair], None] | None = None,
        bus: Bus | None = None,
    ) -> None:
        self._storage = storage
        self._durability = durability
        self._mask = mask
        self._low_water = low_water
        self._on_repair = on_repair
        self._bus = bus or LocalBus(storage)
        self._headroom_bytes, self._headroom_expires_at = 0, 0.0

    @asynccontextmanager
    async def open(self, run_id: str, *, parent_run_id: str | None = None) -> AsyncGenerator[LocalLog]:
        recorder = self._open(run_id, parent_run_id)
        try:
            if recorder.repaired and self._on_repair:
                self._on_repair(recorder.repaired)
            yield LocalLog(recorder, self._bus, mask=self._mask)
        finally:
            recorder.close()
            # After an outcome, followers know that the writer has ended.
            if not recorder.has_ended:
                self._bus.notify(run_id)

    def _open(self, run_id: str, parent_run_id: str | None) -> Recorder:
        path = self._storage.log_path(run_id)
        recorder = Recorder(
            path,
            run_id,
            parent_run_id=parent_run_id,
            durability=self._durability,
            mask=self._mask,
        )
        # Announce after the file exists, since readers open it at once. Announce an existing log too: a log that was
        # not written for long is not polled any more.
        try:
            self._announce(run_id)
        except BaseException:
            recorder.close()
            raise
        if recorder.seq:
            # The log may have been truncated, or written by another process, since its last entry was published.
            self._bus.notify(run_id)
        return recorder

    def _announce(self, run_id: str) -> None:
        try:
            self._storage.announce(run_id)
        except OSError as error:
            raise storage_error(error, f"cannot write to {self._storage.root}") from error

    async def delete(self, run_id: str) -> None:
        path = self._storage.log_path(run_id)
        try:
            for file in (path, *torn_files(path)):
                file.unlink(missing_ok=True)
        except OSError as error:
            raise storage_error(error, f"cannot delete {path}") from error

    async def announce_deletion(self, run_id: str) -> None:
        # The log is deleted even if the disk is too full for the announcement.
        with suppress(StorageError):
            self._announce(run_id)
        self._bus.notify(run_id)

    @property
    def masks(self) -> bool:
        return self._mask is not None

    def headroom_bytes(self) -> int:
        # Called for every run, so the value is cached for a moment.
        if (now := time.monotonic()) >= self._headroom_expires_at:
            self._headroom_bytes, self._headroom_expires_at = self._measure_headroom(), now + FREE_SPACE_CACHE_SECONDS
        return self._headroom_bytes

    def _measure_headroom(self) -> int:
        folder = self._storage.transcripts
        try:
            try:
                disk = os.statvfs(folder)
            except FileNotFoundError:
                make_folder(folder)
                disk = os.statvfs(folder)
        except OSError as error:
            raise storage_error(error, f"cannot read the free space of {folder}") from error
        return disk.f_bavail * disk.f_frsize - self._low_water
