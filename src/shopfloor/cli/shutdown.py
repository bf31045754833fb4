"""Signals for the event loop, which also end a process whose loop is blocked."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from types import FrameType

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream

from shopfloor.limits import FORCED_EXIT_SECONDS, LOOP_STALL_SECONDS


@contextmanager
def receive_signals(numbers: Sequence[signal.Signals]) -> Generator[MemoryObjectReceiveStream[int]]:
    """Catch these signals and give them to the loop.

    Code of a worker may block the loop. A signal that the loop does not take in time, or a second one before the loop
    has taken the first, ends the process: the reaper ends the children, and the log tells the next host what to resume.
    """
    loop = asyncio.get_running_loop()
    send, received = anyio.create_memory_object_stream[int](len(numbers) * 8)
    waiting: list[threading.Timer] = []

    def catch(number: int, frame: FrameType | None) -> None:
        if waiting:
            _end_blocked(128 + number)
        timer = threading.Timer(LOOP_STALL_SECONDS, _end_blocked, (128 + number,))
        timer.daemon = True
        waiting.append(timer)
        timer.start()
        loop.call_soon_threadsafe(deliver, number)

    def deliver(number: int) -> None:
        for timer in waiting:
            timer.cancel()
        waiting.clear()
        send.send_nowait(number)

    before = {number: signal.signal(number, catch) for number in numbers}
    try:
        with send, received:
            yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end_blocked(code: int) -> None:
    print("shopfloor: the event loop is blocked: the process ends without waiting for it", file=sys.stderr)
    exit_now(code)


def schedule_exit(code: int) -> None:
    """However long tidying up takes, whoever wants to leave leaves."""
    timer = threading.Timer(FORCED_EXIT_SECONDS, exit_now, (code,))
    timer.daemon = True
    timer.start()


def schedule_exit_if_tasks_remain(code: int) -> None:
    """The last of the loop: a worker may have made tasks that nothing ends, and the loop would wait for them."""
    import asyncio

    if len(asyncio.all_tasks()) > 1:
        schedule_exit(code)


def schedule_exit_if_threads_remain(code: int) -> None:
    """The last of the process: a step of a worker may be in a thread that nothing ends."""
    if threading.active_count() > 1:
        schedule_exit(code)


def exit_now(code: int) -> None:
    """End the process, without waiting for threads or tasks."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)
