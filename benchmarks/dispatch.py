"""From dispatch to outcome: workers that do nothing, against a plain queue, DBOS on SQLite and taskiq on Redis."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import perf_counter

import anyio
import anyio.from_thread

from benchmarks.harness import Result, log_progress, rate, scratch
from benchmarks.queues import peer, row_counter, taskiq_unavailable_reason, wait_for_count
from benchmarks.running_engine import NO_STEPS, NOTHING, POLL_SECONDS, RunningEngine, running_engine, write_workers
from shopfloor.log import new_run_id
from shopfloor.ports import RunOrigin, RunRequest
from shopfloor.record import Storage

LIMIT_SECONDS = 0.05
_ENDED = "SELECT sum(n) FROM run_counts WHERE status = 'completed'"
_EVENTS = 2
"""The events of a run that does nothing, its start and its end; each becomes a row of the timeline."""

Side = Callable[[], float]
"""Measures one round and returns the seconds per run."""


async def _runs(engine: RunningEngine, worker: str, count: int) -> float:
    return await engine.add(worker, count, "completed") / count


async def _starts(engine: RunningEngine, count: int) -> list[float]:
    """Return the seconds from dispatch until a follower of the log has its first event, for one run at a time."""
    reader = engine.backend.reader
    rounds_seconds: list[float] = []
    for _ in range(count):
        run_id = new_run_id()
        started_at = perf_counter()
        await engine.service.dispatch(RunRequest(worker=NOTHING, input={}), RunOrigin(run_id=run_id))
        async for batch in reader.follow(run_id, wait_for_writer=True):
            if batch:
                break
        rounds_seconds.append(perf_counter() - started_at)
        await anyio.sleep(POLL_SECONDS)
    return sorted(rounds_seconds)


def _check(storage: Storage) -> None:
    """Check that every run has its outcome and its timeline; otherwise the measurement is invalid."""
    runs = row_counter(storage.database, "SELECT count(*) FROM worker_runs")()
    wait_for_count(row_counter(storage.database, _ENDED), runs)
    rows = row_counter(storage.database, "SELECT count(*) FROM worker_events")()
    if rows != _EVENTS * runs:
        raise RuntimeError(f"{runs:,} runs have {rows:,} rows in their timelines, not {_EVENTS} each")


@contextmanager
def _start_engine(folder: Path) -> Iterator[tuple[RunningEngine, anyio.from_thread.BlockingPortal]]:
    """Run a host in a separate event loop, as `up` does."""
    storage = Storage(folder / "storage")
    workers = write_workers(folder / "workers")
    with (
        anyio.from_thread.start_blocking_portal(backend_options={"use_uvloop": True}) as portal,
        portal.wrap_async_context_manager(running_engine(storage, workers)) as engine,
    ):
        yield engine, portal
        _check(storage)


def interleave_all(sides: dict[str, Side], rounds: int) -> list[dict[str, float]]:
    """Measure more than two sides like `interleave`, and return the seconds of every side for each round."""
    names = list(sides)
    for name in names:
        sides[name]()
    rounds_seconds: list[dict[str, float]] = []
    for number in range(rounds):
        turned = names[number % len(names) :] + names[: number % len(names)]
        rounds_seconds.append({name: sides[name]() for name in turned})
        log_progress(", ".join(f"{name}: {rate(1, rounds_seconds[-1][name], 'runs')}" for name in names))
    return rounds_seconds


def run(*, quick: bool) -> list[Result]:
    runs, tasks, rounds, starts = (50, 20, 1, 10) if quick else (2_000, 200, 5, 200)
    no_taskiq = taskiq_unavailable_reason()
    if no_taskiq is not None:
        log_progress(f"without taskiq on Redis: {no_taskiq}")
    with (
        scratch() as folder,
        ExitStack() as more,
        peer("dbos", folder / "dbos") as dbos,
        peer("plain_queue", folder / "plain_queue") as plain_queue,
        _start_engine(folder) as (engine, portal),
    ):
        sides: dict[str, Side] = {
            "Python": lambda: portal.call(_runs, engine, NOTHING, runs),
            "YAML": lambda: portal.call(_runs, engine, NO_STEPS, runs),
            "DBOS": lambda: dbos(tasks) / tasks,
            "plain_queue": lambda: plain_queue(runs) / runs,
        }
        if no_taskiq is None:
            taskiq = more.enter_context(peer("taskiq", folder / "taskiq"))
            sides["taskiq"] = lambda: taskiq(runs) / runs
        rounds_seconds = interleave_all(sides, rounds)
        log_progress("one at a time")
        waits = portal.call(_starts, engine, starts)

    def against(ours: str, theirs: str, who: str, floor: float | None = None) -> Result:
        return Result(
            measure=f"{ours} worker that does nothing, dispatch to outcome, log, row and timeline",
            ours=rate(1, statistics.median(seconds[ours] for seconds in rounds_seconds), "runs"),
            against=f"{who}: {rate(1, statistics.median(seconds[theirs] for seconds in rounds_seconds), 'tasks')}",
            ratio=statistics.median(seconds[theirs] / seconds[ours] for seconds in rounds_seconds),
            floor=floor,
        )

    def against_taskiq() -> Result:
        if no_taskiq is None:
            return against("Python", "taskiq", "taskiq on Redis, list queue, results kept, 2 workers")
        return Result(measure="the same", ours="", against=f"taskiq on Redis: {no_taskiq}", ratio=None)

    def start(name: str, seconds: float) -> Result:
        return Result(
            measure=f"dispatch to run.started, one at a time, {name}",
            ours=f"{seconds * 1000:.1f} ms",
            against=f"{LIMIT_SECONDS * 1000:.0f} ms",
            ratio=LIMIT_SECONDS / seconds,
        )

    return [
        against("Python", "DBOS", "DBOS on SQLite, a workflow through its queue", floor=6.0),
        against("YAML", "DBOS", "DBOS on SQLite, a workflow through its queue"),
        against_taskiq(),
        against("Python", "plain_queue", "SQLite, UPDATE … RETURNING, one at a time, 2 workers"),
        start("p50", statistics.median(waits)),
        start("p99", waits[int(len(waits) * 0.99)]),
    ]
