"""Claims from the queue: with 100,000 queued runs, and behind 100,000 runs that the host cannot execute."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from time import perf_counter

import anyio

from benchmarks.harness import Result, log_progress, scratch
from shopfloor.adapters.sqlite import SqliteQueue, SqliteStore
from shopfloor.log import Requirements, RunStarted, new_run_id, now
from shopfloor.ports import HostOffer, QueuedRun

_FEW = 100
_CLAIMS = 50
_HOST = "host"
_OFFER = HostOffer(labels={"zone": "a"}, providers=frozenset({"codex"}))
_REQUIRED = (None, Requirements(labels={"zone": "a"}), Requirements(providers=["codex"]))
"""What claimable runs require: three groups, from whose heads each claim takes the oldest."""
_ELSEWHERE = Requirements(labels={"gpu": "yes"})
_FLOOR = 0.8


def _queued_run(number: int, required: Requirements | None) -> QueuedRun:
    run_id, definition = new_run_id(), {"slug": "bench", "steps": {"Work": {"block": "command", "command": "true"}}}
    started = RunStarted(
        name="bench",
        kind="worker",
        attempt=0,
        host="",
        task=f"task {number}",
        root_run_id=run_id,
        queued_at=now(),
        definition=definition,
        priority=number % 3,
        requires=required,
    )
    return QueuedRun(run_id=run_id, started=started)


async def _fill(queue: SqliteQueue, count: int, required: Sequence[Requirements | None]) -> None:
    async with anyio.create_task_group() as tasks:
        for number in range(count):
            tasks.start_soon(queue.dispatch, _queued_run(number, required[number % len(required)]))


async def _open(
    stack: AsyncExitStack, path: Path, *, claimable: int, unclaimable: int = 0, started: int = 0
) -> SqliteQueue:
    """Open a queue. `started` is the number of runs that were queued before and have started."""
    path.parent.mkdir()
    store = await SqliteStore.open(path)
    stack.push_async_callback(store.close)
    queue = SqliteQueue(store)
    for first in range(0, started, 1000):
        await _fill(queue, min(1000, started - first), _REQUIRED)
        await queue.mark_started([run.run_id for run in await queue.claim(_HOST, 1000, _OFFER)])
    for first in range(0, unclaimable, 1000):
        await _fill(queue, min(1000, unclaimable - first), [_ELSEWHERE])
    for first in range(0, claimable, 1000):
        await _fill(queue, min(1000, claimable - first), _REQUIRED)
    return queue


async def _claim(queue: SqliteQueue) -> float:
    """Return the median seconds of a claim of one run. Afterwards all runs are queued again."""
    seconds: list[float] = []
    for _ in range(_CLAIMS):
        started_at = perf_counter()
        claimed = await queue.claim(_HOST, 1, _OFFER)
        seconds.append(perf_counter() - started_at)
        if len(claimed) != 1:
            raise RuntimeError("nothing was claimed")
    await queue.release(await queue.claimed())
    return statistics.median(seconds)


async def _measure(folder: Path, many: int, rounds: int) -> list[Result]:
    async with AsyncExitStack() as stack:
        log_progress(f"queueing {many:,} runs three times")
        # As large a database as the others have: its size alone makes writing slower or faster.
        few = await _open(stack, folder / "few" / "queue.db", started=many, claimable=_FEW)
        queues = {
            f"claim of one run, {many:,} queued, p50": await _open(stack, folder / "many" / "queue.db", claimable=many),
            f"claim of one run behind {many:,} that the host cannot execute, p50": await _open(
                stack, folder / "behind" / "queue.db", unclaimable=many, claimable=_FEW
            ),
        }
        results: list[Result] = []
        for measure, queue in queues.items():
            pairs: list[tuple[float, float]] = []
            # In turns, so that other load on the machine affects both equally; the first round warms up.
            for number in range(rounds + 1):
                if number % 2:
                    late = await _claim(few)
                    pairs.append((await _claim(queue), late))
                else:
                    pairs.append((await _claim(queue), await _claim(few)))
            ours, theirs = (statistics.median(side) for side in zip(*pairs[1:], strict=True))
            ratio = statistics.median(other / own for own, other in pairs[1:])
            results.append(
                Result(
                    measure=measure,
                    ours=f"{ours * 1e6:,.0f} µs",
                    against=f"{theirs * 1e6:,.0f} µs with {_FEW} queued",
                    ratio=ratio,
                    floor=_FLOOR,
                )
            )
        return results


def run(*, quick: bool) -> list[Result]:
    many, rounds = (2_000, 5) if quick else (100_000, 21)
    with scratch() as folder:
        return anyio.run(_measure, folder, many, rounds)
