"""The watchdog: a thread that notices when code of a run blocks the event loop, says so, and lets TERM work anyway."""

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
"""Stacks are for whoever runs a server; a command shows them with `--debug` only."""

current_run: ContextVar[str | None] = ContextVar("current_run", default=None)
"""The run whose code is being executed. Tasks that a worker makes have the value of the task that made them."""
_runs_of_tasks: WeakKeyDictionary[asyncio.Task[Any], str] = WeakKeyDictionary()


class Watchdog:
    """Watches the loop of one host. `report` is called in the watchdog's thread: the run, and a note for its log."""

    def __init__(self, report: Callable[[str, AssistantMessage], None]) -> None:
        self._report = report
        self._stops_requested = 0
        self._ended = threading.Event()
        self._answered = threading.Event()

    def request_stop(self) -> None:
        """Note that the process is to stop. While the loop is blocked nobody else can do that."""
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
            self._ended.set()

    def _watch(self, loop: asyncio.AbstractEventLoop, thread_id: int) -> None:
        # Counted in looks of our own, not by the clock: a process that was suspended has missed none.
        missed_seconds, reported = 0.0, False
        self._answered.set()
        while not self._ended.wait(LOOP_CHECK_SECONDS):
            if self._answered.is_set():
                missed_seconds, reported = 0.0, False
                self._answered.clear()
                try:
                    loop.call_soon_threadsafe(self._answered.set)
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
        message = f"the event loop has been blocked for {LOOP_STALL_SECONDS:g} s {_place_of(stacks, thread_id)}"
        _log.error("%s (run %s)", message, run_id or "unknown")
        _stack_log.error("The stacks of all threads:\n%s", stacks)
        if run_id is not None:
            note = Note(kind="warning", code=LOOP_BLOCKED, message=message)
            self._report(run_id, AssistantMessage(blocks=[], note=note))


def is_loop_blocked(message: object) -> bool:
    """Whether this is the note that a run has blocked the event loop."""
    return isinstance(message, AssistantMessage) and message.note is not None and message.note.code == LOOP_BLOCKED


def _make_task(loop: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> asyncio.Task[Any]:
    """A task factory that remembers to which run a task belongs. From Python 3.12 on a task's context would tell it."""
    task = asyncio.Task(coro, loop=loop, **options)
    run_id = current_run.get()
    if run_id is not None:
        _runs_of_tasks[task] = run_id
    return task


def _stacks() -> str:
    """The stacks of all threads, the most recent call of each first."""
    import tempfile

    with tempfile.TemporaryFile() as file:
        faulthandler.dump_traceback(file)
        file.seek(0)
        return file.read().decode(errors="replace")


def _place_of(stacks: str, thread_id: int) -> str:
    """Where a thread is: the file without its folders, the line and the function."""
    found = re.search(rf'^Thread 0x0*{thread_id:x} .*\n  File "(.*)", line (\d+) in (.*)$', stacks, re.MULTILINE)
    return f"at {Path(found[1]).name}:{found[2]}, in {found[3]}" if found else "at an unknown place"


def _exit() -> None:
    """End the process at once. The reaper ends the children; the logs tell the next host what to resume."""
    sys.stderr.flush()
    os._exit(_EXIT_CODE)
