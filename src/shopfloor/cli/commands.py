"""The table of commands: what `shopfloor --help` shows, without loading any of them."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Protocol, cast

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

COMMANDS: dict[str, str] = {
    "up": "Serve the runs of this machine: API, live streams, and all that keeps the rows",
    "run": "Run a command as a worker, live, and keep its transcript",
    "list": "List runs, newest first, with filters and search",
    "status": "Show how a run stands, and its timeline",
    "show": "Show a transcript readably",
    "tail": "Follow a run that is being written",
    "tree": "Draw the steps of a run and its sub-runs",
    "verify": "Hold transcript files against every rule of the format",
    "schema": "Print the JSON Schema of a transcript's lines",
    "rebuild": "Make the rows anew from the logs",
    "prune": "Delete runs that ended long ago",
}

EXAMPLES = """\
  shopfloor run --command 'pytest -q'    record a command
  shopfloor show last                    read it back
  shopfloor tail 5f3a                    watch one, named by the first characters of its id"""


class CommandModule(Protocol):
    """What each module of a command has."""

    def parser(self, name: str, summary: str) -> ArgumentParser: ...

    def run(self, args: Namespace) -> int: ...


def find_command(name: str) -> CommandModule:
    return cast("CommandModule", import_module(f"shopfloor.cli.{name}"))


def overview() -> str:
    width = max(map(len, COMMANDS))
    commands = "\n".join(f"  {name:<{width}}  {summary}" for name, summary in COMMANDS.items())
    return f"""\
Shopfloor runs AI workers and keeps the record.

Usage: shopfloor COMMAND [OPTIONS]

Commands:
{commands}

Options:
  -h, --help     Show this, or with a command what it takes
  -V, --version  Show the version

Examples:
{EXAMPLES}

Runs are kept in $SHOPFLOOR_STORAGE, or else in the user's data folder."""
