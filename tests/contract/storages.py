"""The storages that the contract suites of logs, readers, feeds and hosts run on.

A new adapter adds a class here and its name to `STORAGES`, and gets the whole of these suites: see docs/adapters.md.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Final, Protocol

import anyio
import anyio.to_thread

from shopfloor.adapters.bus import LiveBus
from shopfloor.adapters.local import LocalBus, LocalHosts, LocalLogFeed, LocalLogReader, LocalLogs
from shopfloor.adapters.memory import MemoryHosts, MemoryLogFeed, MemoryLogReader, MemoryLogs, MemoryStorage
from shopfloor.log import Entry, Masking
from shopfloor.ports import Bus, Hosts, LogFeed, LogReader, Logs
from shopfloor.record import Storage, read

PATIENCE: Final = 30.0
"""How many seconds a test waits for what has to happen."""
LOOK_SECONDS: Final = 0.02
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

    def logs(self, *, mask: Masking | None = None) -> Logs:
        """A new adapter each time, as every process has its own."""
        ...

    def lose_end(self, run_id: str, last_seq: int) -> None:
        """Have a log end with the event `last_seq`, as a power cut can."""
        ...


_HOST: Final = """
import signal, sys, time
from pathlib import Path
from shopfloor.adapters.local import LocalHost
from shopfloor.record import Storage
def interrupted(*_):
    Path(sys.argv[2]).touch()
signal.signal(signal.SIGTERM, interrupted)
with LocalHost(Storage(Path(sys.argv[1])), alone=sys.argv[3] == "True") as host:
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
        self.bus = LocalBus()
        self.reader = LocalLogReader(self._storage, bus=self.bus, look_seconds=LOOK_SECONDS)
        self.feed = LocalLogFeed(self._storage)
        self.hosts = LocalHosts(self._storage)

    def logs(self, *, mask: Masking | None = None) -> Logs:
        return LocalLogs(self._storage, bus=self.bus, mask=mask)

    @asynccontextmanager
    async def host(self, *, is_dedicated: bool) -> AsyncGenerator[HostProcess]:
        interrupted = self._folder / f"interrupted-{len(list(self._folder.iterdir()))}"
        arguments = [str(self._storage.root), str(interrupted), str(is_dedicated)]
        async with await anyio.open_process([sys.executable, "-c", _HOST, *arguments], stderr=None) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            yield _LocalProcess((await process.stdout.receive()).decode().strip(), interrupted, process)
            await process.stdin.aclose()

    def lose_end(self, run_id: str, last_seq: int) -> None:
        path = self._storage.log_path(run_id)
        kept: list[Entry] = [entry for entry in read(path) if entry.seq <= last_seq]
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
        self.bus = LiveBus()
        self.reader = MemoryLogReader(self._storage, self.bus, look_seconds=LOOK_SECONDS)
        self.feed = MemoryLogFeed(self._storage)
        self.hosts = MemoryHosts(self._storage)

    def logs(self, *, mask: Masking | None = None) -> Logs:
        return MemoryLogs(self._storage, self.bus, mask=mask)

    @asynccontextmanager
    async def host(self, *, is_dedicated: bool) -> AsyncGenerator[HostProcess]:
        process = _MemoryProcess()
        given = {"is_dedicated": is_dedicated, "interrupt": process.interrupt, "kill": process.kill}
        with self.hosts.register(**given) as process.name:
            yield process

    def lose_end(self, run_id: str, last_seq: int) -> None:
        del self._storage.logs[run_id].entries[last_seq:]


STORAGES: Final[dict[str, Callable[[Path], StorageUnderTest]]] = {"memory": MemoryOnly, "local": LocalStorage}


async def until(true: Callable[[], bool], what: str) -> None:
    """Wait until something holds."""
    with anyio.move_on_after(PATIENCE):
        while not true():
            await anyio.sleep(0.01)
        return
    raise AssertionError(f"{what} did not happen in {PATIENCE:g} s")
