"""`shopfloor list`: list and search runs, newest first."""

from __future__ import annotations

import shutil
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import anyio
import msgspec

from shopfloor.cli.arguments import Parser, add_color_option, positive_int, storage_from_args
from shopfloor.cli.client_session import run_status
from shopfloor.cli.json_output import RESPONSE, add_json_option, print_json
from shopfloor.cli.run_filters import (
    ADVANCED,
    TIMES,
    add_filter_options,
    add_zone_option,
    filter_parameters,
    local_zone,
    moment,
    time_parameter,
)
from shopfloor.cli.style import (
    Style,
    format_age,
    format_cost,
    format_count,
    format_duration,
    one_line,
)
from shopfloor.views import HIT_BEGIN, HIT_END, INTERRUPTED
from shopfloor.wiring import open_api

EXAMPLES = """\
  shopfloor list                               the newest runs
  shopfloor list --all                         with the runs that they called
  shopfloor list --status failed --owner ada   failed runs of one owner
  shopfloor list --since 7d --sort cost        the costliest of a week
  shopfloor list --search 'assertion error'    both words, in any text
  shopfloor list --json | jq '.workers[].id'   for programs"""
DETAILS = """\
  shopfloor list --search '"exit code 3"'      the exact phrase
  shopfloor list --columns id,cost,tokens,task

The list has the runs that no other run called; --all, --parent, --search and
--status waiting include sub-runs. COST includes sub-runs.

--search finds whole words in the texts of a run, and any part of a word in its
task.

The JSON uses an older name for a run, worker: `workers` is the list of runs,
and `worker_id`, in other responses of the API, is a run's id."""
_COLORS = {
    "completed": "green",
    "failed": "red",
    "cancelled": "yellow",
    "running": "cyan",
    "waiting": "cyan",
    INTERRUPTED: "yellow",
}
_BRACKETS = str.maketrans({HIT_BEGIN: "[", HIT_END: "]"})
_STATUSES = ("all", "queued", "running", INTERRUPTED, "waiting", "completed", "failed", "cancelled")
_ORDERS = ("newest", "oldest", "cost", "duration")
_NARROW = 100
"""With fewer columns, the terminal has no space for the model."""
_TASK_CHARS = 20
_GAP = "  "


class _Column(msgspec.Struct, frozen=True):
    """A column of the table."""

    text: Callable[[dict[str, Any]], str]
    width: int
    """At most this many characters."""
    is_number: bool = False


def _worker_label(run: dict[str, Any]) -> str:
    """Return the worker, with the owner of the run unless that is the worker itself or the parent run."""
    name, owner = str(run["name"] or run["worker_type"]), str(run["agent_id"] or "")
    return name if owner in ("", name) or run["parent_run_id"] else f"{name} for {owner}"


def _duration(run: dict[str, Any]) -> str:
    """Return how long the run took, or how far it is."""
    progress = None if run["completed_at"] else run.get("progress")
    return format_duration(run["duration_ms"]) if progress is None else f"{progress:.0%}"


def _tokens(run: dict[str, Any]) -> str:
    usage = run["tree_usage"]
    return format_count(sum(usage[kind] for kind in ("input", "output", "cache_read", "cache_write")))


def _activity(run: dict[str, Any]) -> str:
    """Return what a running run does now."""
    activity = run.get("activity")
    return "" if activity is None else f"{activity['name']} {activity['preview']}".strip()


COLUMNS: dict[str, _Column] = {
    "id": _Column(lambda run: str(run["id"])[:8], 8),
    "status": _Column(run_status, len(INTERRUPTED)),
    "started": _Column(lambda run: format_age(run["started_at"]), 8, is_number=True),
    "duration": _Column(_duration, 12, is_number=True),
    "cost": _Column(lambda run: format_cost(run["tree_cost_usd"]), 9, is_number=True),
    "tokens": _Column(_tokens, 8, is_number=True),
    "tools": _Column(lambda run: str(run["tool_calls"]), 6, is_number=True),
    "model": _Column(lambda run: str(run["model"] or ""), 18),
    "provider": _Column(lambda run: str(run["provider"] or ""), 14),
    "worker": _Column(_worker_label, 24),
    "owner": _Column(lambda run: str(run["agent_id"] or ""), 20),
    "channel": _Column(lambda run: str(run["channel_name"] or run["channel_id"] or ""), 20),
    "error": _Column(lambda run: str(run["error"]["code"] or "") if run["error"] else "", 24),
    "activity": _Column(_activity, 1_000),
    "task": _Column(lambda run: str(run["task"]), 1_000),
}
_DEFAULT = ("id", "status", "started", "duration", "cost", "model", "worker", "task")


def parser(name: str, summary: str) -> ArgumentParser:
    """Return the parser of the command's arguments."""
    parser = Parser(
        name,
        summary,
        examples=EXAMPLES,
        details=DETAILS,
        advanced=(*ADVANCED, "--ended-until", "--tz", "--roots", "--cursor", "--debug"),
    )
    add_filter_options(parser, _STATUSES)
    parser.add_argument("--since", type=moment, metavar="TIME", help=f"only runs started after TIME: {TIMES}")
    parser.add_argument("--until", type=moment, metavar="TIME", help="only runs started before TIME")
    parser.add_argument("--ended-since", type=moment, metavar="TIME", help="only runs that ended after TIME")
    parser.add_argument("--ended-until", type=moment, metavar="TIME", help="only runs that ended before TIME")
    add_zone_option(parser, "time zone of a TIME without one")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--all", action="store_true", help="also list the runs that other runs called")
    which.add_argument("--roots", action="store_true", help="only runs that no other run called")
    parser.add_argument(
        "--sort", choices=_ORDERS, default="newest", help=f"one of {', '.join(_ORDERS)}", metavar="ORDER"
    )
    parser.add_argument("--columns", type=_columns, metavar="NAMES", help=f"a list of: {', '.join(COLUMNS)}")
    parser.add_argument("--limit", type=positive_int, default=50, metavar="N", help="list at most N runs (default: 50)")
    parser.add_argument("--cursor", metavar="CURSOR", help="continue after a page; the page names its cursor")
    add_json_option(parser, RESPONSE)
    add_color_option(parser)
    return parser


def run(args: Namespace) -> int:
    """Print a page of runs."""
    zone = args.tz or local_zone()

    async def fetch() -> dict[str, Any]:
        async with open_api(storage_from_args(args)) as api:
            return await api.get(
                "/api/agents/workers",
                **await filter_parameters(api, args),
                since=time_parameter(args.since, zone),
                until=time_parameter(args.until, zone),
                ended_since=time_parameter(args.ended_since, zone),
                ended_until=time_parameter(args.ended_until, zone),
                roots=_only_roots(args),
                sort=args.sort,
                limit=args.limit,
                cursor=args.cursor,
            )

    page = anyio.run(fetch)
    if args.json:
        print_json(page)
        return 0
    style = Style.from_choice(args.color)
    runs = cast("list[dict[str, Any]]", page["workers"])
    width = shutil.get_terminal_size((120, 24)).columns
    names = args.columns or [name for name in _DEFAULT if name != "model" or width >= _NARROW]
    for line in table(runs, style, width, names):
        print(line)
    shown = f"{len(runs):,} of {page['total']:,} runs"
    more = f"; the next page: --cursor {page['next']}" if page["next"] else ""
    print(style.paint(shown + more, "dim"))
    return 0


def _only_roots(args: Namespace) -> bool | None:
    """Return whether only runs without a parent are listed: by default, unless the other options look for any run."""
    looks_for_any = args.all or args.parent or args.worker or args.search or args.status == "waiting"
    return True if args.roots or not looks_for_any else None


def _columns(text: str) -> list[str]:
    names = [name for name in text.replace(" ", ",").split(",") if name]
    unknown = [name for name in names if name not in COLUMNS]
    if unknown or not names:
        raise ArgumentTypeError(f"must be a list of {', '.join(COLUMNS)}; got {text!r}")
    return names


def table(runs: list[dict[str, Any]], style: Style, width: int, names: Sequence[str] = _DEFAULT) -> list[str]:
    """Return the lines for a page of runs, the first with the names of the columns."""
    if not runs:
        return []
    columns = [COLUMNS[name] for name in names]
    cells = [[one_line(column.text(run), column.width) for column in columns] for run in runs]
    widths = [max(len(name), *(len(row[place]) for row in cells)) for place, name in enumerate(names)]
    if "task" in names:
        place = names.index("task")
        others = sum(widths) - widths[place] + len(_GAP) * (len(names) - 1)
        widths[place] = max(_TASK_CHARS, min(widths[place], width - others))
    head = [_aligned(name.upper(), column, size) for name, column, size in zip(names, columns, widths, strict=True)]
    lines = [style.paint(_GAP.join(head).rstrip(), "dim")]
    for run, row in zip(runs, cells, strict=True):
        shown = [
            _painted(name, _aligned(one_line(cell, size), column, size), run, style)
            for name, cell, column, size in zip(names, row, columns, widths, strict=True)
        ]
        lines.append(_GAP.join(shown).rstrip())
        lines += (style.paint(f"          {one_line(line, width - 10)}", "dim") for line in _extra_lines(run))
    return lines


def _aligned(text: str, column: _Column, width: int) -> str:
    return text.rjust(width) if column.is_number else text.ljust(width)


def _painted(name: str, text: str, run: dict[str, Any], style: Style) -> str:
    if name == "status":
        return style.paint(text, _COLORS.get(run_status(run), "dim"))
    return style.paint(text, "dim") if name in ("worker", "model", "provider", "owner") else text


def _extra_lines(run: dict[str, Any]) -> Iterator[str]:
    """Yield the lines below a run: why no host executes it, what it waits for, and where the search found it."""
    if run.get("queue_reason"):
        yield str(run["queue_reason"])
    for line in run.get("asks") or ():
        yield line if line.startswith("waits for ") else f"waits for {line}"
    if run.get("snippet"):
        yield str(run["snippet"]).translate(_BRACKETS)
    if run.get("search_stopped_at") is not None and "snippet" in run:
        yield f"only the text up to event {run['search_stopped_at']:,} is searched: the run has too much text"
