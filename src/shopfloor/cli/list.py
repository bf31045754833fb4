"""`shopfloor list`: list and search runs, newest first."""

from __future__ import annotations

import contextlib
import json
import shutil
import time
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Iterator
from datetime import datetime
from typing import Any, cast

import anyio

from shopfloor.cli.arguments import Parser, add_color_option, duration_seconds, positive_int, storage_from_args
from shopfloor.cli.client_session import API_COMPLETED, resolve_run_id, run_status
from shopfloor.cli.style import Style, escape_json_for_terminal, format_age, format_duration, one_line
from shopfloor.log import format_timestamp
from shopfloor.views import HIT_BEGIN, HIT_END, INTERRUPTED
from shopfloor.wiring import open_api

EXAMPLES = """\
  shopfloor list                               the newest runs
  shopfloor list --status failed --owner ada   failed runs of one owner
  shopfloor list --worker hello --since 2h     started in the last two hours
  shopfloor list --search 'assertion error'    both words, in any text
  shopfloor list --search '"exit code 3"'      the exact phrase
  shopfloor list --json | jq '.workers[].id'   for programs

The JSON uses an older name for a run, worker: `workers` is the list of runs,
and `worker_id`, in other responses of the API, is a run's id."""
DETAILS = """\

--search finds whole words in the texts of a run, and any part of a word in its
task."""
_COLORS = {
    "completed": "green",
    "failed": "red",
    "cancelled": "yellow",
    "running": "cyan",
    "waiting": "cyan",
    INTERRUPTED: "yellow",
}
_STATUS_CHARS = len(INTERRUPTED)
_BRACKETS = str.maketrans({HIT_BEGIN: "[", HIT_END: "]"})
_WORKER_CHARS = 24
_TIMES = "2h, 7d or 2026-11-15T10:00:00Z"
_STATUSES = ("all", "queued", "running", "waiting", "completed", "failed", "cancelled")


def parser(name: str, summary: str) -> ArgumentParser:
    """Return the parser of the command's arguments."""
    parser = Parser(
        name, summary, examples=EXAMPLES, details=DETAILS, advanced=("--type", "--channel", "--cursor", "--debug")
    )
    parser.add_argument("--owner", metavar="NAME", help="only runs of this owner")
    parser.add_argument(
        "--status",
        choices=(*_STATUSES, API_COMPLETED),
        default="all",
        metavar="STATUS",
        help=f"one of {', '.join(_STATUSES)}",
    )
    parser.add_argument("--worker", metavar="NAME", help="only runs of this worker")
    parser.add_argument("--type", metavar="NAME", help="only runs of this worker type, e.g. command")
    parser.add_argument("--channel", metavar="ID", help="only runs from this channel")
    parser.add_argument("--parent", metavar="RUN", help="only sub-runs of this run")
    parser.add_argument("--since", type=_moment, metavar="TIME", help=f"only runs started after TIME: {_TIMES}")
    parser.add_argument("--until", type=_moment, metavar="TIME", help="only runs started before TIME")
    parser.add_argument("--search", metavar="WORDS", help='only runs with all these words and "phrases"')
    parser.add_argument("--limit", type=positive_int, default=50, metavar="N", help="list at most N runs (default: 50)")
    parser.add_argument("--cursor", metavar="CURSOR", help="continue after a page; the page names its cursor")
    parser.add_argument("--json", action="store_true", help="print the response of the API")
    add_color_option(parser)
    return parser


def run(args: Namespace) -> int:
    """Print a page of runs."""

    async def fetch() -> dict[str, Any]:
        async with open_api(storage_from_args(args)) as api:
            return await api.get(
                "/api/agents/workers",
                agent_id=args.owner,
                status=API_COMPLETED if args.status == "completed" else args.status,
                worker=args.worker,
                worker_type=args.type,
                channel_id=args.channel,
                parent=args.parent and await resolve_run_id(api, args, args.parent),
                since=args.since,
                until=args.until,
                q=args.search,
                limit=args.limit,
                cursor=args.cursor,
            )

    page = anyio.run(fetch)
    if args.json:
        print(escape_json_for_terminal(json.dumps(page, ensure_ascii=False)))
        return 0
    style = Style.from_choice(args.color)
    runs = cast("list[dict[str, Any]]", page["workers"])
    for line in table(runs, style, shutil.get_terminal_size((120, 24)).columns):
        print(line)
    shown = f"{len(runs):,} of {page['total']:,} runs"
    more = f"; the next page: --cursor {page['next']}" if page["next"] else ""
    print(style.paint(shown + more, "dim"))
    return 0


def _moment(text: str) -> str:
    """Parse a point in time; a duration means that long ago."""
    with contextlib.suppress(ArgumentTypeError):
        return format_timestamp(int((time.time() - duration_seconds(text)) * 1000))
    try:
        datetime.fromisoformat(text)
    except ValueError:
        raise ArgumentTypeError(f"must be a time such as {_TIMES}, got {text!r}") from None
    return text


def table(runs: list[dict[str, Any]], style: Style, width: int) -> list[str]:
    """Return the lines for a page of runs."""
    names = max([len(_worker_label(run)) for run in runs], default=0)
    lines: list[str] = []
    for run in runs:
        status = run_status(run)
        times = f"{format_age(run['started_at']):>8}  {_duration(run):>11}"
        worker = one_line(_worker_label(run), _WORKER_CHARS).ljust(min(names, _WORKER_CHARS))
        task = one_line(run["task"], max(20, width - len(worker) - _STATUS_CHARS - 37))
        shown = style.paint(status.ljust(_STATUS_CHARS), _COLORS.get(status, "dim"))
        lines.append(f"{run['id'][:8]}  {shown}  {times}  {style.paint(worker, 'dim')}  {task}")
        lines += (style.paint(f"          {one_line(line, width - 10)}", "dim") for line in _extra_lines(run))
    return lines


def _duration(run: dict[str, Any]) -> str:
    """Return how long the run took, or how far it is."""
    progress = None if run["completed_at"] else run.get("progress")
    return format_duration(run["duration_ms"]) if progress is None else f"{progress:.0%}"


def _extra_lines(run: dict[str, Any]) -> Iterator[str]:
    """Yield the lines below a run: why it is queued, what it waits for, and where the search found it."""
    if run.get("queue_reason"):
        yield str(run["queue_reason"])
    for line in run.get("asks") or ():
        yield line if line.startswith("waits for ") else f"waits for {line}"
    if run.get("snippet"):
        yield str(run["snippet"]).translate(_BRACKETS)
    if run.get("search_stopped_at") is not None and "snippet" in run:
        yield f"only the text up to event {run['search_stopped_at']:,} is searched: the run has too much text"


def _worker_label(run: dict[str, Any]) -> str:
    """Return the worker, with the owner of the run unless that is the worker itself or the parent run."""
    name, owner = str(run["name"] or run["worker_type"]), str(run["agent_id"] or "")
    return name if owner in ("", name) or run["parent_run_id"] else f"{name} for {owner}"
