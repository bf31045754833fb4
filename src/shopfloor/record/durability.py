"""When a written line is safe from a power cut: `os`, `group` or `event`."""

from __future__ import annotations

import threading
from enum import StrEnum
from typing import Protocol

from shopfloor.limits import GROUP_COMMIT_SECONDS


class Durability(StrEnum):
    OS = "os"
    """Safe from a crash of the process; the system writes it to disk when it likes."""
    GROUP = "group"
    """As `os`, and forced to disk at most 50 ms later, and at once at step boundaries and at the outcome."""
    EVENT = "event"
    """Forced to disk before the event is acknowledged."""


class Syncable(Protocol):
    def sync_pending(self) -> None: ...


class GroupCommit:
    """One thread per process that forces to disk whatever was written since it last looked."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pending: set[Syncable] = set()
        self._wanted = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, target: Syncable) -> None:
        with self._lock:
            self._pending.add(target)
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="shopfloor-group-commit", daemon=True)
                self._thread.start()
        self._wanted.set()

    def _run(self) -> None:
        pause = threading.Event()
        while True:
            self._wanted.wait()
            pause.wait(GROUP_COMMIT_SECONDS)
            with self._lock:
                targets, self._pending = self._pending, set()
                self._wanted.clear()
            for target in targets:
                target.sync_pending()


group_commit = GroupCommit()
