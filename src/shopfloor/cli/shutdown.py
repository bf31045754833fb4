"""Ending the process: signals for the event loop, and exits that no blocked loop, task or thread can prevent."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from types import FrameType

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream

from shopfloor.cli.limits import FORCED_EXIT_SECONDS, SIGTERM_REPEAT_SECONDS
from shopfloor.limits import LOOP_STALL_SECONDS


@contextmanager
def receive_signals(numbers: Sequence[signal.Signals]) -> Generator[MemoryObjectReceiveStream[int]]:
    """Handle these signals and return a stream of their numbers.

    The code of a worker may block the loop. If the loop does not receive a signal in time, or a second signal arrives
    before the loop received the first, the process exits: the reaper kills the children, and the next host resumes the
    runs from their logs. SIGTERM that is repeated within SIGTERM_REPEAT_SECONDS counts once.
    """
    loop = asyncio.get_running_loop()
    sender, receiver = anyio.create_memory_object_stream[int](len(numbers) * 8)
    timers: list[threading.Timer] = []
    terminated_at = -math.inf

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal terminated_at
        if number == signal.SIGTERM:
            previous, terminated_at = terminated_at, time.monotonic()
            if terminated_at - previous < SIGTERM_REPEAT_SECONDS:
                return
        if timers:
            _exit_blocked(128 + number)
        timer = threading.Timer(LOOP_STALL_SECONDS, _exit_blocked, (128 + number,))
        timer.daemon = True
        timers.append(timer)
        timer.start()
        loop.call_soon_threadsafe(deliver, number)

    def deliver(number: int) -> None:
        for timer in timers:
            timer.cancel()
        timers.clear()
        # The block may have ended since the signal arrived.
        with contextlib.suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
            sender.send_nowait(number)

    previous = {number: signal.signal(number, handle) for number in numbers}
    try:
        with sender, receiver:
            yield receiver
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _exit_blocked(code: int) -> None:
    print("shopfloor: the event loop is blocked; exiting without waiting for it", file=sys.stderr)
    exit_now(code)


def schedule_exit(code: int) -> None:
    """Exit after a delay, however long the cleanup takes."""
    timer = threading.Timer(FORCED_EXIT_SECONDS, exit_now, (code,))
    timer.daemon = True
    timer.start()


def schedule_exit_if_tasks_remain(code: int) -> None:
    """Schedule an exit at the end of the loop: a worker may have started tasks that never end, and the loop waits."""
    if len(asyncio.all_tasks()) > 1:
        schedule_exit(code)


def schedule_exit_if_threads_remain(code: int) -> None:
    """Schedule an exit at the end of the process: a step of a worker may run in a thread that never ends."""
    if threading.active_count() > 1:
        schedule_exit(code)


def exit_now(code: int) -> None:
    """Exit without waiting for threads or tasks."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)
