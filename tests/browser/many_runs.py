"""A storage with thousands of rows and no logs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from threading import Thread

import anyio

from shopfloor.adapters.sqlite import SqliteStore
from shopfloor.log import Cost, Usage, format_timestamp, new_run_id
from shopfloor.ports import ViewUpdate
from shopfloor.record import Storage
from shopfloor.views import RunRow, SearchChunk, Spending, UsageTotal

MANY_RUNS = 10_000
_STATUSES = ("completed",) * 7 + ("failed",) * 2 + ("cancelled",)
_MINUTE_MS = 60_000
_BATCH = 1_000


def run_change(number: int, now_ms: int) -> ViewUpdate:
    """Return the row of a run that started `number` minutes ago."""
    started_ms, run_id, status = now_ms - number * _MINUTE_MS, new_run_id(), _STATUSES[number % len(_STATUSES)]
    failed = status == "failed"
    row = RunRow(
        id=run_id,
        root_run_id=run_id,
        name=f"worker-{number % 20}",
        kind="worker",
        worker_type="builtin",
        agent_id=f"owner-{number % 5}",
        channel_id=f"channel-{number % 10}",
        channel_name=f"Channel {number % 10}",
        task=f"Task number {number}: look at what the nightly build says about this module and repair it",
        status=status,
        error_code="tool_failed" if failed else None,
        error_message="the tests did not pass" if failed else None,
        started_at=format_timestamp(started_ms),
        completed_at=format_timestamp(started_ms + 30_000),
        duration_ms=30_000,
        spending=Spending(UsageTotal(Usage(input=1_000 + number, output=20), Cost(usd=0.01, source="agent"))),
        last_seq=10,
    )
    return ViewUpdate(row=row, state=b"", timeline=[], search=[SearchChunk(1, "a repaired module")])


def _changes(runs: int, now_ms: int) -> Iterator[list[ViewUpdate]]:
    for first in range(1, runs + 1, _BATCH):
        yield [run_change(number, now_ms) for number in range(first, min(first + _BATCH, runs + 1))]


async def _fill(storage: Storage, runs: int) -> None:
    store = await SqliteStore.open(storage.database)
    try:
        for changes in _changes(runs, int(time.time() * 1000)):
            await store.apply(changes)
    finally:
        await store.close()


def fill(storage: Storage, runs: int = MANY_RUNS) -> None:
    """Task 1 is the newest. In a thread: where Playwright is, no loop can be run."""
    storage.root.mkdir(parents=True, exist_ok=True)
    thread = Thread(target=lambda: anyio.run(_fill, storage, runs))
    thread.start()
    thread.join()
