"""`shopfloor waiting`: list what waits for a person."""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, cast

import anyio

from shopfloor.cli.arguments import Parser, add_color_option, storage_from_args
from shopfloor.cli.style import Style, escape_controls, escape_json_for_terminal, format_age, one_line
from shopfloor.limits import PREVIEW_CHARS
from shopfloor.wiring import open_api

EXAMPLES = """\
  shopfloor waiting                                 and how to answer each
  shopfloor waiting --json | jq -r '.items[].text'  for programs

The longest wait comes first. `client_tool` is a call that the program which
started the run should answer; a person can answer it too."""


def parser(name: str, summary: str) -> ArgumentParser:
    """Return the parser of the command's arguments."""
    parser = Parser(name, summary, examples=EXAMPLES)
    parser.add_argument("--json", action="store_true", help="print the response of the API")
    add_color_option(parser)
    return parser


def run(args: Namespace) -> int:
    """Print the pending requests of all runs."""

    async def fetch() -> dict[str, Any]:
        async with open_api(storage_from_args(args)) as api:
            return await api.get("/api/waiting")

    found = anyio.run(fetch)
    if args.json:
        print(escape_json_for_terminal(json.dumps(found, ensure_ascii=False)))
        return 0
    items = cast("list[dict[str, Any]]", found["items"])
    for line in waiting_lines(items, Style.from_choice(args.color)):
        print(line)
    if not items:
        print("nothing waits for you")
    return 0


def waiting_lines(items: Sequence[dict[str, Any]], style: Style) -> Iterator[str]:
    """Yield the lines for each request: the run, what it asks for, and the command that answers it."""
    per_run = Counter(str(item["run_id"]) for item in items)
    for item in items:
        run_id = str(item["run_id"])
        title = one_line(f"{item['worker']}: {item['title']}", PREVIEW_CHARS // 2)
        kind = escape_controls(str(item["kind"])).ljust(11)
        yield f"{style.paint(run_id[:8], 'bold')}  {kind}  {format_age(item['since']):>8}  {title}"
        yield f"          {style.paint(one_line(item['text'], PREVIEW_CHARS), 'cyan')}"
        options = cast("list[str]", item["options"] or [])
        for number, option in enumerate(options, start=1):
            yield f"            {number}. {one_line(option, PREVIEW_CHARS)}"
        if item["until"]:
            yield style.paint(f"          until {escape_controls(str(item['until']))}", "dim")
        call = f" {_shell_word(str(item['call_id']))}" if per_run[run_id] > 1 else ""
        yield f"          shopfloor answer {run_id[:8]}{call} {'1' if options else chr(39) + 'TEXT' + chr(39)}"


def _shell_word(text: str) -> str:
    import shlex

    return escape_controls(shlex.quote(text))
