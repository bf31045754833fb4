"""`shopfloor list`: the runs, newest first."""

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
from shopfloor.cli.client_session import resolve_run_id
from shopfloor.cli.style import Style, escape_json_for_terminal, format_age, format_duration, one_line
from shopfloor.log import format_timestamp
from shopfloor.views import HIT_BEGIN, HIT_END, INTERRUPTED
from shopfloor.wiring import open_api

EXAMPLES = """\
  shopfloor list                              the newest runs
  shopfloor list --status failed --owner ada  of somebody, that failed
  shopfloor list --worker hello --since 2h    of one worker, begun in the last two hours
  shopfloor list --search 'assertion error'   with these words, in any text of the run
  shopfloor list --search '"exit code 3"'     with this phrase; in a task, any part of a word is found
  shopfloor list --json | jq '.workers[].id'  as the API gives them"""
_LOOKS = {
    "done": "green",
    "failed": "red",
    "cancelled": "yellow",
    "running": "cyan",
    "waiting": "cyan",
    INTERRUPTED: "yellow",
}
_STATUS_CHARS = len(INTERRUPTED)
_BRACKETS = str.maketrans({HIT_BEGIN: "[", HIT_END: "]"})
_WORKER_CHARS = 24
_TIMES = "2h, 7d, or 2026-11-15T10:00:00Z"
_STATUSES = ("all", "queued", "running", "waiting", "done", "failed", "cancelled")


def parser(name: str, summary: str) -> ArgumentParser:
    parser = Parser(name, summary, examples=EXAMPLES)
    parser.add_argument("--owner", metavar="NAME", help="on whose behalf")
    parser.add_argument("--status", choices=_STATUSES, default="all", help="how they stand (default: all)")
    parser.add_argument("--worker", metavar="NAME", help="the worker that they are runs of")
    parser.add_argument("--type", metavar="NAME", help="the worker type, e.g. command")
    parser.add_argument("--channel", metavar="ID", help="where they came from")
    parser.add_argument("--parent", metavar="RUN", help="the sub-runs of this run (its id or its first characters)")
    parser.add_argument(
        "--since", type=_moment, metavar="TIME", help="begun after this: 2h, 7d, or 2026-11-15T10:00:00Z"
    )
    parser.add_argument("--until", type=_moment, metavar="TIME", help="begun before this")
    parser.add_argument("--search", metavar="WORDS", help='all of these words and "quoted phrases", in any text')
    parser.add_argument("--limit", type=positive_int, default=50, metavar="N", help="at most so many (default: 50)")
    parser.add_argument("--cursor", metavar="CURSOR", help="the next page, as the page before said")
    parser.add_argument("--json", action="store_true", help="as the API gives them")
    add_color_option(parser)
    return parser


def run(args: Namespace) -> int:
    async def ask() -> dict[str, Any]:
        async with open_api(storage_from_args(args)) as api:
            return await api.get(
                "/api/agents/workers",
                agent_id=args.owner,
                status=args.status,
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

    page = anyio.run(ask)
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
    """A point in time; where somebody writes a span, that long ago."""
    with contextlib.suppress(ArgumentTypeError):
        return format_timestamp(int((time.time() - duration_seconds(text)) * 1000))
    try:
        datetime.fromisoformat(text)
    except ValueError:
        raise ArgumentTypeError(f"{text!r} is no time: {_TIMES}") from None
    return text


def table(runs: list[dict[str, Any]], style: Style, width: int) -> list[str]:
    names = max([len(_worker(run)) for run in runs], default=0)
    lines: list[str] = []
    for run in runs:
        status = run_status(run)
        times = f"{format_age(run['started_at']):>8}  {format_duration(run['duration_ms']):>11}"
        worker = one_line(_worker(run), _WORKER_CHARS).ljust(min(names, _WORKER_CHARS))
        task = one_line(run["task"], max(20, width - len(worker) - _STATUS_CHARS - 37))
        shown = style.paint(status.ljust(_STATUS_CHARS), _LOOKS.get(status, "dim"))
        lines.append(f"{run['id'][:8]}  {shown}  {times}  {style.paint(worker, 'dim')}  {task}")
        lines += (style.paint(f"          {one_line(line, width - 10)}", "dim") for line in _below(run))
    return lines


def run_status(run: dict[str, Any]) -> str:
    """The status to show: `interrupted` for a run that would be running if a process worked on it."""
    return INTERRUPTED if run.get("interrupted") else str(run["status"])


def _below(run: dict[str, Any]) -> Iterator[str]:
    """What is to be said of a run on lines of its own."""
    for line in run.get("asks") or ():
        yield line if line.startswith("waits for ") else f"waits for {line}"
    if run.get("snippet"):
        yield str(run["snippet"]).translate(_BRACKETS)
    if run.get("search_stopped_at") is not None and "snippet" in run:
        yield f"search stops at event {run['search_stopped_at']:,}: the run has more text than is indexed"


def _worker(run: dict[str, Any]) -> str:
    """The worker, and whom it worked for, where that is neither itself nor the run that called it."""
    name, owner = str(run["name"] or run["worker_type"]), str(run["agent_id"] or "")
    return name if owner in ("", name) or run["parent_run_id"] else f"{name} for {owner}"
