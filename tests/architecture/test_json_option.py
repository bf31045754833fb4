"""Every command that prints a result has `--json`, and docs/reference/json.md says what it prints."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from typing import Any, cast

import pytest
from tools.docs_source import ROOT

from shopfloor.cli.main import COMMANDS, find_command

PAGE = ROOT / "docs" / "reference" / "json.md"
WITHOUT_RESULT = {
    "up": "serves until it is stopped",
    "host": "serves until it is stopped",
    "mcp serve": "its stdout belongs to the protocol",
    "open": "opens a browser; `login --json` prints a link",
    "export": "writes a document, Markdown or HTML",
    "prompt": "prints a text for a prompt",
    "completion": "prints a script",
    "schema": "prints a JSON Schema",
    "normalize": "prints a transcript, which is lines of JSON",
}
"""The commands without `--json`, each with the reason."""


def commands() -> Iterator[tuple[str, set[str]]]:
    """Yield each command, also those inside commands, with its options."""
    for name, summary in COMMANDS.items():
        yield from _inner(name, find_command(name).parser(name, summary))


def _inner(name: str, parser: argparse.ArgumentParser) -> Iterator[tuple[str, set[str]]]:
    actions = cast("list[argparse.Action]", parser._actions)
    parts: dict[str, Any] = {}
    for action in actions:
        if action.nargs == argparse.PARSER:
            parts |= cast("dict[str, Any]", action.choices)
    for part, inner in parts.items():
        yield from _inner(f"{name} {part}", inner)
    if not parts:
        yield name, {word for action in actions for word in action.option_strings}


@pytest.mark.req("SF-66")
def test_every_command_that_prints_a_result_has_json() -> None:
    without = {name for name, options in commands() if "--json" not in options}
    assert without == set(WITHOUT_RESULT)


@pytest.mark.req("SF-66")
def test_the_reference_says_what_each_command_prints_as_json() -> None:
    page = PAGE.read_text(encoding="utf-8")
    described = re.findall(r"^\| `([a-z ]+)` \| \S", page, re.MULTILINE)
    assert sorted(described) == sorted(name for name, options in commands() if "--json" in options)
    ending = page[page.index("## Commands without the option") :]
    assert all(f"`{name}`" in ending for name in WITHOUT_RESULT)
