"""`shopfloor stats`: what runs cost and how they ended, per day, model, provider, worker, tool or error."""

from __future__ import annotations

import time
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, NamedTuple

import anyio

from shopfloor.cli.arguments import Parser, add_color_option, duration_seconds, storage_from_args
from shopfloor.cli.json_output import RESPONSE, add_json_option, print_json
from shopfloor.cli.run_filters import (
    ADVANCED,
    add_filter_options,
    add_zone_option,
    filter_parameters,
    local_zone,
    moment,
    time_parameter,
)
from shopfloor.cli.style import Style, format_cost, format_count, one_line
from shopfloor.wiring import open_api

EXAMPLES = """\
  shopfloor stats                              the last 14 days, day by day
  shopfloor stats --since 7d --by model        what each model cost this week
  shopfloor stats --by worker --since 30d      which worker spends most
  shopfloor stats --by tool                    which tools are called and fail
  shopfloor stats --by error --worker nightly  why runs of a worker failed
  shopfloor stats --json | jq .totals.cost_usd for programs"""
DETAILS = """\

Ranges are complete days of your time zone, and today is one of them: --since 7d
is today and the six days before.

Spending belongs to the day, the model and the provider that spent it. A run
counts its own: the spending of its sub-runs is theirs. UNPRICED are tokens whose
price is not known; they are not part of COST.

With other filters than --worker and --roots, the numbers are computed from the
runs that match in the range, which must be at most 100,000."""
_KINDS = ("day", "model", "provider", "worker", "tool", "error")
_STATUSES = ("all", "queued", "running", "waiting", "completed", "failed", "cancelled")
_NAME_CHARS = 48
_BAR_CHARS = 24
_DAY_SECONDS = 86_400
_PARTS = " ▏▎▍▌▋▊▉█"


class _Table(NamedTuple):
    """A table: its columns, the rows as text, and the number that the bar of each row shows."""

    head: list[str]
    rows: list[list[str]]
    values: list[float]


def parser(name: str, summary: str) -> ArgumentParser:
    """Return the parser of the command's arguments."""
    advanced = (*ADVANCED, "--min-cost", "--parent", "--search", "--owner", "--model", "--status", "--tz", "--debug")
    parser = Parser(name, summary, examples=EXAMPLES, details=DETAILS, advanced=advanced)
    parser.add_argument("--since", type=_since, metavar="TIME", help="begin with the day of TIME: 7d or 2026-11-15")
    parser.add_argument("--until", type=moment, metavar="TIME", help="end with the day of TIME (default: today)")
    parser.add_argument("--by", choices=_KINDS, default="day", metavar="KIND", help=f"one of {', '.join(_KINDS)}")
    add_zone_option(parser, "time zone of the days")
    parser.add_argument("--roots", action="store_true", help="only runs that no other run called")
    add_filter_options(parser, _STATUSES)
    add_json_option(parser, RESPONSE)
    add_color_option(parser)
    return parser


def run(args: Namespace) -> int:
    """Print the statistics."""
    zone = args.tz or local_zone()

    async def fetch() -> dict[str, Any]:
        async with open_api(storage_from_args(args)) as api:
            return await api.get(
                "/api/stats",
                **await filter_parameters(api, args),
                since=time_parameter(args.since, zone),
                until=time_parameter(args.until, zone),
                tz=zone,
                roots=args.roots or None,
            )

    stats = anyio.run(fetch)
    if args.json:
        print_json(stats)
        return 0
    style = Style.from_choice(args.color)
    for line in (*_summary(stats, style), "", *_lines(_TABLES[args.by](stats), style)):
        print(line)
    return 0


def _since(text: str) -> datetime:
    """Parse the start of the range; a duration is that many days, today included."""
    try:
        seconds = duration_seconds(text)
    except ArgumentTypeError:
        return moment(text)
    return datetime.fromtimestamp(time.time() - max(0.0, seconds - _DAY_SECONDS), UTC)


def _summary(stats: dict[str, Any], style: Style) -> list[str]:
    tiles, totals, days = stats["tiles"], stats["totals"], stats["days"]
    runs = f"{totals['runs']:,} run{'' if totals['runs'] == 1 else 's'}"
    percent = tiles["failed_percent_range"]
    failed = "" if percent is None else f"{totals['failed']:,} of {totals['ended']:,} failed ({percent:g} %)"
    facts = [runs, failed, *_spending(totals["cost_usd"], totals["unpriced_tokens"])]
    today = [f"{tiles['failed_today']:,} of {tiles['ended_today']:,} failed", *_spending(tiles["spent_today_usd"], 0)]
    now = (
        f"now {tiles['running']:,} running, {tiles['queued']:,} queued, {tiles['waiting']:,} waiting for a person · "
        f"today {', '.join(today)}"
    )
    return [f"{days[0]['day']} to {days[-1]['day']}: {', '.join(filter(None, facts))}", style.paint(now, "dim")]


def _spending(usd: float | None, unpriced: int) -> list[str]:
    spent = [] if usd is None else [f"{format_cost(usd)} spent"]
    return [*spent, f"{format_count(unpriced)} tokens without a price"] if unpriced else spent


def _by_day(stats: dict[str, Any]) -> _Table:
    days = stats["days"]
    return _Table(
        ["DAY", "RUNS", "FAILED", "TOKENS", "UNPRICED", "COST"],
        [[day["day"], f"{day['runs']:,}", f"{day['failed']:,}", *_spent(day)] for day in days],
        [day["cost_usd"] or 0.0 for day in days],
    )


def _spent(spending: dict[str, Any]) -> list[str]:
    unpriced = spending["unpriced_tokens"]
    cost = format_cost(spending["cost_usd"]) or "unknown"
    return [format_count(spending["tokens"]), format_count(unpriced) if unpriced else "", cost]


def _by_name(kind: str) -> Callable[[dict[str, Any]], _Table]:
    def build(stats: dict[str, Any]) -> _Table:
        sums = stats["by"][kind]
        rows = [[one_line(part["name"], _NAME_CHARS), *_spent(part)] for part in sums]
        return _Table([kind.upper(), "TOKENS", "UNPRICED", "COST"], rows, [part["cost_usd"] or 0.0 for part in sums])

    return build


def _by_tool(stats: dict[str, Any]) -> _Table:
    tools = stats["tools"]
    rows = [[one_line(tool["name"], _NAME_CHARS), f"{tool['calls']:,}", f"{tool['failed']:,}"] for tool in tools]
    return _Table(["TOOL", "CALLS", "FAILED"], rows, [tool["calls"] for tool in tools])


def _by_error(stats: dict[str, Any]) -> _Table:
    failures = stats["failures"]
    rows = [
        [one_line(f"{failure['code']}: {failure['message']}", 2 * _NAME_CHARS), f"{failure['total']:,}"]
        for failure in failures
    ]
    return _Table(["ERROR", "RUNS"], rows, [failure["total"] for failure in failures])


_TABLES: dict[str, Callable[[dict[str, Any]], _Table]] = {
    "day": _by_day,
    **{kind: _by_name(kind) for kind in ("model", "provider", "worker")},
    "tool": _by_tool,
    "error": _by_error,
}


def _lines(table: _Table, style: Style) -> list[str]:
    """Return the lines of a table: the first column on the left, numbers on the right, then a bar."""
    if not table.rows:
        return [style.paint("nothing in this range", "dim")]
    widths = [max(map(len, column)) for column in zip(table.head, *table.rows, strict=True)]
    largest = max(table.values, default=0.0)
    lines = [style.paint(_row(table.head, widths), "dim")]
    for row, value in zip(table.rows, table.values, strict=True):
        bar = _bar(value / largest) if largest > 0 else ""
        lines.append(f"{_row(row, widths)}  {style.paint(bar, 'cyan')}".rstrip())
    return lines


def _row(cells: list[str], widths: list[int]) -> str:
    first, *others = (
        cell.rjust(width) if place else cell.ljust(width)
        for place, (cell, width) in enumerate(zip(cells, widths, strict=True))
    )
    return "  ".join([first, *others])


def _bar(share: float) -> str:
    """Return a bar for a share of the largest value; at least the thinnest one if there is any."""
    eighths = max(round(share * _BAR_CHARS * 8), 1 if share > 0 else 0)
    return _PARTS[8] * (eighths // 8) + (_PARTS[eighths % 8] if eighths % 8 else "")
