"""The watchdog: a thread that reports code that blocks the event loop, and keeps TERM working meanwhile."""

from __future__ import annotations

import asyncio
import faulthandler
import logging
import os
import re
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from shopfloor.limits import LOOP_CHECK_SECONDS, LOOP_STALL_SECONDS
from shopfloor.log import AssistantMessage, Note

LOOP_BLOCKED = "loop_blocked"
"""The code of the note that the log of a run gets when its worker blocks the event loop."""
_EXIT_CODE = 70
_log = logging.getLogger("shopfloor.engine")
_stack_log = logging.getLogger("shopfloor.engine.stacks")
"""Stacks are logged by servers; a command shows them only with `--debug`."""

current_run: ContextVar[str | None] = ContextVar("current_run", default=None)
"""The run whose code is being executed. A new task inherits the value from the task that creates it."""
_runs_of_tasks: WeakKeyDictionary[asyncio.Task[Any], str] = WeakKeyDictionary()


class Watchdog:
    """The watcher of the loop of one host. `report` is called in its thread, with the run and a note for the log."""

    def __init__(self, report: Callable[[str, AssistantMessage], None]) -> None:
        self._report = report
        self._stops_requested = 0
        self._stopped = threading.Event()
        self._loop_responded = threading.Event()

    def request_stop(self) -> None:
        """Note that the process is to stop: a blocked loop cannot handle the signal itself."""
        self._stops_requested += 1

    @contextmanager
    def running(self) -> Generator[None]:
        """Watch the running loop until the block ends."""
        loop = asyncio.get_running_loop()
        if loop.get_task_factory() is None:
            loop.set_task_factory(_make_task)
        thread = threading.Thread(
            target=self._watch, args=(loop, threading.get_ident()), name="shopfloor-watchdog", daemon=True
        )
        thread.start()
        try:
            yield
        finally:
            self._stopped.set()

    def _watch(self, loop: asyncio.AbstractEventLoop, thread_id: int) -> None:
        # Count the checks of this thread instead of reading a clock: a suspended process misses no check.
        missed_seconds, reported = 0.0, False
        self._loop_responded.set()
        while not self._stopped.wait(LOOP_CHECK_SECONDS):
            if self._loop_responded.is_set():
                missed_seconds, reported = 0.0, False
                self._loop_responded.clear()
                try:
                    loop.call_soon_threadsafe(self._loop_responded.set)
                except RuntimeError:
                    # The loop is closed.
                    return
                continue
            missed_seconds += LOOP_CHECK_SECONDS
            is_blocked = missed_seconds >= LOOP_STALL_SECONDS
            if is_blocked and not reported:
                reported = True
                self._report_blocked(loop, thread_id)
            if self._stops_requested > 1 or (self._stops_requested and is_blocked):
                _log.error("the event loop is blocked: the process ends without waiting for it")
                _exit()

    def _report_blocked(self, loop: asyncio.AbstractEventLoop, thread_id: int) -> None:
        task = asyncio.current_task(loop)
        run_id = _runs_of_tasks.get(task) if task is not None else None
        stacks = _stacks()
        message = f"the event loop has been blocked for {LOOP_STALL_SECONDS:g} s {_find_location(stacks, thread_id)}"
        _log.error("%s (run %s)", message, run_id or "unknown")
        _stack_log.error("The stacks of all threads:\n%s", stacks)
        if run_id is not None:
            note = Note(kind="warning", code=LOOP_BLOCKED, message=message)
            self._report(run_id, AssistantMessage(blocks=[], note=note))


def is_loop_blocked(message: object) -> bool:
    """Return whether this is the note that a run has blocked the event loop."""
    return isinstance(message, AssistantMessage) and message.note is not None and message.note.code == LOOP_BLOCKED


def _make_task(loop: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> asyncio.Task[Any]:
    """Create a task and remember its run. From Python 3.12 on, `Task.get_context` could return the run instead."""
    task = asyncio.Task(coro, loop=loop, **options)
    run_id = current_run.get()
    if run_id is not None:
        _runs_of_tasks[task] = run_id
    return task


def _stacks() -> str:
    """Return the stacks of all threads, the most recent call of each first."""
    import tempfile

    with tempfile.TemporaryFile() as file:
        faulthandler.dump_traceback(file)
        file.seek(0)
        return file.read().decode(errors="replace")


def _find_location(stacks: str, thread_id: int) -> str:
    """Return the current location of a thread: the file without its folders, the line and the function."""
    found = re.search(rf'^Thread 0x0*{thread_id:x} .*\n  File "(.*)", line (\d+) in (.*)$', stacks, re.MULTILINE)
    return f"at {Path(found[1]).name}:{found[2]}, in {found[3]}" if found else "at an unknown place"


def _exit() -> None:
    """Exit the process at once. The reaper ends the children; the next host resumes the runs from their logs."""
    sys.stderr.flush()
    os._exit(_EXIT_CODE)
