"""Waiting runs: their memory, the time to answer one among many, and a restart with all of them.

`python -m benchmarks.waiting_runs <folder> <slots>` is a host in a separate process: it reads commands, and prints the
result of each on one line.
"""

from __future__ import annotations

import statistics
import sys
from pathlib import Path
from time import perf_counter

import anyio

from benchmarks.harness import Result, log_progress, rate, resident_bytes, scratch
from benchmarks.running_engine import (
    ASKS,
    SLEEPS,
    HostCommand,
    RunningEngine,
    execute_commands,
    host_process,
    running_engine,
    write_workers,
)
from benchmarks.startup import first_answer, up
from shopfloor.limits import HOST_SLOTS
from shopfloor.log import ToolCall, decode
from shopfloor.ports import CallResult, RunFilter
from shopfloor.record import Storage

_MODULE = "benchmarks.waiting_runs"
_TASKS = 10_000
_ANSWER_LIMIT_SECONDS = 0.05


async def _answer(engine: RunningEngine, count: int) -> float:
    """Answer waiting runs one after another, the oldest first; return the median seconds from answer to outcome."""
    reader = engine.backend.reader
    page = await engine.backend.store.list_runs(RunFilter(statuses=("waiting",)), limit=10_000)
    found: list[float] = []
    for item in page.items[::-1][:count]:
        entries = await reader.page(item.row.id, limit=100) or []
        calls = [decode(entry.raw).payload for entry in entries]
        call_id = next(call.call_id for call in calls if isinstance(call, ToolCall))
        started_at = perf_counter()
        await engine.service.answer(item.row.id, [CallResult(call_id=call_id, result="yes")])
        async for _ in reader.follow(item.row.id, after=len(entries), wait_for_writer=True):
            pass
        found.append(perf_counter() - started_at)
    return statistics.median(found)


async def _host(folder: Path, slots: int) -> None:
    async with running_engine(Storage(folder / "storage"), write_workers(folder / "workers"), slots=slots) as engine:
        commands: dict[str, HostCommand] = {
            "wait": lambda count: engine.add(ASKS, count, "waiting"),
            "sleep": lambda count: engine.add(SLEEPS, count, "running"),
            "answer": lambda count: _answer(engine, count),
        }
        await execute_commands(commands)


async def _bytes_per_task() -> float:
    """Return the memory of a plain task that waits."""
    never, bytes_per_task = anyio.Event(), 0.0
    before = resident_bytes()
    async with anyio.create_task_group() as tasks:
        for _ in range(_TASKS):
            tasks.start_soon(never.wait)
        await anyio.sleep(0.1)
        bytes_per_task = (resident_bytes() - before) / _TASKS
        tasks.cancel_scope.cancel()
    return bytes_per_task


def run(*, quick: bool) -> list[Result]:
    waiting, running, answers, restarts = (200, 20, 3, 1) if quick else (10_000, 200, 21, 5)
    task = anyio.run(_bytes_per_task)
    with scratch() as folder:
        log_progress(f"{running} runs inside a step")
        with host_process(_MODULE, str(folder / "running"), str(running + HOST_SLOTS)) as execute:
            execute("sleep", HOST_SLOTS)
            before = execute("rss", 0)
            execute("sleep", running)
            per_running = (execute("rss", 0) - before) / running
        log_progress(f"{waiting:,} runs that wait")
        with host_process(_MODULE, str(folder / "waiting"), str(HOST_SLOTS)) as execute:
            execute("wait", 200)
            before = execute("rss", 0)
            seconds = execute("wait", waiting)
            per_waiting = (execute("rss", 0) - before) / waiting
            log_progress("answers")
            answer = execute("answer", answers)
        log_progress("restarts")
        storage, empty = folder / "waiting" / "storage", folder / "empty"
        first_answer(up(empty))
        pairs = [(first_answer(up(storage)), first_answer(up(empty))) for _ in range(restarts)]
    return [
        _memory("a run inside a step", per_running, task),
        _memory(f"a run that waits, {waiting:,} of them", per_waiting, task),
        Result(
            measure=f"{waiting:,} runs dispatched, begun and waiting ({seconds:.0f} s)",
            ours=rate(waiting, seconds, "runs"),
            against="100 runs/s",
            ratio=waiting / seconds / 100,
        ),
        Result(
            measure=f"one of {waiting:,} is answered: order to outcome, p50",
            ours=f"{answer * 1000:.1f} ms",
            against=f"{_ANSWER_LIMIT_SECONDS * 1000:.0f} ms",
            ratio=_ANSWER_LIMIT_SECONDS / answer,
        ),
        Result(
            measure=f"`shopfloor up` to its first answer, {waiting:,} runs wait, p50",
            ours=f"{statistics.median(pair[0] for pair in pairs):.2f} s",
            against=f"the same with none: {statistics.median(pair[1] for pair in pairs):.2f} s",
            ratio=statistics.median(pair[1] / pair[0] for pair in pairs),
        ),
    ]


def _memory(of: str, ours: float, task: float) -> Result:
    return Result(
        measure=f"memory of {of}",
        ours=f"{ours / 1024:.1f} KB",
        against=f"a task that waits: {task / 1024:.1f} KB",
        ratio=task / max(ours, 1.0),
    )


if __name__ == "__main__":
    anyio.run(_host, Path(sys.argv[1]), int(sys.argv[2]), backend_options={"use_uvloop": True})
