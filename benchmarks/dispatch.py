"""From dispatch to outcome: workers that do nothing, against a bare queue, DBOS on SQLite and taskiq on Redis."""

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
"""Of a run that does nothing: begun and ended; each gives a row of the timeline."""

Side = Callable[[], float]
"""One round; the seconds that one run took of it."""


async def _runs(engine: RunningEngine, worker: str, count: int) -> float:
    return await engine.add(worker, count, "completed") / count


async def _starts(engine: RunningEngine, count: int) -> list[float]:
    """Seconds from dispatch until somebody who follows the log has its first event, one run at a time."""
    reader = engine.backend.reader
    found: list[float] = []
    for _ in range(count):
        run_id = new_run_id()
        begin = perf_counter()
        await engine.service.dispatch(RunRequest(worker=NOTHING, input={}), RunOrigin(run_id=run_id))
        async for batch in reader.follow(run_id, wait_for_writer=True):
            if batch:
                break
        found.append(perf_counter() - begin)
        await anyio.sleep(POLL_SECONDS)
    return sorted(found)


def _check(storage: Storage) -> None:
    """Every run has its outcome and its timeline, or nothing was measured."""
    runs = row_counter(storage.database, "SELECT count(*) FROM worker_runs")()
    wait_for_count(row_counter(storage.database, _ENDED), runs)
    rows = row_counter(storage.database, "SELECT count(*) FROM worker_events")()
    if rows != _EVENTS * runs:
        raise RuntimeError(f"{runs:,} runs have {rows:,} rows in their timelines, not {_EVENTS} each")


@contextmanager
def _at_work(folder: Path) -> Iterator[tuple[RunningEngine, anyio.from_thread.BlockingPortal]]:
    """A host in a loop of its own, as `up` has it."""
    storage = Storage(folder / "storage")
    workers = write_workers(folder / "workers")
    with (
        anyio.from_thread.start_blocking_portal(backend_options={"use_uvloop": True}) as portal,
        portal.wrap_async_context_manager(running_engine(storage, workers)) as engine,
    ):
        yield engine, portal
        _check(storage)


def in_turns(sides: dict[str, Side], rounds: int) -> list[dict[str, float]]:
    """As `interleave`, of more than two: each round gives the seconds of every side; who goes first changes."""
    names = list(sides)
    for name in names:
        sides[name]()
    found: list[dict[str, float]] = []
    for number in range(rounds):
        turned = names[number % len(names) :] + names[: number % len(names)]
        found.append({name: sides[name]() for name in turned})
        log_progress(", ".join(f"{name}: {rate(1, found[-1][name], 'runs')}" for name in names))
    return found


def run(*, quick: bool) -> list[Result]:
    runs, tasks, rounds, starts = (50, 20, 1, 10) if quick else (2_000, 200, 5, 200)
    no_taskiq = taskiq_unavailable_reason()
    if no_taskiq is not None:
        log_progress(f"without taskiq on Redis: {no_taskiq}")
    with (
        scratch() as folder,
        ExitStack() as more,
        peer("dbos", folder / "dbos") as dbos,
        peer("bare", folder / "bare") as bare,
        _at_work(folder) as (engine, portal),
    ):
        sides: dict[str, Side] = {
            "Python": lambda: portal.call(_runs, engine, NOTHING, runs),
            "YAML": lambda: portal.call(_runs, engine, NO_STEPS, runs),
            "DBOS": lambda: dbos(tasks) / tasks,
            "bare": lambda: bare(runs) / runs,
        }
        if no_taskiq is None:
            taskiq = more.enter_context(peer("taskiq", folder / "taskiq"))
            sides["taskiq"] = lambda: taskiq(runs) / runs
        found = in_turns(sides, rounds)
        log_progress("one at a time")
        waits = portal.call(_starts, engine, starts)

    def against(ours: str, theirs: str, who: str, floor: float | None = None) -> Result:
        return Result(
            measure=f"{ours} worker that does nothing, dispatch to outcome, log, row and timeline",
            ours=rate(1, statistics.median(one[ours] for one in found), "runs"),
            against=f"{who}: {rate(1, statistics.median(one[theirs] for one in found), 'tasks')}",
            ratio=statistics.median(one[theirs] / one[ours] for one in found),
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
        against("Python", "bare", "SQLite, UPDATE … RETURNING, one at a time, 2 workers"),
        start("p50", statistics.median(waits)),
        start("p99", waits[int(len(waits) * 0.99)]),
    ]
