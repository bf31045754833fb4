"""Statistics from the changes of each run, added up when they are read."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence

from shopfloor.adapters.limits import STATS_TOP_RUNS
from shopfloor.adapters.stats import check_run_count, has_sums, time_of, time_range
from shopfloor.limits import PREVIEW_CHARS
from shopfloor.ports import RunFilter, StatsDays
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
    RunRow,
    StatChange,
    StatLine,
    StoredStats,
    failure_key,
    most_frequent_failures,
)

RunStats = tuple[RunRow, list[tuple[str, bool, StatChange]]]
"""The row of a run, and its changes with the name of its worker and whether it is a root."""
_METRICS = (STARTED, ENDED, FAILURE, TOOL, TOOL_FAILED, SPENDING)


def compute_stats(runs: Sequence[RunStats], wanted: RunFilter, days: StatsDays, waits: Sequence[str]) -> StoredStats:
    """Return the sums for statistics of these runs, which match the filter.

    `waits`: since when each of their calls and failures waits for a person.
    """
    if not has_sums(wanted):
        runs = [(row, changes) for row, changes in runs if _is_in_range(row, days)]
        check_run_count(len(runs), days)
    lines = {metric: _lines(runs, metric, days.starts, wanted) for metric in _METRICS}
    rows = [row for row, _ in runs]
    queued = [row.started_at for row in rows if row.status == "queued"]
    first, end = time_of(days.starts[0]), time_of(days.starts[-1])
    wants_roots = wanted.roots is None and wanted.parent_run_id is None
    in_range = [
        row for row in rows if first <= row.started_at < end and not (wants_roots and row.parent_run_id is not None)
    ]
    return StoredStats(
        lines=lines,
        today={metric: _lines(runs, metric, days.today, wanted) for metric in (ENDED, SPENDING)},
        unpriced_today=sum(_is_unpriced(changes, days.today) for _, changes in runs),
        running=sum(row.status == "running" for row in rows),
        queued=len(queued),
        oldest_queued_at=min(queued, default=None),
        waiting=len(waits),
        longest_waiting_since=min(waits, default=None),
        newest_failures=_newest_failures(rows, lines[FAILURE], first, end),
        costliest=_top(in_range, [row.spending.tree.cost_usd for row in in_range]),
        slowest=_top(in_range, [row.duration_ms for row in in_range]),
    )


def _lines(runs: Iterable[RunStats], metric: str, starts: Sequence[int], wanted: RunFilter) -> list[StatLine]:
    sums: dict[tuple[int, str, str, str], list[int]] = defaultdict(lambda: [0, 0, 0])
    for _, changes in runs:
        for worker, _, change in changes:
            is_wanted = metric != SPENDING or (
                wanted.model in (None, change.label) and wanted.provider in (None, change.detail)
            )
            if change.metric == metric and is_wanted and starts[0] <= change.quarter < starts[-1]:
                line = sums[bisect_right(starts, change.quarter) - 1, worker, change.label, change.detail]
                for place, amount in enumerate((change.amount, change.tokens, change.unpriced)):
                    line[place] += amount
    return [StatLine(*key, *amounts) for key, amounts in sums.items()]


def _is_unpriced(changes: Iterable[tuple[str, bool, StatChange]], today: tuple[int, int]) -> bool:
    cells: dict[tuple[int, str, str], int] = defaultdict(int)
    for _, _, change in changes:
        if change.metric == SPENDING and today[0] <= change.quarter < today[1]:
            cells[change.quarter, change.label, change.detail] += change.unpriced
    return any(unpriced > 0 for unpriced in cells.values())


def _newest_failures(
    rows: Iterable[RunRow], lines: list[StatLine], first: str, end: str
) -> dict[FailureGroup, NewestFailure]:
    groups = set(most_frequent_failures(lines))
    found: dict[FailureGroup, NewestFailure] = {}
    for row in sorted(rows, key=lambda row: row.completed_at or ""):
        message = row.error_message or ""
        group = (row.error_code or "", failure_key(message))
        if row.status == "failed" and group in groups and first <= (row.completed_at or "") < end:
            found[group] = NewestFailure(" ".join(message.split())[:PREVIEW_CHARS], row.completed_at or "")
    return found


def _top(rows: list[RunRow], values: Sequence[float | None]) -> list[RankedRun]:
    known = [(value, place, row) for place, (value, row) in enumerate(zip(values, rows, strict=True)) if value]
    ranked = sorted(known, key=lambda item: item[:2], reverse=True)[:STATS_TOP_RUNS]
    return [
        RankedRun(
            run_id=row.id,
            title=row.title,
            worker=row.name,
            status=row.status,
            cost_usd=row.spending.tree.cost_usd,
            duration_ms=row.duration_ms,
        )
        for _, _, row in ranked
    ]


def _is_in_range(row: RunRow, days: StatsDays) -> bool:
    first, end = time_range(days)
    return row.started_at < end and (row.completed_at is None or row.completed_at >= first)
