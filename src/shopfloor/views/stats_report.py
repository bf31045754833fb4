"""Statistics of many runs: the sums of a store as tiles, days, tools, failures and top runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

import msgspec

from shopfloor.limits import STATS_FAILURE_WORKERS, STATS_FAILURES, STATS_TOOLS
from shopfloor.views.run_stats import ENDED, FAILURE, NANO, SPENDING, STARTED, TOOL, TOOL_FAILED

UNKNOWN = "unknown"
"""The name of a model, provider or worker that the log does not have."""


class StatLine(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A sum of the changes of one metric on one day of a range."""

    day: int
    """The number of the day in the range, from 0."""
    worker: str
    label: str
    detail: str
    amount: int
    tokens: int = 0
    unpriced: int = 0


class RankedRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run among the costliest or slowest."""

    run_id: str
    title: str
    worker: str
    status: str
    cost_usd: float | None
    """The cost of the run and its sub-runs; null if unknown."""
    duration_ms: int | None
    """Null until the run has ended."""


class NewestFailure(msgspec.Struct, frozen=True):
    """The newest run of a group of failures."""

    message: str
    at: str


FailureGroup = tuple[str, str]
"""The code of an error, and its message without times, ids and long numbers."""
Lines = dict[str, list[StatLine]]
"""Sums by metric."""


class StoredStats(msgspec.Struct, frozen=True, kw_only=True):
    """What a store knows for statistics."""

    lines: Lines
    """The sums per day of the range. A day may have several lines of the same metric, worker, label and detail."""
    today: Lines
    """The sums of today; `day` is 0."""
    unpriced_today: int
    running: int
    queued: int
    oldest_queued_at: str | None
    waiting: int
    longest_waiting_since: str | None
    newest_failures: dict[FailureGroup, NewestFailure]
    costliest: list[RankedRun]
    slowest: list[RankedRun]


class StatsRange(msgspec.Struct, frozen=True):
    """The range of the statistics: complete days."""

    since: str
    """The start of the first day."""
    until: str
    """The end of the last day."""
    tz: str
    """The time zone of the days."""


class Tiles(msgspec.Struct, frozen=True, kw_only=True):
    """What is happening now, and today."""

    running: int
    queued: int
    oldest_queued_at: str | None
    """When the oldest queued run was queued; null if none is."""
    waiting: int
    """How much waits for a person, as `GET /api/waiting` lists it: unanswered questions, approvals and client tools,
    failures that only a person can remove, runs whose worker changed, and interrupted runs that no server resumes."""
    longest_waiting_since: str | None
    """Since when the first of them has been waiting; null if none is."""
    failed_today: int
    ended_today: int
    failed_percent_range: float | None
    """The percentage of failed runs among all that ended in the range; null if none ended."""
    spent_today_usd: float | None
    """What was spent today, as far as prices are known; null if there is no price for any of it."""
    unpriced_today: int
    """Runs that used tokens without a known price today."""


class CostBy(msgspec.Struct, frozen=True, kw_only=True):
    """Costs in US dollars by name; null if no price is known."""

    model: dict[str, float | None]
    provider: dict[str, float | None]
    worker: dict[str, float | None]


class StatsDay(msgspec.Struct, frozen=True, kw_only=True):
    """One day."""

    day: str
    """The date."""
    runs: int
    """Runs that started on the day."""
    failed: int
    """Runs that failed on the day."""
    cost_usd: float | None
    """What was spent on the day, as far as prices are known; null if there is no price for any of it."""
    tokens: int
    unpriced_tokens: int
    """Tokens without a known price."""
    by: CostBy


class StatsTotals(msgspec.Struct, frozen=True, kw_only=True):
    """The sums over the range."""

    runs: int
    """Runs that started."""
    ended: int
    failed: int
    cost_usd: float | None
    """As far as prices are known; null if there is no price for any of it."""
    tokens: int
    unpriced_tokens: int
    """Tokens without a known price."""


class NamedSum(msgspec.Struct, frozen=True, kw_only=True):
    """The spending of one model, provider or worker over the range."""

    name: str
    cost_usd: float | None
    tokens: int
    unpriced_tokens: int


class SumsBy(msgspec.Struct, frozen=True, kw_only=True):
    """The spending over the range by name, highest first."""

    model: list[NamedSum]
    provider: list[NamedSum]
    worker: list[NamedSum]


class ToolStats(msgspec.Struct, frozen=True, kw_only=True):
    """The calls of a tool."""

    name: str
    calls: int
    failed: int


class FailureStats(msgspec.Struct, frozen=True, kw_only=True):
    """Failures with the same error code whose messages differ at most in times, ids and long numbers."""

    code: str
    group: str
    """The message without times, ids and long numbers: `error_group` of the list of runs."""
    message: str
    """The message of the newest of them."""
    total: int
    workers: list[str]
    """The workers that failed most often, at most five."""
    last_at: str | None
    per_day: list[int]
    """How many failed on each day of the range."""


class Stats(msgspec.Struct, frozen=True, kw_only=True):
    """Statistics of runs."""

    range: StatsRange
    tiles: Tiles
    days: list[StatsDay]
    totals: StatsTotals
    by: SumsBy
    tools: list[ToolStats]
    """The tools that were called most often, at most 20."""
    failures: list[FailureStats]
    """The most frequent failures, at most 10."""
    costliest: list[RankedRun]
    """Runs without a parent that started in the range, highest cost first, at most 5."""
    slowest: list[RankedRun]
    """Runs without a parent that started in the range, longest duration first, at most 5."""


class _Spent:
    """A sum of spending."""

    def __init__(self) -> None:
        self.nano_usd = self.tokens = self.unpriced = 0

    def add(self, line: StatLine) -> None:
        self.nano_usd += line.amount
        self.tokens += line.tokens
        self.unpriced += line.unpriced

    @property
    def usd(self) -> float | None:
        """The cost; None if there are only tokens without a price."""
        return None if not self.nano_usd and self.tokens and self.tokens <= self.unpriced else self.nano_usd / NANO


def build_stats(stored: StoredStats, stats_range: StatsRange, days: Sequence[str]) -> Stats:
    """Return the statistics of the days, from the sums of a store."""
    lines, today = stored.lines, stored.today
    started = _per_day(lines[STARTED], len(days))
    failed_lines = [line for line in lines[ENDED] if line.label == "failed"]
    failed = _per_day(failed_lines, len(days))
    by_day: list[list[StatLine]] = [[] for _ in days]
    for line in lines[SPENDING]:
        by_day[line.day].append(line)
    spent, ended = _sum(lines[SPENDING]), sum(line.amount for line in lines[ENDED])
    spent_today = _sum(today[SPENDING])
    return Stats(
        range=stats_range,
        tiles=Tiles(
            running=stored.running,
            queued=stored.queued,
            oldest_queued_at=stored.oldest_queued_at,
            waiting=stored.waiting,
            longest_waiting_since=stored.longest_waiting_since,
            failed_today=sum(line.amount for line in today[ENDED] if line.label == "failed"),
            ended_today=sum(line.amount for line in today[ENDED]),
            failed_percent_range=round(100 * sum(failed) / ended, 1) if ended else None,
            spent_today_usd=spent_today.usd,
            unpriced_today=stored.unpriced_today,
        ),
        days=[
            _day(day, spending, runs, failures)
            for day, spending, runs, failures in zip(days, by_day, started, failed, strict=True)
        ],
        totals=StatsTotals(
            runs=sum(started),
            ended=ended,
            failed=sum(failed),
            cost_usd=spent.usd,
            tokens=spent.tokens,
            unpriced_tokens=spent.unpriced,
        ),
        by=SumsBy(**{kind: _ranked(sums) for kind, sums in _sums_by(lines[SPENDING]).items()}),
        tools=_tools(lines[TOOL], lines[TOOL_FAILED]),
        failures=_failures(lines[FAILURE], stored.newest_failures, len(days)),
        costliest=stored.costliest,
        slowest=stored.slowest,
    )


def most_frequent_failures(lines: Iterable[StatLine]) -> list[FailureGroup]:
    """Return the groups of failures that statistics name, the most frequent first."""
    totals: dict[FailureGroup, int] = defaultdict(int)
    for line in lines:
        totals[line.label, line.detail] += line.amount
    groups = [group for group, total in totals.items() if total > 0]
    return sorted(groups, key=lambda group: (-totals[group], group))[:STATS_FAILURES]


def _day(day: str, spending: list[StatLine], runs: int, failed: int) -> StatsDay:
    spent = _sum(spending)
    by = {kind: {name: total.usd for name, total in sums.items()} for kind, sums in _sums_by(spending).items()}
    return StatsDay(
        day=day,
        runs=runs,
        failed=failed,
        cost_usd=spent.usd,
        tokens=spent.tokens,
        unpriced_tokens=spent.unpriced,
        by=CostBy(**by),
    )


def _sum(lines: Iterable[StatLine]) -> _Spent:
    spent = _Spent()
    for line in lines:
        spent.add(line)
    return spent


def _sums_by(lines: Iterable[StatLine]) -> dict[str, dict[str, _Spent]]:
    sums: dict[str, dict[str, _Spent]] = {"model": {}, "provider": {}, "worker": {}}
    for line in lines:
        for kind, name in (("model", line.label), ("provider", line.detail), ("worker", line.worker)):
            sums[kind].setdefault(name or UNKNOWN, _Spent()).add(line)
    return sums


def _ranked(sums: dict[str, _Spent]) -> list[NamedSum]:
    ordered = sorted(sums.items(), key=lambda item: (-item[1].nano_usd, -item[1].tokens, item[0]))
    return [
        NamedSum(name=name, cost_usd=spent.usd, tokens=spent.tokens, unpriced_tokens=spent.unpriced)
        for name, spent in ordered
        if spent.nano_usd or spent.tokens
    ]


def _per_day(lines: Iterable[StatLine], days: int) -> list[int]:
    counts = [0] * days
    for line in lines:
        counts[line.day] += line.amount
    return counts


def _tools(calls: list[StatLine], failed: list[StatLine]) -> list[ToolStats]:
    failures: dict[str, int] = defaultdict(int)
    totals: dict[str, int] = defaultdict(int)
    for lines, sums in ((calls, totals), (failed, failures)):
        for line in lines:
            sums[line.label] += line.amount
    names = sorted((name for name in totals if totals[name] > 0), key=lambda name: (-totals[name], name))
    return [ToolStats(name=name, calls=totals[name], failed=failures[name]) for name in names[:STATS_TOOLS]]


def _failures(lines: list[StatLine], newest: dict[FailureGroup, NewestFailure], days: int) -> list[FailureStats]:
    by_group: dict[FailureGroup, list[StatLine]] = defaultdict(list)
    for line in lines:
        by_group[line.label, line.detail].append(line)
    return [_failure(group, by_group[group], newest.get(group), days) for group in most_frequent_failures(lines)]


def _failure(group: FailureGroup, lines: list[StatLine], newest: NewestFailure | None, days: int) -> FailureStats:
    workers: dict[str, int] = defaultdict(int)
    for line in lines:
        workers[line.worker or UNKNOWN] += line.amount
    names = sorted((name for name in workers if workers[name] > 0), key=lambda name: (-workers[name], name))
    return FailureStats(
        code=group[0] or UNKNOWN,
        group=group[1],
        message=group[1] if newest is None else newest.message,
        total=sum(workers.values()),
        workers=names[:STATS_FAILURE_WORKERS],
        last_at=None if newest is None else newest.at,
        per_day=_per_day(lines, days),
    )
