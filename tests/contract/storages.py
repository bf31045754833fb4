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
from shopfloor.adapters.limits import FLEET_EVENTS_KEPT
from shopfloor.adapters.local import (
    LocalAudit,
    LocalBlobs,
    LocalBus,
    LocalHosts,
    LocalLogFeed,
    LocalLogReader,
    LocalLogs,
    LocalTokens,
)
from shopfloor.adapters.memory import (
    MemoryAudit,
    MemoryBlobs,
    MemoryFleetEvents,
    MemoryHostRegistry,
    MemoryHosts,
    MemoryLogFeed,
    MemoryLogReader,
    MemoryLogs,
    MemoryProviderHealth,
    MemoryQueue,
    MemoryStorage,
    MemoryStore,
    MemoryTokens,
    MemoryWatchers,
)
from shopfloor.adapters.sqlite import (
    SqliteFleetEvents,
    SqliteHostRegistry,
    SqliteProviderHealth,
    SqliteQueue,
    SqliteStore,
)
from shopfloor.log import Entry, Masking
from shopfloor.ports import (
    Audit,
    Blobs,
    Bus,
    FleetEvents,
    HostRegistry,
    Hosts,
    LogFeed,
    LogReader,
    Logs,
    ProviderHealth,
    Queue,
    Store,
    Tokens,
    Watchers,
)
from shopfloor.record import Storage, read

TIMEOUT_SECONDS: Final = 30.0
"""How many seconds a test waits for an expected event."""
POLL_INTERVAL_SECONDS: Final = 0.02
"""The fallback polling interval of followers: short, so that no test waits for it."""


class HostProcess(Protocol):
    """A host started by a test."""

    @property
    def name(self) -> str: ...

    @property
    def is_interrupted(self) -> bool:
        """Whether the host was asked to cancel its runs."""
        ...

    @property
    def is_killed(self) -> bool: ...


class HostsUnderTest(Protocol):
    """A hosts adapter, and a way to start hosts."""

    @property
    def hosts(self) -> Hosts: ...

    def host(self, *, is_dedicated: bool) -> AbstractAsyncContextManager[HostProcess]:
        """Start a host that is alive until the context exits."""
        ...


class StorageUnderTest(HostsUnderTest, Protocol):
    """One storage and its adapters."""

    @property
    def bus(self) -> Bus: ...

    @property
    def reader(self) -> LogReader: ...

    @property
    def feed(self) -> LogFeed: ...

    @property
    def audit(self) -> Audit: ...

    @property
    def blobs(self) -> Blobs: ...

    def logs(self, *, mask: Masking | None = None, bus: Bus | None = None) -> Logs:
        """Return a new adapter, as every process has its own; it publishes on `bus` if given."""
        ...

    def tokens(self) -> Tokens:
        """Return a new adapter, if the storage supports several."""
        ...

    def watchers(self) -> Watchers: ...

    def rows(self) -> AbstractAsyncContextManager[tuple[Store, Queue]]:
        """Open the store and the queue until the context exits."""
        ...

    def fleet(self, *, kept: int = FLEET_EVENTS_KEPT) -> AbstractAsyncContextManager[tuple[Store, FleetEvents]]:
        """Open the store and its fleet events, of which `kept` are kept, until the context exits."""
        ...

    def providers(self) -> AbstractAsyncContextManager[tuple[Store, Queue, FleetEvents, ProviderHealth]]:
        """Open the records of providers and what they are stored with, until the context exits."""
        ...

    def registry(self) -> AbstractAsyncContextManager[tuple[Store, Queue, FleetEvents, HostRegistry]]:
        """Open the records of hosts and what they are stored with, until the context exits."""
        ...

    # Operations outside the ports.

    def stored(self, run_id: str) -> list[Entry]:
        """Return the events stored at this moment. Callable from any thread; never waits."""
        ...

    def audit_entries(self) -> list[dict[str, Any]]:
        """Return the entries of the audit log, oldest first."""
        ...

    async def crash_writer(self, run_id: str) -> None:
        """Write the first event of a log in a process that is killed while the log is open."""
        ...

    def truncate_log(self, run_id: str, last_seq: int) -> None:
        """Truncate a log after the event `last_seq`, as a power cut can."""
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
    """Storage in files of this machine."""

    def __init__(self, folder: Path) -> None:
        self._storage = Storage(folder / "storage")
        self._folder = folder
        self.bus = LocalBus(self._storage)
        self.reader = LocalLogReader(self._storage, bus=self.bus, poll_seconds=POLL_INTERVAL_SECONDS)
        self.feed = LocalLogFeed(self._storage)
        self.hosts = LocalHosts(self._storage)
        self.audit = LocalAudit(self._storage.audit)
        self.blobs = LocalBlobs(self._storage.blobs)

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

    @asynccontextmanager
    async def fleet(self, *, kept: int = FLEET_EVENTS_KEPT) -> AsyncGenerator[tuple[Store, FleetEvents]]:
        store = await SqliteStore.open(self._storage.database, fleet_events_kept=kept)
        yield store, SqliteFleetEvents(store)
        await store.close()

    @asynccontextmanager
    async def providers(self) -> AsyncGenerator[tuple[Store, Queue, FleetEvents, ProviderHealth]]:
        store = await SqliteStore.open(self._storage.database)
        yield store, SqliteQueue(store), SqliteFleetEvents(store), SqliteProviderHealth(store)
        await store.close()

    @asynccontextmanager
    async def registry(self) -> AsyncGenerator[tuple[Store, Queue, FleetEvents, HostRegistry]]:
        store = await SqliteStore.open(self._storage.database)
        yield store, SqliteQueue(store), SqliteFleetEvents(store), SqliteHostRegistry(store)
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
        remaining = [entry for entry in self.stored(run_id) if entry.seq <= last_seq]
        os.truncate(path, sum(len(entry.raw) + 1 for entry in remaining))


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
    """Storage in the memory of this process."""

    def __init__(self, folder: Path) -> None:
        self._storage = MemoryStorage()
        self.bus = InProcessBus()
        self.reader = MemoryLogReader(self._storage, self.bus, poll_seconds=POLL_INTERVAL_SECONDS)
        self.feed = MemoryLogFeed(self._storage)
        self.hosts = MemoryHosts(self._storage)
        self.audit = MemoryAudit()
        self.blobs = MemoryBlobs()
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

    @asynccontextmanager
    async def fleet(self, *, kept: int = FLEET_EVENTS_KEPT) -> AsyncGenerator[tuple[Store, FleetEvents]]:
        store = MemoryStore(fleet_events_kept=kept)
        yield store, MemoryFleetEvents(store)

    @asynccontextmanager
    async def providers(self) -> AsyncGenerator[tuple[Store, Queue, FleetEvents, ProviderHealth]]:
        store = MemoryStore()
        yield store, MemoryQueue(store), MemoryFleetEvents(store), MemoryProviderHealth(store)

    @asynccontextmanager
    async def registry(self) -> AsyncGenerator[tuple[Store, Queue, FleetEvents, HostRegistry]]:
        store = MemoryStore()
        queue = MemoryQueue(store)
        yield store, queue, MemoryFleetEvents(store), MemoryHostRegistry(store, queue)

    def stored(self, run_id: str) -> list[Entry]:
        return list(self._storage.logs[run_id].entries)

    def audit_entries(self) -> list[dict[str, Any]]:
        return list(self.audit.read())

    async def crash_writer(self, run_id: str) -> None:
        # Memory is lost with its process, so only a task can end with the log open.
        async with self.logs().open(run_id) as log:
            await log.append(started())

    @asynccontextmanager
    async def host(self, *, is_dedicated: bool) -> AsyncGenerator[HostProcess]:
        process = _MemoryProcess()
        host_options = {"is_dedicated": is_dedicated, "interrupt": process.interrupt, "kill": process.kill}
        with self.hosts.register(**host_options) as process.name:
            yield process

    def truncate_log(self, run_id: str, last_seq: int) -> None:
        del self._storage.logs[run_id].entries[last_seq:]


STORAGES: Final[dict[str, Callable[[Path], StorageUnderTest]]] = {"memory": MemoryOnly, "local": LocalStorage}


async def until(true: Callable[[], bool], what: str) -> None:
    """Wait until a condition holds."""
    with anyio.move_on_after(TIMEOUT_SECONDS):
        while not true():
            await anyio.sleep(0.01)
        return
    raise AssertionError(f"{what} did not happen in {TIMEOUT_SECONDS:g} s")
