"""A harness for tests of the engine: real workers in files, real processes, and a host that can be restarted.

The storage is in memory or in files: the engine sees no difference, and memory is faster.
"""

from __future__ import annotations

import textwrap
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    AsyncExitStack,
    asynccontextmanager,
    contextmanager,
)
from pathlib import Path
from typing import Any

import anyio
import msgspec

from shopfloor.adapters.bus import InProcessBus
from shopfloor.adapters.local import LocalHost
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
from shopfloor.engine import Ingest, RunEngine, requeue_abandoned, run_maintenance
from shopfloor.log import Entry, Event, Masking, RunCompleted, Verifier, decode
from shopfloor.ports import CallResult, RunItem, RunRequest
from shopfloor.record import Problem, Storage, read
from shopfloor.wiring import StorageBackend, WorkerSettings, local_backend, local_engine

TIMEOUT_SECONDS = 30.0


class EngineHarness(ABC):
    """The workers of a test, the logs of their runs, and a way to run an engine on both."""

    def __init__(self, storage: Storage, folder: Path) -> None:
        self.storage = storage
        """The storage of workers and processes. Only `FileEngineHarness` has its logs there too."""
        self.folder = folder
        self.plugins: tuple[Path, ...] = ()
        """Folders of plugins."""

    def add_worker(self, slug: str, yaml: str, **prompts: str) -> str:
        """Write a YAML worker; return its slug."""
        home = self.folder / slug
        (home / "prompts").mkdir(parents=True, exist_ok=True)
        (home / "worker.yaml").write_text(textwrap.dedent(yaml))
        for name, text in prompts.items():
            (home / "prompts" / f"{name}.md").write_text(text)
        return slug

    def add_python_worker(self, slug: str, source: str) -> str:
        """Write a Python worker; return its slug."""
        home = self.folder / slug
        home.mkdir(parents=True, exist_ok=True)
        (home / "worker.py").write_text(textwrap.dedent(source))
        return slug

    # The storage.

    @abstractmethod
    def run_ids(self) -> list[str]:
        """Return the runs that have a log."""

    @abstractmethod
    def lines(self, run_id: str) -> list[bytes]:
        """Return the lines of a log, with their line ends."""

    @abstractmethod
    def replace_log(self, run_id: str, lines: Sequence[bytes]) -> None:
        """Replace the lines of a log that has no writer."""

    @abstractmethod
    def delete_log(self, run_id: str) -> None:
        """Delete a log without announcing it."""

    @abstractmethod
    def drop_database(self) -> None:
        """Delete everything except the logs, as after the loss of the database."""

    def events(self, run_id: str) -> list[Event]:
        return [decode(line) for line in self.lines(run_id)]

    def verified_events(self, run_id: str) -> list[Event]:
        """Return the events of a log, after checking that it follows the rules of the format."""
        verifier = Verifier(run_id)
        assert [problem for line in self.lines(run_id) for problem in verifier.line(line)] == []
        return self.events(run_id)

    def outcome(self, run_id: str) -> RunCompleted | None:
        events = self.events(run_id)
        ended = [event.payload for event in events if isinstance(event.payload, RunCompleted)]
        assert len(ended) <= 1
        assert not ended or events[-1].payload is ended[0]
        return ended[0] if ended else None

    # The engine.

    @abstractmethod
    def backend(self, *, mask: Masking | None = None) -> AbstractAsyncContextManager[StorageBackend]:
        """Open the adapters to the storage."""

    def host(self) -> AbstractContextManager[LocalHost]:
        """Return a host that is alive inside the context."""
        return LocalHost(self.storage, dedicated=False)

    @asynccontextmanager
    async def open(
        self,
        *,
        slots: int = 4,
        wrap_adapters: Callable[[StorageBackend], StorageBackend] = lambda backend: backend,
        mask: Masking | None = None,
        **options: Any,
    ) -> AsyncGenerator[RunningEngine]:
        """Run a host inside the context. `wrap_adapters` may replace adapters by those of a test."""
        workers = WorkerSettings(folders=(self.folder,), slots=slots, plugins=self.plugins)
        async with AsyncExitStack() as opened:
            backend = wrap_adapters(await opened.enter_async_context(self.backend(mask=mask)))
            host = opened.enter_context(self.host())
            engine = await opened.enter_async_context(local_engine(backend, workers, host=host, **options))
            await backend.ingest.catch_up(everything=True)
            async with anyio.create_task_group() as tasks:
                await requeue_abandoned(engine.ports)
                tasks.start_soon(engine.scheduler.run)
                tasks.start_soon(run_maintenance, engine.ports, backend.ingest, engine.resumption, engine.plugins)
                yield RunningEngine(self, backend, engine)
                tasks.cancel_scope.cancel()
            await backend.ingest.catch_up()


class FileEngineHarness(EngineHarness):
    """Logs in files, rows and queue in SQLite."""

    def run_ids(self) -> list[str]:
        return list(self.storage.run_ids())

    def lines(self, run_id: str) -> list[bytes]:
        path = self.storage.log_path(run_id)
        return [entry.raw + b"\n" for entry in read(path, on_problem=_no_problem)] if path.exists() else []

    def replace_log(self, run_id: str, lines: Sequence[bytes]) -> None:
        self.storage.log_path(run_id).write_bytes(b"".join(lines))

    def delete_log(self, run_id: str) -> None:
        self.storage.log_path(run_id).unlink()

    def drop_database(self) -> None:
        for file in self.storage.database.parent.glob(f"{self.storage.database.name}*"):
            file.unlink()

    def backend(self, *, mask: Masking | None = None) -> AbstractAsyncContextManager[StorageBackend]:
        return local_backend(self.storage, mask=mask)


class MemoryEngineHarness(EngineHarness):
    """Everything in memory, except workers and processes."""

    def __init__(self, storage: Storage, folder: Path) -> None:
        super().__init__(storage, folder)
        self._memory = MemoryStorage()
        self._blobs = MemoryBlobs()
        self.drop_database()

    def run_ids(self) -> list[str]:
        return list(self._memory.logs)

    def lines(self, run_id: str) -> list[bytes]:
        stored = self._memory.logs.get(run_id)
        return [entry.raw + b"\n" for entry in stored.entries] if stored else []

    def replace_log(self, run_id: str, lines: Sequence[bytes]) -> None:
        events = [(decode(line), line) for line in lines]
        self._memory.logs[run_id].entries = [Entry(event.seq, event.type, line[:-1]) for event, line in events]

    def delete_log(self, run_id: str) -> None:
        del self._memory.logs[run_id]

    def drop_database(self) -> None:
        self._store = MemoryStore()
        self._queue = MemoryQueue(self._store)

    @asynccontextmanager
    async def backend(self, *, mask: Masking | None = None) -> AsyncGenerator[StorageBackend]:
        bus = InProcessBus()
        yield StorageBackend(
            storage=self.storage,
            store=self._store,
            queue=self._queue,
            hosts=MemoryHosts(self._memory),
            logs=MemoryLogs(self._memory, bus, mask=mask),
            reader=MemoryLogReader(self._memory, bus),
            bus=bus,
            audit=MemoryAudit(),
            blobs=self._blobs,
            tokens=MemoryTokens(),
            watchers=MemoryWatchers(),
            hooks=self._store.hooks,
            fleet_events=MemoryFleetEvents(self._store),
            provider_health=MemoryProviderHealth(self._store),
            host_registry=MemoryHostRegistry(self._store, self._queue),
            ingest=Ingest(MemoryLogFeed(self._memory), self._store, bus),
        )

    @contextmanager
    def host(self) -> Generator[LocalHost]:
        # Only the processes of the host are real; its liveness is registered in memory.
        with super().host() as host, MemoryHosts(self._memory).register(host.id):
            yield host


class RunningEngine:
    """A running host, with helpers to use it."""

    def __init__(self, harness: EngineHarness, backend: StorageBackend, engine: RunEngine) -> None:
        self.harness = harness
        self.backend = backend
        self.engine = engine
        self.scheduler = engine.scheduler
        self.service = engine.service

    async def dispatch(self, worker: str, **worker_input: Any) -> str:
        return await self.service.dispatch(RunRequest(worker=worker, input=worker_input))

    async def answer(self, run_id: str, call_id: str, result: Any) -> None:
        await self.service.answer(run_id, [CallResult(call_id=call_id, result=result)])

    async def cancel(self, run_id: str, reason: str = "no longer needed") -> None:
        await self.service.cancel(run_id, reason=reason)

    async def wait_until(self, condition: Callable[[], Any], description: str = "the condition") -> Any:
        """Wait until `condition` returns a true value, and return it."""
        with anyio.move_on_after(TIMEOUT_SECONDS):
            while not (value := condition()):
                await anyio.sleep(0.01)
            return value
        raise AssertionError(f"{description} did not happen in {TIMEOUT_SECONDS:g} s")

    async def wait_for_outcome(self, run_id: str) -> RunCompleted:
        return await self.wait_until(lambda: self.harness.outcome(run_id), f"the end of {run_id}")

    async def run_worker(self, worker: str, **worker_input: Any) -> Any:
        """Run a worker to its end; return its output."""
        outcome = await self.wait_for_outcome(await self.dispatch(worker, **worker_input))
        assert outcome.status == "completed", msgspec.to_builtins(outcome)
        return outcome.result

    async def wait_for_status(self, run_id: str, status: str) -> RunItem:
        """Wait until the row of a run has this status, and return the row."""
        item: RunItem | None = None
        with anyio.move_on_after(TIMEOUT_SECONDS):
            while True:
                item = await self.backend.store.get_run(run_id)
                if item is not None and item.row.status == status:
                    return item
                await anyio.sleep(0.02)
        raise AssertionError(f"{run_id} was not {status} in {TIMEOUT_SECONDS:g} s, but {item and item.row.status}")


def _no_problem(problem: Problem) -> None:
    raise AssertionError(f"the log has a problem: {problem}")
