"""The in-memory storage, which outlives the engines that write it, and the small adapters without a store.

These are audit log, tokens, watchers (the clients that execute runs) and hosts.
"""

from __future__ import annotations

import secrets
import threading
import uuid
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any, TypeVar

import msgspec

from shopfloor.adapters.limits import AUDIT_ENTRIES_IN_MEMORY
from shopfloor.log import Entry, RunCompleted, validate_run_id
from shopfloor.ports import Access, AuditEntry


class MemoryAudit:
    """Implements `Audit` without a file; the oldest entries are dropped when there are too many."""

    def __init__(self) -> None:
        self._entries: deque[AuditEntry] = deque(maxlen=AUDIT_ENTRIES_IN_MEMORY)

    async def write(self, entry: AuditEntry) -> None:
        self._entries.append(entry)

    def read(self) -> Iterator[dict[str, Any]]:
        """Iterate over the entries, oldest first."""
        return iter([msgspec.to_builtins(entry) for entry in self._entries])


T = TypeVar("T")


class MemoryTokens:
    """Implements `Tokens` without a file: no other process has access."""

    def __init__(self) -> None:
        self._access = Access()
        self._storage_name = secrets.token_hex(4)

    @property
    def storage_name(self) -> str:
        return self._storage_name

    async def read(self) -> Access:
        return self._access

    async def update(self, change: Callable[[Access], tuple[Access, T]]) -> T:
        self._access, result = change(self._access)
        return result


class MemoryWatchers:
    """Implements `Watchers` for the clients of this process."""

    def __init__(self) -> None:
        self._client_counts: Counter[str] = Counter()
        self._bound: set[str] = set()
        self._disconnects: dict[str, str] = {}
        """The bound runs without a client, each with the id of the disconnect; a client that returns removes it."""
        self._disconnect_numbers = count(1)

    async def connect(self, run_id: str, *, bound: bool = True) -> None:
        (self._bound.add if bound else self._bound.discard)(run_id)
        self._disconnects.pop(run_id, None)
        self._client_counts[run_id] += 1

    async def disconnect(self, run_id: str) -> str | None:
        self._client_counts[run_id] -= 1
        if self._client_counts[run_id] > 0:
            return None
        del self._client_counts[run_id]
        if run_id not in self._bound:
            return None
        self._disconnects[run_id] = disconnect_id = str(next(self._disconnect_numbers))
        return disconnect_id

    async def unbind(self, run_id: str) -> None:
        self._bound.discard(run_id)
        self._disconnects.pop(run_id, None)

    async def is_abandoned(self, run_id: str, disconnect_id: str) -> bool:
        if self._disconnects.get(run_id) != disconnect_id:
            return False
        await self.unbind(run_id)
        return True


def _ignore() -> None:
    """Do nothing: for hosts that cannot be interrupted or killed."""


class MemoryHosts:
    """Implements `Hosts`: each host registers itself."""

    def __init__(self, storage: MemoryStorage) -> None:
        self._hosts = storage.hosts

    @contextmanager
    def register(
        self,
        host: str | None = None,
        *,
        is_dedicated: bool = False,
        interrupt: Callable[[], None] = _ignore,
        kill: Callable[[], None] = _ignore,
    ) -> Generator[str]:
        """Register a host, which is alive until the context exits or the host is killed. Yields its name.

        `interrupt` and `kill` are called by the methods of the same name, for a dedicated host only.
        """
        host = host or f"memory-{uuid.uuid4().hex[:8]}"
        self._hosts[host] = StoredHost(is_dedicated, interrupt, kill)
        try:
            yield host
        finally:
            self._hosts.pop(host, None)

    async def is_alive(self, host: str) -> bool:
        return host in self._hosts

    async def is_accepting(self, host: str) -> bool:
        return host in self._hosts and not self._hosts[host].is_draining

    async def set_draining(self, host: str, *, draining: bool) -> None:
        if host in self._hosts:
            self._hosts[host].is_draining = draining

    async def reap(self, host: str) -> bool:
        return host not in self._hosts

    async def is_dedicated(self, host: str) -> bool:
        return host in self._hosts and self._hosts[host].is_dedicated

    async def interrupt(self, host: str) -> None:
        if await self.is_dedicated(host):
            self._hosts[host].interrupt()

    async def kill(self, host: str) -> None:
        if await self.is_dedicated(host):
            self._hosts.pop(host).kill()


class StoredLog:
    """The events of one run, and whether the log is open for writing."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        """Only ever appended to, except by tests, which remove entries to simulate a power cut."""
        self.has_writer = False

    @property
    def last_seq(self) -> int:
        return self.entries[-1].seq if self.entries else 0

    @property
    def has_ended(self) -> bool:
        return bool(self.entries) and self.entries[-1].type == RunCompleted.event_type

    def after(self, seq: int, limit: int | None = None) -> list[Entry]:
        """Return at most `limit` events after `seq`. The event `seq` is the `seq`-th, since there are no gaps."""
        return self.entries[seq : None if limit is None else seq + limit]


class StoredHost(msgspec.Struct):
    """A host and the callbacks that end it."""

    is_dedicated: bool
    interrupt: Callable[[], None]
    kill: Callable[[], None]
    is_draining: bool = False


class MemoryStorage:
    """Logs, the list of opened logs, and hosts. Shared by any number of adapters, in any threads."""

    def __init__(self) -> None:
        self.logs: dict[str, StoredLog] = {}
        self.hosts: dict[str, StoredHost] = {}
        self.opened_logs: list[str] = []
        """The runs whose logs were opened or deleted, oldest first; the first has the feed position `forgotten` + 1."""
        self.forgotten = 0
        """The feed position up to which entries were removed from `opened_logs`."""
        self.lock = threading.RLock()
        """Held during any change, and while an event is published, so that events are published in order."""

    def find(self, run_id: str) -> StoredLog | None:
        """Return the log of a run, or None. Raises `InvalidRunId`."""
        return self.logs.get(validate_run_id(run_id))
