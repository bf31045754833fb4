"""The storages that the contract suites run on.

A new adapter adds a class here and its name to `STORAGES`, and gets all of the suites: see docs/adapters.md.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Final, Protocol

import anyio
import anyio.to_thread
from tests.sample_events import ROOT, started

from shopfloor.adapters.bus import InProcessBus
from shopfloor.adapters.local import (
    LocalAudit,
    LocalBus,
    LocalHosts,
    LocalLogFeed,
    LocalLogReader,
    LocalLogs,
    LocalTokens,
)
from shopfloor.adapters.memory import (
    MemoryAudit,
    MemoryHosts,
    MemoryLogFeed,
    MemoryLogReader,
    MemoryLogs,
    MemoryQueue,
    MemoryStorage,
    MemoryStore,
    MemoryTokens,
    MemoryWatchers,
)
from shopfloor.adapters.sqlite import SqliteQueue, SqliteStore
from shopfloor.log import Entry, Masking
from shopfloor.ports import Audit, Bus, Hosts, LogFeed, LogReader, Logs, Queue, Store, Tokens, Watchers
from shopfloor.record import Storage, read

TIMEOUT_SECONDS: Final = 30.0
"""How many seconds a test waits for what has to happen."""
POLL_INTERVAL_SECONDS: Final = 0.02
"""How soon a follower looks again that nobody has woken: soon, so that no test waits for it."""


class HostProcess(Protocol):
    """A host that a test has started."""

    @property
    def name(self) -> str: ...

    @property
    def is_interrupted(self) -> bool:
        """Whether it was asked to cancel what it executes."""
        ...

    @property
    def is_killed(self) -> bool: ...


class HostsUnderTest(Protocol):
    """Hosts, and a way to start one."""

    @property
    def hosts(self) -> Hosts: ...

    def host(self, *, is_dedicated: bool) -> AbstractAsyncContextManager[HostProcess]:
        """A host that is alive until the context is left."""
        ...


class StorageUnderTest(HostsUnderTest, Protocol):
    """One storage, and adapters to it."""

    @property
    def bus(self) -> Bus: ...

    @property
    def reader(self) -> LogReader: ...

    @property
    def feed(self) -> LogFeed: ...

    @property
    def audit(self) -> Audit: ...

    def logs(self, *, mask: Masking | None = None, bus: Bus | None = None) -> Logs:
        """A new adapter each time, as every process has its own; with `bus` it publishes there."""
        ...

    def tokens(self) -> Tokens:
        """A new adapter each time, where there can be more than one."""
        ...

    def watchers(self) -> Watchers: ...

    def rows(self) -> AbstractAsyncContextManager[tuple[Store, Queue]]:
        """The store and the queue, open until the context is left."""
        ...

    # What no port does.

    def stored(self, run_id: str) -> list[Entry]:
        """The events that the authority for the log has at this moment. Called from any thread, and never waits."""
        ...

    def audit_entries(self) -> list[dict[str, Any]]:
        """The entries of the audit log, oldest first."""
        ...

    async def crash_writer(self, run_id: str) -> None:
        """Have a process write the first event of a log, and be killed while the log is open."""
        ...

    def truncate_log(self, run_id: str, last_seq: int) -> None:
        """Have a log end with the event `last_seq`, as a power cut can."""
        ...


_WRITER: Final = """
import os, signal, sys
from pathlib import Path
import anyio
from shopfloor.adapters.local import LocalLogs
from shopfloor.record import Storage
from tests.sample_events import started
async def main():
    async with LocalLogs(Storage(Path(sys.argv[1]))).open(sys.argv[2]) as log:
        await log.append(started())
        os.kill(os.getpid(), signal.SIGKILL)
anyio.run(main)
"""

_HOST: Final = """
import signal, sys, time
from pathlib import Path
from shopfloor.adapters.local import LocalHost
from shopfloor.record import Storage
def interrupted(*_):
    Path(sys.argv[2]).touch()
signal.signal(signal.SIGTERM, interrupted)
with LocalHost(Storage(Path(sys.argv[1])), dedicated=sys.argv[3] == "True") as host:
    print(host.id, flush=True)
    sys.stdin.read()
"""


class _LocalProcess:
    def __init__(self, name: str, interrupted: Path, process: anyio.abc.Process) -> None:
        self.name = name
        self._interrupted = interrupted
        self._process = process

    @property
    def is_interrupted(self) -> bool:
        return self._interrupted.exists()

    @property
    def is_killed(self) -> bool:
        return self._process.returncode == -signal.SIGKILL


class LocalStorage:
    """Files of this machine."""

    def __init__(self, folder: Path) -> None:
        self._storage = Storage(folder / "storage")
        self._folder = folder
        self.bus = LocalBus(self._storage)
        self.reader = LocalLogReader(self._storage, bus=self.bus, poll_seconds=POLL_INTERVAL_SECONDS)
        self.feed = LocalLogFeed(self._storage)
        self.hosts = LocalHosts(self._storage)
        self.audit = LocalAudit(self._storage.audit)

    def logs(self, *, mask: Masking | None = None, bus: Bus | None = None) -> Logs:
        return LocalLogs(self._storage, bus=bus or self.bus, mask=mask)

    def tokens(self) -> Tokens:
        return LocalTokens(self._storage.tokens)

    def watchers(self) -> Watchers:
        return MemoryWatchers()

    @asynccontextmanager
    async def rows(self) -> AsyncGenerator[tuple[Store, Queue]]:
        store = await SqliteStore.open(self._storage.database)
        yield store, SqliteQueue(store)
        await store.close()

    def stored(self, run_id: str) -> list[Entry]:
        return list(read(self._storage.log_path(run_id)))

    def audit_entries(self) -> list[dict[str, Any]]:
        return list(self.audit.read())

    async def crash_writer(self, run_id: str) -> None:
        command = [sys.executable, "-c", _WRITER, str(self._storage.root), run_id]
        killed = await anyio.run_process(command, check=False, stderr=None, cwd=ROOT)
        assert killed.returncode == -signal.SIGKILL

    @asynccontextmanager
    async def host(self, *, is_dedicated: bool) -> AsyncGenerator[HostProcess]:
        interrupted = self._folder / f"interrupted-{len(list(self._folder.iterdir()))}"
        arguments = [str(self._storage.root), str(interrupted), str(is_dedicated)]
        async with await anyio.open_process([sys.executable, "-c", _HOST, *arguments], stderr=None) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            yield _LocalProcess((await process.stdout.receive()).decode().strip(), interrupted, process)
            await process.stdin.aclose()

    def truncate_log(self, run_id: str, last_seq: int) -> None:
        path = self._storage.log_path(run_id)
        kept = [entry for entry in self.stored(run_id) if entry.seq <= last_seq]
        os.truncate(path, sum(len(entry.raw) + 1 for entry in kept))


class _MemoryProcess:
    def __init__(self) -> None:
        self.name = ""
        self.is_interrupted = False
        self.is_killed = False

    def interrupt(self) -> None:
        self.is_interrupted = True

    def kill(self) -> None:
        self.is_killed = True


class MemoryOnly:
    """The memory of this process."""

    def __init__(self, folder: Path) -> None:
        self._storage = MemoryStorage()
        self.bus = InProcessBus()
        self.reader = MemoryLogReader(self._storage, self.bus, poll_seconds=POLL_INTERVAL_SECONDS)
        self.feed = MemoryLogFeed(self._storage)
        self.hosts = MemoryHosts(self._storage)
        self.audit = MemoryAudit()
        self._tokens = MemoryTokens()

    def logs(self, *, mask: Masking | None = None, bus: Bus | None = None) -> Logs:
        return MemoryLogs(self._storage, bus or self.bus, mask=mask)

    def tokens(self) -> Tokens:
        return self._tokens

    def watchers(self) -> Watchers:
        return MemoryWatchers()

    @asynccontextmanager
    async def rows(self) -> AsyncGenerator[tuple[Store, Queue]]:
        store = MemoryStore()
        yield store, MemoryQueue(store)

    def stored(self, run_id: str) -> list[Entry]:
        return list(self._storage.logs[run_id].entries)

    def audit_entries(self) -> list[dict[str, Any]]:
        return list(self.audit.read())

    async def crash_writer(self, run_id: str) -> None:
        # No process outlives its memory: at most a task ends with the log open.
        async with self.logs().open(run_id) as log:
            await log.append(started())

    @asynccontextmanager
    async def host(self, *, is_dedicated: bool) -> AsyncGenerator[HostProcess]:
        process = _MemoryProcess()
        given = {"is_dedicated": is_dedicated, "interrupt": process.interrupt, "kill": process.kill}
        with self.hosts.register(**given) as process.name:
            yield process

    def truncate_log(self, run_id: str, last_seq: int) -> None:
        del self._storage.logs[run_id].entries[last_seq:]


STORAGES: Final[dict[str, Callable[[Path], StorageUnderTest]]] = {"memory": MemoryOnly, "local": LocalStorage}


async def until(true: Callable[[], bool], what: str) -> None:
    """Wait until something holds."""
    with anyio.move_on_after(TIMEOUT_SECONDS):
        while not true():
            await anyio.sleep(0.01)
        return
    raise AssertionError(f"{what} did not happen in {TIMEOUT_SECONDS:g} s")
