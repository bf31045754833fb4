"""Statistics: the sums that are kept with the rows, and the queries that read them.

`run_stats` has what happened in each run per quarter of an hour, `stats` the sums over all runs per hour. Each sum has
columns for the first one, two and three quarters of its hour: days begin within an hour in time zones that are not
whole hours from UTC.
"""

from __future__ import annotations

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
    placeholders,
    where_clause,
)
from shopfloor.adapters.sqlite.waiting import count_calls, count_failures, matching
from shopfloor.adapters.stats import check_run_count, has_sums, time_of, time_range
from shopfloor.limits import PREVIEW_CHARS
from shopfloor.ports import RunFilter, RunOrder, StatsDays, ViewUpdate
from shopfloor.views import (
    ENDED,
    FAILURE,
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
    title_of_task,
)

_RUN_STATS_KEY: Final = ("num", "quarter", "metric", "label", "detail", "worker", "root")
_STATS_KEY: Final = ("metric", "hour", "worker", "root", "label", "detail")
_AMOUNTS: Final = ("amount", "tokens", "unpriced")
_QUARTERS: Final = 4
_FIRST_QUARTERS: Final = tuple(f"{name}_{count}" for name in _AMOUNTS for count in range(1, _QUARTERS))
"""The columns of `stats` with the sums of the first quarters of the hour."""
_GROUPED_BY: Final = {
    STARTED: (),
    ENDED: ("label",),
    SPENDING: ("worker", "label", "detail"),
    FAILURE: ("worker", "label", "detail"),
    TOOL: ("label",),
    TOOL_FAILED: ("label",),
}
"""The columns of each metric that statistics show."""
_TODAY: Final = (ENDED, SPENDING)
"""The metrics that tiles show of today."""
_WITHOUT_DAYS: Final = (TOOL, TOOL_FAILED)
_SUMS: Final = "CAST(total(amount) AS INTEGER), CAST(total(tokens) AS INTEGER), CAST(total(unpriced) AS INTEGER)"
_NEWEST_FAILURE: Final = (
    "SELECT worker_runs.error_message, worker_runs.completed_at FROM run_stats"
    " JOIN worker_runs ON worker_runs.num = run_stats.num"
    " WHERE metric = ? AND quarter >= ? AND quarter < ? AND label = ? AND detail = ?{condition}"
    " ORDER BY quarter DESC, worker_runs.completed_at DESC LIMIT 1"
)

_NOTHING: Final = (0, 0, 0)


def _upsert(table: str, key: tuple[str, ...], amounts: tuple[str, ...]) -> str:
    columns = (*key, *amounts)
    added = ", ".join([f"{name} = {name} + excluded.{name}" for name in amounts])
    into = f"INSERT INTO {table} ({', '.join(columns)}) VALUES {placeholders(columns)}"
    return f"{into} ON CONFLICT ({', '.join(key)}) DO UPDATE SET {added}"


_ADD_RUN_STATS: Final = _upsert("run_stats", _RUN_STATS_KEY, _AMOUNTS)
_ADD_STATS: Final = _upsert("stats", _STATS_KEY, (*_AMOUNTS, *_FIRST_QUARTERS))
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
    by_hour: dict[tuple[Any, ...], list[int]] = {}
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
            hour, place = divmod(quarter, _QUARTERS)
            key = (metric, hour, worker, root, label, detail)
            _add_to_hour(by_hour.setdefault(key, [0] * _HOUR_COLUMNS), place, (amount, tokens, unpriced))
    return by_run, [(*key, *amounts) for key, amounts in by_hour.items()]


_HOUR_COLUMNS: Final = len(_AMOUNTS) + len(_FIRST_QUARTERS)


def _add_to_hour(hour: list[int], quarter: int, amounts: tuple[int, int, int]) -> None:
    """Add amounts of a quarter, from 0, to the columns of its hour: the sums, then those of its first quarters."""
    column = len(amounts)
    for place, amount in enumerate(amounts):
        if amount:
            hour[place] += amount
            for later in range(quarter, _QUARTERS - 1):
                hour[column + later] += amount
        column += _QUARTERS - 1


class _Selection(NamedTuple):
    """The runs that statistics are about: all with these conditions, or those in the temporary table `found`."""

    filters: list[Condition]
    """Conditions on the sums, by worker and for roots."""
    in_found: bool
    run_filter: RunFilter


def read_stats(connection: Connection, run_filter: RunFilter, days: StatsDays) -> StoredStats:
    """Return the sums for statistics. With a search, call `find_runs` in the same transaction first."""
    # Before the runs out of the range are removed: what waits is counted whenever it began.
    waiting, waiting_since = _count_waiting(connection, run_filter, days)
    selection = _select(connection, run_filter, days)
    lines = _lines(connection, selection, tuple(_GROUPED_BY), days.starts)
    is_last_day = days.today == tuple(days.starts[-2:])
    runs = sum(line.amount for line in lines[STARTED])
    queued, oldest_queued_at = _count_open(connection, selection, "queued")
    return StoredStats(
        lines=lines,
        today={metric: _of_day(lines[metric], len(days.starts) - 2) for metric in _TODAY}
        if is_last_day
        else _lines(connection, selection, _TODAY, days.today),
        unpriced_today=_count_unpriced(connection, selection, days.today),
        running=_count_open(connection, selection, "running")[0],
        queued=queued,
        oldest_queued_at=oldest_queued_at,
        waiting=waiting,
        longest_waiting_since=waiting_since,
        newest_failures=_newest_failures(connection, selection, lines[FAILURE], days.starts),
        costliest=_top_runs(connection, selection, "cost", days.starts, runs),
        slowest=_top_runs(connection, selection, "duration", days.starts, runs),
    )


def _select(connection: Connection, run_filter: RunFilter, days: StatsDays) -> _Selection:
    if has_sums(run_filter):
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
    first, end = time_range(days)
    filters: list[Condition] = [*conditions(run_filter, by_index=False), ("+worker_runs.started_at < ?", (end,))]
    if run_filter.search is not None:
        has_ended = "(worker_runs.completed_at IS NULL OR worker_runs.completed_at >= ?)"
        where, parameters = where_clause([*filters, (has_ended, (first,))])
        connection.execute(f"DELETE FROM temp.found WHERE num NOT IN (SELECT num FROM worker_runs{where})", parameters)
    else:
        # Runs that ended in the range, by the index that has all columns of filters, and those that have not ended.
        ended = where_clause([("worker_runs.completed_at >= ?", (first,)), *filters])
        unended = where_clause([("worker_runs.completed_at IS NULL", ()), *filters])
        for where, parameters in (unended, ended):
            connection.execute(
                f"INSERT INTO temp.found SELECT num FROM worker_runs{where} LIMIT {days.max_runs + 1}", parameters
            )
    check_run_count(connection.execute("SELECT count(*) FROM temp.found").fetchone()[0], days)


def _lines(
    connection: Connection, selection: _Selection, metrics: Sequence[str], starts: Sequence[int]
) -> dict[str, list[StatLine]]:
    """Return the sums of metrics, per day if statistics show its days."""
    if selection.in_found:
        return _lines_of_found(connection, selection, metrics, starts)
    return {metric: _lines_of_sums(connection, selection, metric, starts) for metric in metrics}


def _lines_of_sums(connection: Connection, selection: _Selection, metric: str, starts: Sequence[int]) -> list[StatLine]:
    if metric in _WITHOUT_DAYS:
        starts = (starts[0], starts[-1])
    columns = _GROUPED_BY[metric]
    selected = ", ".join(name if name in columns else "''" for name in ("worker", "label", "detail"))
    grouped = ", ".join(["day", *columns])
    lines: list[StatLine] = []
    # A query each, not a union: SQLite would copy the rows of a union before it adds them up.
    for part, spans in _hour_spans(starts).items():
        query, parameters = _sums(metric, part, spans, selection.filters)
        found = connection.execute(f"SELECT day, {selected}, {_SUMS} FROM ({query}) GROUP BY {grouped}", parameters)
        lines += [StatLine(*line) for line in found]
    return lines


def _of_day(lines: list[StatLine], day: int) -> list[StatLine]:
    return [msgspec.structs.replace(line, day=0) for line in lines if line.day == day]


_Part = tuple[int, int]
"""A part of an hour: the quarter at which it begins and the one at which it ends, from 0 to 4."""
_WHOLE: Final = (0, _QUARTERS)


def _hour_spans(starts: Sequence[int]) -> dict[_Part, list[tuple[int, int, int]]]:
    """Return the hours of each day, as a span of whole hours and the parts of hours at its ends.

    The spans have the number of the day, the first hour, and the hour after the last. `starts` are quarters.
    """
    spans: dict[_Part, list[tuple[int, int, int]]] = {_WHOLE: []}
    for day, (first, end) in enumerate(pairwise(starts)):
        (first_hour, begin), (last_hour, rest) = divmod(first, _QUARTERS), divmod(end, _QUARTERS)
        if first_hour == last_hour:
            # No day of the calendar is that short, but a time zone may skip one: its range is empty.
            spans.setdefault((begin, rest), []).append((day, first_hour, first_hour + 1))
            continue
        if begin:
            spans.setdefault((begin, _QUARTERS), []).append((day, first_hour, first_hour + 1))
        spans[_WHOLE].append((day, first_hour + bool(begin), last_hour))
        if rest:
            spans.setdefault((0, rest), []).append((day, last_hour, last_hour + 1))
    return {part: found for part, found in spans.items() if found}


def _sums(
    metric: str, part: _Part, spans: list[tuple[int, int, int]], filters: list[Condition]
) -> tuple[str, list[Any]]:
    """Return the query for the rows of a metric in spans of hours, or in the same part of each hour, with their day."""
    values = ", ".join(["(?, ?, ?)"] * len(spans))
    where, parameters = where_clause([("metric = ?", (metric,)), *filters])
    amounts = ", ".join(f"{_up_to(name, part[1])} - {_up_to(name, part[0])} AS {name}" for name in _AMOUNTS)
    text = (
        f"SELECT day, worker, label, detail, {amounts if part != _WHOLE else ', '.join(_AMOUNTS)}"
        f" FROM (SELECT column1 AS day, column2 AS first, column3 AS last FROM (VALUES {values}))"
        f" CROSS JOIN stats{where} AND hour >= first AND hour < last"
    )
    return text, [*(value for span in spans for value in span), *parameters]


def _up_to(name: str, quarter: int) -> str:
    """Return the column with the sum of an hour up to a quarter."""
    return "0" if quarter == 0 else name if quarter == _QUARTERS else f"{name}_{quarter}"


def _lines_of_found(
    connection: Connection, selection: _Selection, metrics: Sequence[str], starts: Sequence[int]
) -> dict[str, list[StatLine]]:
    """Return the sums of metrics of the runs in `found`, in one pass over what happened in them."""
    filters: list[Condition] = [
        (f"metric IN {placeholders(metrics)}", metrics),
        ("quarter >= ? AND quarter < ?", (starts[0], starts[-1])),
    ]
    # Count only the filtered model's or provider's spending.
    filters += [
        (f"(metric <> '{SPENDING}' OR {column} = ?)", (value,))
        for column, value in (("label", selection.run_filter.model), ("detail", selection.run_filter.provider))
        if value is not None
    ]
    where, parameters = where_clause(filters)
    rows = connection.execute(
        f"SELECT metric, {_day_of(starts)}, worker, label, detail, {_SUMS}"
        f" FROM temp.found CROSS JOIN run_stats ON run_stats.num = found.num{where} GROUP BY 1, 2, 3, 4, 5",
        parameters,
    )
    lines: dict[str, list[StatLine]] = {metric: [] for metric in metrics}
    for metric, *line in rows:
        lines[metric].append(StatLine(*line))
    return lines


def _day_of(starts: Sequence[int], first: int = 0) -> str:
    """Return the expression for the number of the day of a quarter: a binary search among the starts of the days."""
    days = len(starts) - 1
    if days == 1:
        return str(first)
    half = days // 2
    later = _day_of(starts[half:], first + half)
    return f"CASE WHEN quarter < {int(starts[half])} THEN {_day_of(starts[: half + 1], first)} ELSE {later} END"


def _count_open(connection: Connection, selection: _Selection, status: str) -> tuple[int, str | None]:
    """Return how many runs have the status, which few runs have, and the start of the first."""
    filters = (
        _among_found(selection, "+num") if selection.in_found else conditions(selection.run_filter, by_index=False)
    )
    where, values = where_clause([("status = ?", (status,)), *filters])
    return connection.execute(f"SELECT count(*), min(started_at) FROM worker_runs{where}", values).fetchone()


def _count_waiting(connection: Connection, run_filter: RunFilter, days: StatsDays) -> tuple[int, str | None]:
    """Return how many calls and failures of matching runs wait for a person, and since when the first does."""
    filters = matching(run_filter)
    counts = [count_calls(connection, filters)]
    if days.needs_person_after is not None:
        counts.append(count_failures(connection, days.needs_person_after, filters))
    return sum(count for count, _ in counts), min((since for _, since in counts if since is not None), default=None)


def _count_unpriced(connection: Connection, selection: _Selection, today: tuple[int, int]) -> int:
    filters: list[Condition] = [
        ("metric = ?", (SPENDING,)),
        ("quarter >= ? AND quarter < ?", today),
        ("unpriced > 0", ()),
        *selection.filters,
    ]
    where, parameters = where_clause([*filters, *_among_found(selection, "+num")])
    return connection.execute(f"SELECT count(DISTINCT num) FROM run_stats{where}", parameters).fetchone()[0]


def _among_found(selection: _Selection, number: str) -> list[Condition]:
    """Return the condition that the run with a number is selected. With a `+`, the number is not looked up first."""
    return [(f"{number} IN (SELECT num FROM temp.found)", ())] if selection.in_found else []


def _newest_failures(
    connection: Connection, selection: _Selection, lines: list[StatLine], starts: Sequence[int]
) -> dict[FailureGroup, NewestFailure]:
    """Return the newest run of each group of failures that statistics name."""
    last_days: dict[FailureGroup, int] = {}
    for line in lines:
        group = line.label, line.detail
        last_days[group] = max(last_days.get(group, 0), line.day)
    found: dict[FailureGroup, NewestFailure] = {}
    filters = [*selection.filters, *_among_found(selection, "+run_stats.num")]
    condition = "".join(f" AND {text}" for text, _ in filters)
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
        (f"{column}started_at >= ? AND {column}started_at < ?", (time_of(starts[0]), time_of(starts[-1]))),
        (f"{'' if by_index else '+'}{key} > 0", ()),
    ]
    run_filter = selection.run_filter
    if run_filter.parent_run_id is None and run_filter.roots is None:
        filters.append((f"{column}parent_run_id IS NULL", ()))
    if not selection.in_found:
        filters += conditions(run_filter, by_index=not by_index)
    where, parameters = where_clause([*filters, *_among_found(selection, "num")])
    found = connection.execute(
        f"SELECT id, task, name, status, cost_usd, duration_ms FROM worker_runs{where}"
        f" ORDER BY {ORDERS[order].clause(by_index=by_index)} LIMIT {STATS_TOP_RUNS}",
        parameters,
    )
    return [
        RankedRun(
            run_id=run_id,
            title=title_of_task(task),
            worker=worker,
            status=status,
            cost_usd=cost_usd,
            duration_ms=duration_ms,
        )
        for run_id, task, worker, status, cost_usd, duration_ms in found
    ]
