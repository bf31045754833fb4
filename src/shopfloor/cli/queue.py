"""`shopfloor queue`: show which runs have not started, and why."""

from __future__ import annotations

import shutil
from argparse import ArgumentParser, Namespace
from typing import Any, cast

import anyio

from shopfloor.cli.arguments import Parser, add_color_option, storage_from_args
from shopfloor.cli.json_output import RESPONSE, add_json_option, print_json
from shopfloor.cli.style import Style, escape_controls, format_age, one_line
from shopfloor.wiring import open_api

EXAMPLES = """\
  shopfloor queue                           the reasons, with the next runs
  shopfloor queue --json | jq .groups[0]    for programs
  shopfloor list --status queued            every queued run"""
_SHOWN_RUNS = 5


def parser(name: str, summary: str) -> ArgumentParser:
    """Return the parser of the command's arguments."""
    parser = Parser(name, summary, examples=EXAMPLES)
    add_json_option(parser, RESPONSE)
    add_color_option(parser)
    return parser


def run(args: Namespace) -> int:
    """Print the queued runs by the reason why they wait."""

    async def fetch() -> dict[str, Any]:
        async with open_api(storage_from_args(args)) as api:
            return await api.get("/api/queue")

    queue = anyio.run(fetch)
    if args.json:
        print_json(queue)
        return 0
    style, width = Style.from_choice(args.color), shutil.get_terminal_size((120, 24)).columns
    for group in cast("list[dict[str, Any]]", queue["groups"]):
        print(f"{group['total']:,} {'run' if group['total'] == 1 else 'runs'}: {escape_controls(group['message'])}")
        for queued in cast("list[dict[str, Any]]", group["runs"][:_SHOWN_RUNS]):
            age = format_age(queued["queued_at"]) if queued["queued_at"] else ""
            priority = f"  priority {queued['priority']}" if queued["priority"] else ""
            task = one_line(queued["task"], max(20, width - 45))
            print(f"  {queued['run_id'][:8]}  {age:>8}  {style.paint(queued['worker'], 'dim')}  {task}{priority}")
        if group["total"] > _SHOWN_RUNS:
            print(style.paint(f"  … {group['total'] - _SHOWN_RUNS:,} more", "dim"))
    print(style.paint(_totals(queue), "dim"))
    return 0


def _totals(queue: dict[str, Any]) -> str:
    """Return how many runs are queued, and how long those of the last hour waited."""
    total, started = queue["total"], queue["started_last_hour"]
    queued = "1 run is queued" if total == 1 else f"{total:,} runs are queued" if total else "no run is queued"
    if not started:
        return f"{queued}; none started in the last hour"
    waits = f"half of them waited at most {queue['wait_p50_seconds']:.3g} s, 95% {queue['wait_p95_seconds']:.3g} s"
    return f"{queued}; {started:,} started in the last hour: {waits}"
