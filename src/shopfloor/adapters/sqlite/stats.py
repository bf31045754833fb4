"""Statistics: the sums that are kept with the rows, and the queries that read them.

`run_stats` has what happened in each run per quarter of an hour, `stats` the sums over all runs per hour. Parts of
hours at the ends of days, in time zones that are not whole hours from UTC, are read from `run_stats`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from sqlite3 import Connection
from typing import Any, Final, NamedTuple

import msgspec

from shopfloor.adapters.limits import SORTED_RUNS, STATS_TOP_RUNS
from shopfloor.adapters.sqlite.queries import (
    ORDERS,
    Condition,
    conditions,
    count_query,
    fields_of,
    placeholders,
    where_clause,
)
from shopfloor.errors import InvalidParameter
from shopfloor.limits import PREVIEW_CHARS, STATS_RUNS
from shopfloor.log import format_timestamp
from shopfloor.ports import RunFilter, RunOrder, StatsDays, ViewUpdate
from shopfloor.views import (
    ENDED,
    FAILURE,
    QUARTER_SECONDS,
    SPENDING,
    STARTED,
    TOOL,
    TOOL_FAILED,
    FailureGroup,
    NewestFailure,
    RankedRun,
    StatLine,
    StoredStats,
    most_frequent_failures,
)

_RUN_STATS_KEY: Final = ("num", "quarter", "metric", "label", "detail", "worker", "root")
_STATS_KEY: Final = ("metric", "hour", "worker", "root", "label", "detail")
_AMOUNTS: Final = ("amount", "tokens", "unpriced")
_QUARTERS: Final = 4
_SUMMED_FIELDS: Final = frozenset({"name", "roots"})
"""The filters for which sums are kept."""
_GROUPED_BY: Final = {
    STARTED: (),
    ENDED: ("label",),
    SPENDING: ("worker", "label", "detail"),
    FAILURE: ("worker", "label", "detail"),
    TOOL: ("label",),
    TOOL_FAILED: ("label",),
}
"""The columns of each metric that statistics show."""
_WITHOUT_DAYS: Final = (TOOL, TOOL_FAILED)
_SUMS: Final = "CAST(total(amount) AS INTEGER), CAST(total(tokens) AS INTEGER), CAST(total(unpriced) AS INTEGER)"
_NEWEST_FAILURE: Final = (
    "SELECT worker_runs.error_message, worker_runs.completed_at FROM run_stats"
    " JOIN worker_runs ON worker_runs.num = run_stats.num"
    " WHERE metric = ? AND quarter >= ? AND quarter < ? AND label = ? AND detail = ?{condition}"
    " ORDER BY quarter DESC, worker_runs.completed_at DESC LIMIT 1"
)

_NOTHING: Final = (0, 0, 0)


def _upsert(table: str, key: tuple[str, ...]) -> str:
    columns = (*key, *_AMOUNTS)
    added = ", ".join([f"{name} = {name} + excluded.{name}" for name in _AMOUNTS])
    into = f"INSERT INTO {table} ({', '.join(columns)}) VALUES {placeholders(columns)}"
    return f"{into} ON CONFLICT ({', '.join(key)}) DO UPDATE SET {added}"


_ADD_RUN_STATS: Final = _upsert("run_stats", _RUN_STATS_KEY)
_ADD_STATS: Final = _upsert("stats", _STATS_KEY)
Rows = list[tuple[Any, ...]]


def add_stats(connection: Connection, changes: Sequence[tuple[ViewUpdate, int | None]]) -> None:
    """Add the statistics of updates, each with the `seq` up to which its run was stored before. The rows exist."""
    if not changes:
        return
    ids = [change.row.id for change, _ in changes]
    query = f"SELECT id, num FROM worker_runs WHERE id IN {placeholders(ids)}"
    by_run, by_hour = _stat_rows(changes, dict(connection.execute(query, ids).fetchall()))
    connection.executemany(_ADD_RUN_STATS, by_run)
    connection.executemany(_ADD_STATS, by_hour)


def _stat_rows(changes: Iterable[tuple[ViewUpdate, int | None]], numbers: dict[str, int]) -> tuple[Rows, Rows]:
    """Return the rows to add to `run_stats` and to `stats`, for updates of runs that are stored up to a `seq`."""
    by_run: Rows = []
    by_hour: dict[tuple[Any, ...], tuple[int, int, int]] = {}
    for update, last_seq in changes:
        row, number, stored_seq = update.row, numbers[update.row.id], last_seq or 0
        worker, root = row.name, row.parent_run_id is None
        sums: dict[tuple[int, str, str, str], tuple[int, int, int]] = {}
        for change in update.stats:
            # Another process may have applied the same events.
            if change.seq > stored_seq:
                key = (change.quarter, change.metric, change.label, change.detail)
                known = sums.get(key, _NOTHING)
                sums[key] = (known[0] + change.amount, known[1] + change.tokens, known[2] + change.unpriced)
        for (quarter, metric, label, detail), (amount, tokens, unpriced) in sums.items():
            by_run.append((number, quarter, metric, label, detail, worker, root, amount, tokens, unpriced))
            hour = (metric, quarter // _QUARTERS, worker, root, label, detail)
            known = by_hour.get(hour, _NOTHING)
            by_hour[hour] = (known[0] + amount, known[1] + tokens, known[2] + unpriced)
    return by_run, [(*key, *amounts) for key, amounts in by_hour.items()]


class _Selection(NamedTuple):
    """The runs that statistics are about: all with these conditions, or those in the temporary table `found`."""

    filters: list[Condition]
    """Conditions on the sums, by worker and for roots."""
    in_found: bool
    run_filter: RunFilter


def read_stats(connection: Connection, run_filter: RunFilter, days: StatsDays) -> StoredStats:
    """Return the sums for statistics. With a search, call `find_runs` in the same transaction first."""
    selection = _select(connection, run_filter, days)
    lines = {metric: _lines(connection, selection, metric, days.starts) for metric in _GROUPED_BY}
    runs = sum(line.amount for line in lines[STARTED])
    queued, oldest_queued_at = _count_and_oldest(connection, selection, ("status = 'queued'", ()), "started_at")
    waiting, waiting_since = _count_and_oldest(
        connection, selection, ("waiting_since IS NOT NULL", ()), "waiting_since"
    )
    return StoredStats(
        lines=lines,
        today={metric: _lines(connection, selection, metric, days.today) for metric in (ENDED, SPENDING)},
        unpriced_today=_count_unpriced(connection, selection, days.today),
        running=_count(connection, selection, "running"),
        queued=queued,
        oldest_queued_at=oldest_queued_at,
        waiting=waiting,
        longest_waiting_since=waiting_since,
        newest_failures=_newest_failures(connection, selection, lines[FAILURE], days.starts),
        costliest=_top_runs(connection, selection, "cost", days.starts, runs),
        slowest=_top_runs(connection, selection, "duration", days.starts, runs),
    )


def _select(connection: Connection, run_filter: RunFilter, days: StatsDays) -> _Selection:
    if fields_of(run_filter) <= _SUMMED_FIELDS:
        filters: list[Condition] = []
        if run_filter.name is not None:
            filters.append(("worker = ?", (run_filter.name,)))
        if run_filter.roots is not None:
            filters.append(("root = ?", (run_filter.roots,)))
        return _Selection(filters, in_found=False, run_filter=run_filter)
    _collect_runs(connection, run_filter, days)
    return _Selection([], in_found=True, run_filter=run_filter)


def _collect_runs(connection: Connection, run_filter: RunFilter, days: StatsDays) -> None:
    """Insert the matching runs into `found`. Raises `InvalidParameter` if there are too many."""
    first, end = min(days.starts[0], days.today[0]), max(days.starts[-1], days.today[1])
    is_in_range: list[Condition] = [
        ("worker_runs.started_at < ?", (_time(end),)),
        ("(worker_runs.completed_at IS NULL OR worker_runs.completed_at >= ?)", (_time(first),)),
    ]
    where, parameters = where_clause([*conditions(run_filter), *is_in_range])
    if run_filter.search is not None:
        connection.execute(f"DELETE FROM temp.found WHERE num NOT IN (SELECT num FROM worker_runs{where})", parameters)
    else:
        connection.execute(
            f"INSERT INTO temp.found SELECT num FROM worker_runs{where} LIMIT {STATS_RUNS + 1}", parameters
        )
    if connection.execute("SELECT count(*) FROM temp.found").fetchone()[0] > STATS_RUNS:
        raise InvalidParameter(
            f"more than {STATS_RUNS:,} runs match these filters in this range",
            hint="choose fewer days or another filter; without one, by worker or for roots there is no such limit",
        )


def _lines(connection: Connection, selection: _Selection, metric: str, starts: Sequence[int]) -> list[StatLine]:
    """Return the sums of a metric, per day if statistics show its days."""
    if metric in _WITHOUT_DAYS:
        starts = (starts[0], starts[-1])
    columns = _GROUPED_BY[metric]
    selected = ", ".join(name if name in columns else "''" for name in ("worker", "label", "detail"))
    if selection.in_found:
        return _lines_of_found(connection, selection, metric, starts, selected)
    grouped = ", ".join(["day", *columns])
    spans = list(pairwise(starts))
    hours = [(day, -(-first // _QUARTERS), end // _QUARTERS) for day, (first, end) in enumerate(spans)]
    query, parameters = _sums("stats", "hour", metric, hours, selection.filters)
    edges = [
        (day, *edge)
        for day, (first, end) in enumerate(spans)
        for edge in ((first, -(-first // _QUARTERS) * _QUARTERS), (end // _QUARTERS * _QUARTERS, end))
        if edge[0] < edge[1]
    ]
    if edges:
        more, values = _sums("run_stats", "quarter", metric, edges, selection.filters)
        query, parameters = f"{query} UNION ALL {more}", [*parameters, *values]
    found = connection.execute(f"SELECT day, {selected}, {_SUMS} FROM ({query}) GROUP BY {grouped}", parameters)
    return [StatLine(*line) for line in found]


def _sums(
    table: str, column: str, metric: str, spans: list[tuple[int, int, int]], filters: list[Condition]
) -> tuple[str, list[Any]]:
    """Return the query for the rows of a metric in spans of days, each with its day."""
    values = ", ".join(["(?, ?, ?)"] * len(spans))
    where, parameters = where_clause([("metric = ?", (metric,)), *filters])
    text = (
        f"SELECT day, worker, label, detail, amount, tokens, unpriced"
        f" FROM (SELECT column1 AS day, column2 AS first, column3 AS last FROM (VALUES {values}))"
        f" CROSS JOIN {table}{where} AND {column} >= first AND {column} < last"
    )
    return text, [*(value for span in spans for value in span), *parameters]


def _lines_of_found(
    connection: Connection, selection: _Selection, metric: str, starts: Sequence[int], selected: str
) -> list[StatLine]:
    filters: list[Condition] = [("metric = ?", (metric,)), ("quarter >= ? AND quarter < ?", (starts[0], starts[-1]))]
    if metric == SPENDING:
        # The other models and providers of a run are not meant.
        filters += [
            (f"{column} = ?", (value,))
            for column, value in (("label", selection.run_filter.model), ("detail", selection.run_filter.provider))
            if value is not None
        ]
    where, parameters = where_clause(filters)
    rows = connection.execute(
        f"SELECT quarter, {selected}, {_SUMS} FROM temp.found CROSS JOIN run_stats ON run_stats.num = found.num{where}"
        " GROUP BY 1, 2, 3, 4",
        parameters,
    )
    sums: dict[tuple[Any, ...], list[int]] = defaultdict(lambda: [0, 0, 0])
    for quarter, worker, label, detail, *amounts in rows:
        line = sums[bisect_right(starts, quarter) - 1, worker, label, detail]
        for place, amount in enumerate(amounts):
            line[place] += amount
    return [StatLine(*key, *amounts) for key, amounts in sums.items()]


def _count(connection: Connection, selection: _Selection, status: str) -> int:
    if not selection.in_found:
        counted = msgspec.structs.replace(selection.run_filter, statuses=(status,))
        return connection.execute(*count_query(counted)).fetchone()[0]
    return _count_and_oldest(connection, selection, ("status = ?", (status,)), "started_at")[0]


def _count_and_oldest(
    connection: Connection, selection: _Selection, condition: Condition, time_column: str
) -> tuple[int, str | None]:
    """Return how many runs have a state, and the oldest time in a column of theirs."""
    source = "temp.found CROSS JOIN worker_runs USING (num)" if selection.in_found else "worker_runs"
    # Few runs have the state, and its index finds them.
    filters = [] if selection.in_found else conditions(selection.run_filter, by_index=False)
    where, parameters = where_clause([condition, *filters])
    return connection.execute(f"SELECT count(*), min({time_column}) FROM {source}{where}", parameters).fetchone()


def _count_unpriced(connection: Connection, selection: _Selection, today: tuple[int, int]) -> int:
    filters: list[Condition] = [
        ("metric = ?", (SPENDING,)),
        ("quarter >= ? AND quarter < ?", today),
        ("unpriced > 0", ()),
        *selection.filters,
    ]
    where, parameters = where_clause([*filters, *_among_found(selection)])
    return connection.execute(f"SELECT count(DISTINCT num) FROM run_stats{where}", parameters).fetchone()[0]


def _among_found(selection: _Selection) -> list[Condition]:
    return [("num IN (SELECT num FROM temp.found)", ())] if selection.in_found else []


def _newest_failures(
    connection: Connection, selection: _Selection, lines: list[StatLine], starts: Sequence[int]
) -> dict[FailureGroup, NewestFailure]:
    """Return the newest run of each group of failures that statistics name."""
    last_days: dict[FailureGroup, int] = {}
    for line in lines:
        group = line.label, line.detail
        last_days[group] = max(last_days.get(group, 0), line.day)
    found: dict[FailureGroup, NewestFailure] = {}
    filters = [*selection.filters, *_among_found(selection)]
    condition = "".join(f" AND run_stats.{text}" for text, _ in filters)
    values = [value for _, parameters in filters for value in parameters]
    for group in most_frequent_failures(lines):
        day = last_days[group]
        newest = connection.execute(
            _NEWEST_FAILURE.format(condition=condition), (FAILURE, starts[day], starts[day + 1], *group, *values)
        ).fetchone()
        if newest is not None:
            message, at = newest
            found[group] = NewestFailure(" ".join((message or "").split())[:PREVIEW_CHARS], at)
    return found


def _top_runs(
    connection: Connection, selection: _Selection, order: RunOrder, starts: Sequence[int], runs: int
) -> list[RankedRun]:
    """Return the runs that started on the days and have the highest cost or duration.

    Without a parent, unless the filter is about that: the cost of a run includes its sub-runs.
    """
    key, by_index = ORDERS[order].key, runs > SORTED_RUNS and not selection.in_found
    # If many runs started on the days, the first runs in the index of the order are probably among them.
    column = "+worker_runs." if by_index else "worker_runs."
    filters: list[Condition] = [
        (f"{column}started_at >= ? AND {column}started_at < ?", (_time(starts[0]), _time(starts[-1]))),
        (f"{'' if by_index else '+'}{key} > 0", ()),
    ]
    run_filter = selection.run_filter
    if run_filter.parent_run_id is None and run_filter.roots is None:
        filters.append((f"{column}parent_run_id IS NULL", ()))
    if not selection.in_found:
        filters += conditions(run_filter, by_index=not by_index)
    where, parameters = where_clause([*filters, *_among_found(selection)])
    found = connection.execute(
        f"SELECT id, task, name, status, cost_usd, duration_ms FROM worker_runs{where}"
        f" ORDER BY {ORDERS[order].clause(by_index=by_index)} LIMIT {STATS_TOP_RUNS}",
        parameters,
    )
    return [
        RankedRun(
            run_id=run_id,
            title=" ".join(task[: 4 * PREVIEW_CHARS].split())[:PREVIEW_CHARS],
            worker=worker,
            status=status,
            cost_usd=cost_usd,
            duration_ms=duration_ms,
        )
        for run_id, task, worker, status, cost_usd, duration_ms in found
    ]


def _time(quarter: int) -> str:
    return format_timestamp(quarter * QUARTER_SECONDS * 1000)
