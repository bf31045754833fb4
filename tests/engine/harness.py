"""A shop floor for tests: real workers in files, real processes, and a host that can be stopped and started again.

What it records is kept in memory or in files: the engine cannot tell them apart, and memory is faster.
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
from shopfloor.engine import Ingest, RunEngine, requeue_abandoned, run_maintenance
from shopfloor.log import Entry, Event, Masking, RunCompleted, Verifier, decode
from shopfloor.ports import CallResult, RunItem, RunRequest
from shopfloor.record import Problem, Storage, read
from shopfloor.wiring import StorageBackend, WorkerSettings, local_backend, local_engine

TIMEOUT_SECONDS = 30.0


class EngineHarness(ABC):
    """Where the tests' workers live, and what their runs left."""

    def __init__(self, storage: Storage, folder: Path) -> None:
        self.storage = storage
        """Where workers and processes are looked for. Whether the logs are in it is up to the kind of floor."""
        self.folder = folder

    def worker(self, slug: str, yaml: str, **prompts: str) -> str:
        """Writes a worker; gives its slug."""
        home = self.folder / slug
        (home / "prompts").mkdir(parents=True, exist_ok=True)
        (home / "worker.yaml").write_text(textwrap.dedent(yaml))
        for name, text in prompts.items():
            (home / "prompts" / f"{name}.md").write_text(text)
        return slug

    def python(self, slug: str, source: str) -> str:
        """Writes a worker in Python; gives its slug."""
        home = self.folder / slug
        home.mkdir(parents=True, exist_ok=True)
        (home / "worker.py").write_text(textwrap.dedent(source))
        return slug

    # What is kept.

    @abstractmethod
    def run_ids(self) -> list[str]:
        """The runs that have a log."""

    @abstractmethod
    def lines(self, run_id: str) -> list[bytes]:
        """The lines of a log, with their ends."""

    @abstractmethod
    def replace(self, run_id: str, lines: Sequence[bytes]) -> None:
        """Have a log that nobody writes hold these lines, and no others."""

    @abstractmethod
    def delete_log(self, run_id: str) -> None:
        """Have a log be gone, and nobody told."""

    @abstractmethod
    def drop_database(self) -> None:
        """Have all be gone that is not a log, as after the loss of a database."""

    def events(self, run_id: str) -> list[Event]:
        return [decode(line) for line in self.lines(run_id)]

    def verified(self, run_id: str) -> list[Event]:
        """The events of a log that keeps the rules of the format."""
        verifier = Verifier(run_id)
        assert [problem for line in self.lines(run_id) for problem in verifier.line(line)] == []
        return self.events(run_id)

    def outcome(self, run_id: str) -> RunCompleted | None:
        events = self.events(run_id)
        ended = [event.payload for event in events if isinstance(event.payload, RunCompleted)]
        assert len(ended) <= 1
        assert not ended or events[-1].payload is ended[0]
        return ended[0] if ended else None

    # Who works on it.

    @abstractmethod
    def backend(self, *, mask: Masking | None = None) -> AbstractAsyncContextManager[StorageBackend]:
        """Adapters to what is kept."""

    def host(self) -> AbstractContextManager[LocalHost]:
        """A host, alive until the context is left."""
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
        """A host at work, until the context is left; `wrap_adapters` puts adapters of a test around ours."""
        workers = WorkerSettings(folders=(self.folder,), slots=slots)
        async with AsyncExitStack() as opened:
            backend = wrap_adapters(await opened.enter_async_context(self.backend(mask=mask)))
            host = opened.enter_context(self.host())
            engine = await opened.enter_async_context(local_engine(backend, workers, host=host, **options))
            await backend.ingest.catch_up(everything=True)
            async with anyio.create_task_group() as tasks:
                await requeue_abandoned(engine.ports)
                tasks.start_soon(engine.scheduler.run)
                tasks.start_soon(run_maintenance, engine.ports, backend.ingest, engine.resumption)
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

    def replace(self, run_id: str, lines: Sequence[bytes]) -> None:
        self.storage.log_path(run_id).write_bytes(b"".join(lines))

    def delete_log(self, run_id: str) -> None:
        self.storage.log_path(run_id).unlink()

    def drop_database(self) -> None:
        for file in self.storage.database.parent.glob(f"{self.storage.database.name}*"):
            file.unlink()

    def backend(self, *, mask: Masking | None = None) -> AbstractAsyncContextManager[StorageBackend]:
        return local_backend(self.storage, mask=mask)


class MemoryEngineHarness(EngineHarness):
    """All in memory, but for workers and processes."""

    def __init__(self, storage: Storage, folder: Path) -> None:
        super().__init__(storage, folder)
        self._kept = MemoryStorage()
        self.drop_database()

    def run_ids(self) -> list[str]:
        return list(self._kept.logs)

    def lines(self, run_id: str) -> list[bytes]:
        stored = self._kept.logs.get(run_id)
        return [entry.raw + b"\n" for entry in stored.entries] if stored else []

    def replace(self, run_id: str, lines: Sequence[bytes]) -> None:
        events = [(decode(line), line) for line in lines]
        self._kept.logs[run_id].entries = [Entry(event.seq, event.type, line[:-1]) for event, line in events]

    def delete_log(self, run_id: str) -> None:
        del self._kept.logs[run_id]

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
            hosts=MemoryHosts(self._kept),
            logs=MemoryLogs(self._kept, bus, mask=mask),
            reader=MemoryLogReader(self._kept, bus),
            bus=bus,
            audit=MemoryAudit(),
            tokens=MemoryTokens(),
            watchers=MemoryWatchers(),
            ingest=Ingest(MemoryLogFeed(self._kept), self._store, bus),
        )

    @contextmanager
    def host(self) -> Generator[LocalHost]:
        # Of the host only its processes are real; whether it is alive is asked of memory, too.
        with super().host() as host, MemoryHosts(self._kept).register(host.id):
            yield host


class RunningEngine:
    """A host at work, and what can be asked of it."""

    def __init__(self, harness: EngineHarness, backend: StorageBackend, engine: RunEngine) -> None:
        self.harness = harness
        self.backend = backend
        self.scheduler = engine.scheduler
        self.service = engine.service

    async def dispatch(self, worker: str, **given: Any) -> str:
        return await self.service.dispatch(RunRequest(worker=worker, input=given))

    async def answer(self, run_id: str, call_id: str, result: Any) -> None:
        await self.service.answer(run_id, [CallResult(call_id=call_id, result=result)])

    async def cancel(self, run_id: str, reason: str = "told to") -> None:
        await self.service.cancel(run_id, reason=reason)

    async def wait_until(self, true: Callable[[], Any], what: str = "it") -> Any:
        """Waits until `true` gives something; that."""
        with anyio.move_on_after(TIMEOUT_SECONDS):
            while not (found := true()):
                await anyio.sleep(0.01)
            return found
        raise AssertionError(f"{what} did not happen in {TIMEOUT_SECONDS:g} s")

    async def ended(self, run_id: str) -> RunCompleted:
        return await self.wait_until(lambda: self.harness.outcome(run_id), f"the end of {run_id}")

    async def result(self, worker: str, **given: Any) -> Any:
        """Runs a worker to its end; what it gave."""
        outcome = await self.ended(await self.dispatch(worker, **given))
        assert outcome.status == "completed", msgspec.to_builtins(outcome)
        return outcome.result

    async def row(self, run_id: str, status: str) -> RunItem:
        """The run as lists show it, once it has that status."""
        item: RunItem | None = None
        with anyio.move_on_after(TIMEOUT_SECONDS):
            while True:
                item = await self.backend.store.get_run(run_id)
                if item is not None and item.row.status == status:
                    return item
                await anyio.sleep(0.02)
        raise AssertionError(f"{run_id} was not {status} in {TIMEOUT_SECONDS:g} s, but {item and item.row.status}")


def _no_problem(problem: Problem) -> None:
    raise AssertionError(f"the log is not whole: {problem}")
