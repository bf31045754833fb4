"""Durability levels (when a written line survives a power cut) and the thread that commits for the level `group`."""

from __future__ import annotations

import threading
from enum import StrEnum
from typing import Protocol

from shopfloor.limits import GROUP_COMMIT_SECONDS


class Durability(StrEnum):
    """How safe an event is when `Recorder.append` returns."""

    OS = "os"
    """Survives a crash of the process; the operating system decides when it reaches the disk."""
    GROUP = "group"
    """As `os`, and forced to disk at most 50 ms later; immediately at step boundaries and at the outcome."""
    EVENT = "event"
    """Forced to disk before the event is acknowledged."""


class Syncable(Protocol):
    """A file with writes that are not on disk yet."""

    def sync_pending(self) -> None: ...


class GroupCommit:
    """One thread per process that forces all pending writes to disk at an interval."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pending: set[Syncable] = set()
        self._has_pending = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, target: Syncable) -> None:
        """Sync `target` within `GROUP_COMMIT_SECONDS`. Does not block."""
        with self._lock:
            self._pending.add(target)
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="shopfloor-group-commit", daemon=True)
                self._thread.start()
        self._has_pending.set()

    def _run(self) -> None:
        pause = threading.Event()
        while True:
            self._has_pending.wait()
            pause.wait(GROUP_COMMIT_SECONDS)
            with self._lock:
                targets, self._pending = self._pending, set()
                self._has_pending.clear()
            for target in targets:
                target.sync_pending()


group_commit = GroupCommit()
