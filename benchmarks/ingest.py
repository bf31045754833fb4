"""From logs to lists: rows stored and listed per second, against batched inserts of the same rows."""

from __future__ import annotations

import gc
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from itertools import count
from pathlib import Path
from time import perf_counter

import anyio
import msgspec

from benchmarks.harness import Result, interleave, log_progress, rate, scratch
from benchmarks.sample import STEP, event, started
from shopfloor.adapters.local import LocalBus, LocalLogFeed
from shopfloor.adapters.sqlite import SqliteStore
from shopfloor.engine import Ingest
from shopfloor.log import Payload, RunCompleted, StepCompleted, StepStarted, ToolCall, ToolResult, new_run_id
from shopfloor.ports import RunFilter
from shopfloor.record import Durability, Recorder, Storage

BATCH = 100
"""Rows per transaction of the peer."""
_FRAME_EVENTS = 4
"""The events of a run besides its turns: start and end of the run and of the step."""
_TURN_EVENTS = 3
"""The message, the call and the result."""

Rows = list[tuple[object, ...]]


def _payloads(events: int, number: int) -> Iterator[tuple[Payload, str]]:
    """Yield the events of an agent's run that calls a tool at each turn."""
    assistant_message = event()
    yield msgspec.structs.replace(started(), task=f"Repair module {number}", agent_id=f"owner-{number % 7}"), ""
    yield StepStarted(name="implement", kind="agent", try_=1), STEP
    for turn in range((events - _FRAME_EVENTS) // _TURN_EVENTS):
        call_id = f"toolu_{turn:06}"
        arguments = {"command": f"pytest -q tests/test_recorder.py -k resume_{turn}"}
        yield assistant_message, STEP
        yield ToolCall(name="bash", call_id=call_id, input=arguments, output=None, fidelity="agent_emitted"), STEP
        output = f"{turn} passed, 1 warning in 0.42s\n" * 4
        yield (
            ToolResult(
                name="bash", call_id=call_id, input=None, output=output, duration_ms=420, fidelity="agent_emitted"
            ),
            STEP,
        )
    yield StepCompleted(name="implement", kind="agent", try_=1, duration_ms=61_000), STEP
    yield RunCompleted(name="bench", kind="agent", status="completed", result="Repaired.", duration_ms=61_000), ""


def write_logs(storage: Storage, runs: int, events: int) -> int:
    """Write logs of `runs` runs with about `events` events each, and return the number of events."""
    written = 0
    for number in range(runs):
        run_id = new_run_id()
        with Recorder(storage.log_path(run_id), run_id, durability=Durability.OS, new=True) as recorder:
            for payload, path in _payloads(events, number):
                recorder.append(payload, path=path)
                written += 1
    return written


async def _ingest(storage: Storage, database: Path, runs: int) -> float:
    """Measure one round of ours: from logs without rows until a list shows all of them."""
    store = await SqliteStore.open(database)
    ingest = Ingest(LocalLogFeed(storage), store, LocalBus())
    try:
        started_at = perf_counter()
        await ingest.catch_up(everything=True)
        page = await store.list_runs(RunFilter(statuses=("completed",)), limit=runs)
        seconds = perf_counter() - started_at
    finally:
        await store.close()
    if page.total != runs or len(page.items) != runs:
        raise RuntimeError(f"{page.total:,} of {runs:,} runs are listed")
    return seconds


class _Table:
    """The rows that our round stored, ready to be inserted."""

    def __init__(self, connection: sqlite3.Connection, name: str, columns: str = "*") -> None:
        found = connection.execute(f"SELECT {columns} FROM {name}")
        names = [column[0] for column in found.description]
        self.rows: Rows = found.fetchall()
        self.insert = f"INSERT INTO {name} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"


def _insert(database: Path, tables: list[_Table]) -> float:
    """Measure one round of theirs: `executemany` of ready tuples, a hundred per transaction."""
    connection = sqlite3.connect(database, isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=NORMAL")
    started_at = perf_counter()
    for table in tables:
        for first in range(0, len(table.rows), BATCH):
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany(table.insert, table.rows[first : first + BATCH])
            connection.execute("COMMIT")
    seconds = perf_counter() - started_at
    connection.close()
    return seconds


async def _migrate(path: Path) -> None:
    await (await SqliteStore.open(path)).close()


def run(*, quick: bool) -> list[Result]:
    runs, events, rounds = (20, 60, 3) if quick else (200, 200, 7)
    with scratch() as folder:
        storage, empty = Storage(folder / "storage"), folder / "empty.db"
        written = write_logs(storage, runs, events)
        anyio.run(_migrate, empty)
        numbers = count()

        def fresh() -> Path:
            return Path(shutil.copy(empty, folder / f"round-{next(numbers)}.db"))

        def ours() -> float:
            return anyio.run(_ingest, storage, fresh(), runs)

        first = fresh()
        anyio.run(_ingest, storage, first, runs)
        with closing(sqlite3.connect(first)) as made:
            listed = [_Table(made, "worker_runs"), _Table(made, "worker_events")]
            archive_and_search = [_Table(made, "worker_transcripts"), _Table(made, "search_pieces", "rowid, body")]
        rows = sum(len(table.rows) for table in listed)
        log_progress(f"{written:,} events of {runs:,} runs: {rows:,} rows")
        # As `up` does. It also keeps the garbage collector from scanning the peer's rows.
        gc.freeze()
        found = interleave(ours, lambda: _insert(fresh(), listed), rounds)
        log_progress("the same, with archives and search")
        whole = interleave(ours, lambda: _insert(fresh(), listed + archive_and_search), rounds // 2 + 1)
    peer = f"sqlite3, {BATCH} rows per transaction"
    return [
        Result(
            measure=f"{runs:,} logs stored and listable ({rate(written, found.ours, 'events')})",
            ours=rate(rows, found.ours, "rows"),
            against=f"{peer}: {rate(rows, found.theirs, 'rows')}",
            ratio=found.ratio,
            floor=0.4,
        ),
        Result(
            measure="the same, archive and search on both sides",
            ours=rate(rows, whole.ours, "rows"),
            against=f"{peer}: {rate(rows, whole.theirs, 'rows')}",
            ratio=whole.ratio,
        ),
    ]
