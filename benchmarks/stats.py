"""Statistics over 1,000,000 runs, and lists of them by cost and duration: over HTTP, against a limit."""

from __future__ import annotations

import sqlite3
import statistics
from time import perf_counter
from typing import NamedTuple

from benchmarks.harness import Result, log_progress, scratch, seconds_of
from benchmarks.lists import FIRST_MS, OWNERS, PAGE, STEP_MS, WORKERS, Client, fill
from benchmarks.server_process import running_server
from shopfloor.log import format_timestamp
from shopfloor.record import Storage

LIMIT_SECONDS = 0.05
_DAY_MS = 86_400_000
_TOOLS = ("Bash", "Edit", "Read", "Grep", "Write", "Task")
_QUARTER = "CAST(strftime('%s', {column}) AS INTEGER) / 900"
_INSERT = (
    "INSERT INTO run_stats SELECT num, {quarter}, '{metric}', {label}, {detail}, name, 1, {amount}, {tokens}, 0"
    " FROM worker_runs{condition}"
)


def fill_stats(storage: Storage) -> None:
    """Add the statistics of the runs that `fill` has stored: three tools each, and one model."""
    started, ended = (_QUARTER.format(column=column) for column in ("started_at", "completed_at"))
    tools = [f"CASE num % {len(_TOOLS)} {_choices(shift)} END" for shift in range(3)]
    metrics = [
        ("started", started, "''", "''", "1", "0", ""),
        ("ended", ended, "status", "''", "1", "0", ""),
        ("failure", ended, "error_code", "error_message || num % 20", "1", "0", " WHERE status = 'failed'"),
        ("spending", ended, "model", "provider", "CAST(cost_usd * 1e9 AS INTEGER)", "83744", ""),
        *(("tool", ended, tool, "''", "4", "0", "") for tool in tools),
    ]
    connection = sqlite3.connect(storage.database, isolation_level=None)
    connection.execute("PRAGMA synchronous=OFF")
    connection.execute("BEGIN")
    for metric, quarter, label, detail, amount, tokens, condition in metrics:
        connection.execute(
            _INSERT.format(
                metric=metric,
                quarter=quarter,
                label=label,
                detail=detail,
                amount=amount,
                tokens=tokens,
                condition=condition,
            )
        )
    first_quarters = ", ".join(
        f"sum({name} * (quarter & 3 < {count}))" for name in ("amount", "tokens", "unpriced") for count in (1, 2, 3)
    )
    connection.execute(
        "INSERT INTO stats SELECT metric, quarter / 4, worker, root, label, detail, sum(amount), sum(tokens), 0,"
        f" {first_quarters} FROM run_stats GROUP BY 1, 2, 3, 4, 5, 6"
    )
    connection.execute("COMMIT")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()


def _choices(shift: int) -> str:
    names = (_TOOLS[(place + shift) % len(_TOOLS)] for place in range(len(_TOOLS)))
    return " ".join(f"WHEN {place} THEN '{name}'" for place, name in enumerate(names))


class _Request(NamedTuple):
    measure: str
    path: str
    parameters: dict[str, str | float]
    floor: float | None = 1.0


def _requests(runs: int) -> list[_Request]:
    newest = FIRST_MS + runs * STEP_MS
    until = format_timestamp(newest)
    year: dict[str, str | float] = {"since": format_timestamp(max(FIRST_MS, newest - 365 * _DAY_MS)), "until": until}
    days: dict[str, str | float] = {"until": until}
    last_day = format_timestamp(newest - _DAY_MS)
    lists = "/api/agents/workers"
    return [
        _Request("statistics of 14 days", "/api/stats", days),
        _Request("the same, of one worker", "/api/stats", days | {"worker": WORKERS[0]}),
        _Request("the same, in India, half an hour from UTC's hours", "/api/stats", days | {"tz": "Asia/Kolkata"}),
        _Request("the same, in Nepal, a quarter of an hour from them", "/api/stats", days | {"tz": "Asia/Kathmandu"}),
        _Request("the same, of one owner, from its runs", "/api/stats", days | {"agent_id": OWNERS[0]}, None),
        _Request("the same, of the runs that completed", "/api/stats", days | {"status": "done"}, None),
        _Request("the same, of one model", "/api/stats", days | {"model": "opus"}, None),
        _Request("statistics of all days", "/api/stats", year, None),
        _Request(f"the {PAGE} costliest runs", lists, {"sort": "cost", "limit": PAGE}),
        _Request("the same, of one owner", lists, {"sort": "cost", "limit": PAGE, "agent_id": OWNERS[0]}),
        _Request(
            f"the {PAGE} slowest runs that failed", lists, {"sort": "duration", "limit": PAGE, "status": "failed"}
        ),
        _Request(f"the {PAGE} newest runs of a model", lists, {"model": "opus", "limit": PAGE}),
        _Request(f"the {PAGE} newest runs above 2 dollars", lists, {"min_cost": 2, "limit": PAGE}),
        _Request(f"the {PAGE} newest runs above 10 minutes", lists, {"min_duration_ms": 600_000, "limit": PAGE}),
        _Request(f"the {PAGE} newest runs that ended on the last day", lists, {"ended_since": last_day, "limit": PAGE}),
        _Request("counts by status of 14 days", f"{lists}/counts", {"since": format_timestamp(newest - 14 * _DAY_MS)}),
        _Request("counts by status of a model", f"{lists}/counts", {"model": "opus"}, None),
        _Request("counts by status above 1 cent", f"{lists}/counts", {"min_cost": 0.01}, None),
        _Request("what waits for a person", "/api/waiting", {}),
    ]


def _measure(client: Client, request: _Request, rounds: int) -> Result:
    answer = client.get(request.path, **request.parameters).json()
    if request.path == "/api/stats" and not answer["totals"]["cost_usd"]:
        raise RuntimeError("the statistics have no cost")
    seconds = [seconds_of(lambda: client.get(request.path, **request.parameters)) for _ in range(rounds)]
    taken = statistics.median(seconds)
    return Result(
        measure=request.measure,
        ours=f"{taken * 1e3:.2f} ms",
        against=f"the limit: {LIMIT_SECONDS * 1e3:.0f} ms",
        ratio=LIMIT_SECONDS / taken,
        floor=request.floor,
    )


def run(*, quick: bool) -> list[Result]:
    runs, rounds = (20_000, 5) if quick else (1_000_000, 21)
    with scratch() as folder:
        storage = Storage(folder)
        started_at = perf_counter()
        fill(storage, runs)
        fill_stats(storage)
        size = storage.database.stat().st_size / 1e6
        log_progress(f"{runs:,} runs stored, {size:,.0f} MB, in {perf_counter() - started_at:.0f} s")
        with running_server(storage) as address:
            client = Client(address)
            results = [_measure(client, request, rounds) for request in _requests(runs)]
            client.http.close()
    return results
