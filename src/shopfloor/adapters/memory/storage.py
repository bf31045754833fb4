"""What the in-memory adapters keep. It outlives the engines that write it, as a disk or a database does."""

from __future__ import annotations

import threading
from collections.abc import Callable

import msgspec

from shopfloor.log import Entry, RunCompleted, checked_run_id


class StoredLog:
    """The events of one run, and whether somebody has the log open for writing."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        """Only ever appended to, except by tests: what is cut off here is lost, as in a power cut."""
        self.is_written = False

    @property
    def last_seq(self) -> int:
        return self.entries[-1].seq if self.entries else 0

    @property
    def has_ended(self) -> bool:
        return bool(self.entries) and self.entries[-1].type == RunCompleted.event_type

    def after(self, seq: int, limit: int | None = None) -> list[Entry]:
        """The events that follow `seq`, at most `limit`. The event `seq` is the `seq`-th, since there are no gaps."""
        return self.entries[seq : None if limit is None else seq + limit]


class StoredHost(msgspec.Struct):
    """A process that executes runs, and what ends it."""

    is_dedicated: bool
    interrupt: Callable[[], None]
    kill: Callable[[], None]


class MemoryStorage:
    """Logs, the marks of their opening, and hosts. Any number of adapters, in any threads, share one."""

    def __init__(self) -> None:
        self.logs: dict[str, StoredLog] = {}
        self.hosts: dict[str, StoredHost] = {}
        self.opened: list[str] = []
        """The runs whose logs were opened or deleted, in that order; the first has the mark `forgotten` + 1."""
        self.forgotten = 0
        """The mark up to which `opened` was forgotten."""
        self.lock = threading.RLock()
        """Held while anything here changes, and while events are published: so they are published in order."""

    def find(self, run_id: str) -> StoredLog | None:
        return self.logs.get(checked_run_id(run_id))
