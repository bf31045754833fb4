"""Leaving: what cannot be ended does not hold up the end of the process."""

from __future__ import annotations

import contextlib
import os
import sys
import threading

from shopfloor.limits import LEAVE_SECONDS


def leave_soon(code: int) -> None:
    """However long tidying up takes, whoever wants to leave leaves."""
    timer = threading.Timer(LEAVE_SECONDS, leave_now, (code,))
    timer.daemon = True
    timer.start()


def leave_tasks(code: int) -> None:
    """The last of the loop: a worker may have made tasks that nothing ends, and the loop would wait for them."""
    import asyncio

    if len(asyncio.all_tasks()) > 1:
        leave_soon(code)


def leave_threads(code: int) -> None:
    """The last of the process: a step of a worker may be in a thread that nothing ends."""
    if threading.active_count() > 1:
        leave_soon(code)


def leave_now(code: int) -> None:
    """End the process, without waiting for threads or tasks."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)
