"""`shopfloor waiting`: list what waits for a person, and dismiss failures."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, cast

import anyio

from shopfloor.cli.arguments import Parser, add_color_option, storage_from_args
from shopfloor.cli.client_session import resolve_run_id
from shopfloor.cli.json_output import RESPONSE, add_json_option, print_json
from shopfloor.cli.pending_calls import answer_command, approval_lines
from shopfloor.cli.style import Style, escape_controls, format_age, one_line
from shopfloor.limits import PREVIEW_CHARS
from shopfloor.views import APPROVAL
from shopfloor.wiring import open_api

EXAMPLES = """\
  shopfloor waiting                                 and how to answer each
  shopfloor waiting --json | jq -r '.items[].text'  for programs
  shopfloor waiting --dismiss 5f3a                  a failure needs nothing more

The longest wait comes first. `client_tool` is a call that the program which
started the run should answer; a person can answer it too. `failure` is a run of
the last 7 days that failed for a reason only a person can remove, such as a
login or a budget; it waits until it is rerun, continued, forked or dismissed."""
_COMMANDS = {
    "rerun": "shopfloor rerun",
    "cancel": "shopfloor cancel",
    "dismiss": "shopfloor waiting --dismiss",
}
"""The commands for the actions of the API, except answers."""


_KIND_CHARS = len("definition_changed")


def parser(name: str, summary: str) -> ArgumentParser:
    """Return the parser of the command's arguments."""
    parser = Parser(name, summary, examples=EXAMPLES)
    parser.add_argument("--dismiss", metavar="RUN", help="let a failed run no longer wait; its record stays")
    add_json_option(parser, RESPONSE)
    add_color_option(parser)
    return parser


def run(args: Namespace) -> int:
    """Print what waits for a person, or dismiss a failure."""
    if args.dismiss is not None:
        dismissed = anyio.run(_dismiss, args)
        print_json({"run_id": dismissed}) if args.json else print(f"dismissed {dismissed}")
        return 0

    async def fetch() -> dict[str, Any]:
        async with open_api(storage_from_args(args)) as api:
            return await api.get("/api/waiting")

    found = anyio.run(fetch)
    if args.json:
        print_json(found)
        return 0
    items = cast("list[dict[str, Any]]", found["items"])
    for line in waiting_lines(items, Style.from_choice(args.color)):
        print(line)
    if not items:
        print("nothing waits for you")
    return 0


async def _dismiss(args: Namespace) -> str:
    async with open_api(storage_from_args(args)) as api:
        run_id = await resolve_run_id(api, args, args.dismiss)
        await api.dismiss(run_id)
        return run_id


def waiting_lines(items: Sequence[dict[str, Any]], style: Style) -> Iterator[str]:
    """Yield the lines for each item: the run, what it asks for or why it failed, and the commands to act."""
    per_run = Counter(str(item["run_id"]) for item in items)
    for item in items:
        run_id = str(item["run_id"])
        title = one_line(f"{item['worker']}: {item['title']}", PREVIEW_CHARS // 2)
        kind = escape_controls(str(item["kind"])).ljust(_KIND_CHARS)
        yield f"{style.paint(run_id[:8], 'bold')}  {kind}  {format_age(item['since']):>8}  {title}"
        color = "red" if item["error_code"] else "cyan"
        is_approval = item["kind"] == APPROVAL
        for line in approval_lines(item["text"]) if is_approval else [one_line(item["text"], PREVIEW_CHARS)]:
            yield f"          {style.paint(line, color)}"
        if item["hint"]:
            yield style.paint(f"          {one_line(item['hint'], PREVIEW_CHARS)}", "dim")
        options = cast("list[str]", item["options"] or [])
        for number, option in enumerate(options, start=1):
            yield f"            {number}. {one_line(option, PREVIEW_CHARS)}"
        if item["until"]:
            yield style.paint(f"          until {escape_controls(str(item['until']))}", "dim")
        for action in item["actions"]:
            if action in _COMMANDS:
                yield f"          {_COMMANDS[action]} {run_id[:8]}"
        if item["call_id"] is None:
            continue
        call_id = str(item["call_id"]) if per_run[run_id] > 1 else None
        yield f"          {answer_command(run_id, call_id, item['kind'], has_options=bool(options))}"
