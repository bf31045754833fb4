"""A running host for the benchmarks, assembled as `shopfloor up` does, and workers that do almost nothing."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any

import anyio
import anyio.to_thread

from benchmarks.harness import resident_bytes
from benchmarks.queues import row_counter
from shopfloor.engine import RunEngine, requeue_abandoned, run_maintenance
from shopfloor.limits import HOST_SLOTS
from shopfloor.ports import RunRequest
from shopfloor.record import Storage
from shopfloor.wiring import StorageBackend, WorkerSettings, local_backend, local_engine

NOTHING = "does-nothing"
"""A Python worker that returns at once."""
NO_STEPS = "has-no-steps"
"""A YAML worker that returns at once."""
ASKS = "asks"
"""A worker that waits for an answer."""
SLEEPS = "sleeps"
"""A worker that stays inside a step for a number of seconds."""

_PYTHON = {
    NOTHING: "async def does_nothing(run: Run):\n    return None\n",
    ASKS: 'async def asks(run: Run):\n    return await run.ask("Shall we?", options=["yes", "no"])\n',
    SLEEPS: (
        "async def sleeps(run: Run, SECONDS: float = 600):\n"
        '    return await run.step("sleep", lambda: anyio.sleep(SECONDS))\n'
    ),
}
# A YAML worker needs a step. This step is never executed, so the log has the same two events as the Python worker's.
_YAML = "description: Does nothing.\nsteps: {Never: {block: terminal, when: {value: 1, is: 2}}}\n"
DISPATCHERS = 8
POLL_SECONDS = 0.02
_TIMEOUT_SECONDS = 900.0


def write_workers(folder: Path) -> Path:
    for slug, source in _PYTHON.items():
        (folder / slug).mkdir(parents=True, exist_ok=True)
        head = "import anyio\n\nfrom shopfloor import Run, worker\n\n\n@worker\n"
        (folder / slug / "worker.py").write_text(head + source)
    (folder / NO_STEPS).mkdir(parents=True, exist_ok=True)
    (folder / NO_STEPS / "worker.yaml").write_text(_YAML)
    return folder


class RunningEngine:
    """A running host, with its backend, scheduler and service."""

    def __init__(self, backend: StorageBackend, engine: RunEngine) -> None:
        self.backend = backend
        self.scheduler = engine.scheduler
        self.service = engine.service

    async def _dispatch_many(self, worker: str, count: int, worker_input: dict[str, Any]) -> None:
        left = iter(range(count))

        async def dispatcher() -> None:
            for _ in left:
                await self.service.dispatch(RunRequest(worker=worker, input=worker_input))

        async with anyio.create_task_group() as tasks:
            for _ in range(DISPATCHERS):
                tasks.start_soon(dispatcher)

    async def add(self, worker: str, count: int, status: str, **worker_input: Any) -> float:
        """Dispatch `count` runs and wait until a list shows them with that status, with rows and timelines stored.

        Returns the seconds.
        """
        listed = row_counter(self.backend.storage.database, f"SELECT sum(n) FROM run_counts WHERE status = '{status}'")
        wanted = listed() + count
        started_at = perf_counter()
        await self._dispatch_many(worker, count, worker_input)
        with anyio.fail_after(_TIMEOUT_SECONDS):
            while listed() < wanted:  # noqa: ASYNC110 - reads the database directly, so that polling costs the host nothing
                await anyio.sleep(POLL_SECONDS)
        return perf_counter() - started_at


HostCommand = Callable[[int], Awaitable[float]]


async def execute_commands(commands: dict[str, HostCommand]) -> None:
    """Execute the commands of `host_process`: `rss`, or one of these."""
    while line := await anyio.to_thread.run_sync(sys.stdin.readline):
        name, count = line.split()
        print(resident_bytes() if name == "rss" else await commands[name](int(count)), flush=True)


@contextmanager
def host_process(module: str, *words: str) -> Iterator[Callable[[str, int], float]]:
    """Start a host process and yield a function that executes a command in it. The host stops with the block."""
    command = [sys.executable, "-m", module, *words]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    stdin, stdout = process.stdin, process.stdout
    if stdin is None or stdout is None:
        raise RuntimeError("no pipes")

    def execute(name: str, count: int) -> float:
        print(name, count, file=stdin, flush=True)
        answer = stdout.readline()
        if not answer:
            raise RuntimeError(f"the host ended early with exit code {process.wait()}")
        return float(answer)

    try:
        yield execute
    finally:
        stdin.close()
        process.wait(120)


@asynccontextmanager
async def running_engine(
    storage: Storage, workers: Path, *, plugins: Path | None = None, slots: int = HOST_SLOTS
) -> AsyncGenerator[RunningEngine]:
    """Run everything that `shopfloor up` runs, except the server."""
    settings = WorkerSettings(folders=(workers,), plugins=(plugins,) if plugins else (), slots=slots)
    async with local_backend(storage) as backend, local_engine(backend, settings) as engine:
        await backend.ingest.catch_up(everything=True)
        await requeue_abandoned(engine.ports)
        async with anyio.create_task_group() as tasks:

            async def maintenance() -> None:
                await run_maintenance(engine.ports, backend.ingest, engine.resumption, engine.plugins)

            tasks.start_soon(engine.scheduler.run)
            tasks.start_soon(maintenance)
            gc.freeze()
            yield RunningEngine(backend, engine)
            tasks.cancel_scope.cancel()
