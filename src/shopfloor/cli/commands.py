"""The table of commands: what `shopfloor --help` shows, without loading any of them."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Protocol, cast

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

GROUPS: dict[str, dict[str, str]] = {
    "Run workers": {
        "up": "Serve this machine: API, live streams, and a host that makes runs",
        "down": "Stop the server of this machine",
        "run": "Run a worker, or a command, here and live, and keep its transcript",
        "resume": "Continue a run here whose process is gone",
        "dispatch": "Have the server run a worker, whoever watches",
        "answer": "Give a run what it waits for",
        "cancel": "End a run before its time",
        "workers": "List the workers that there are, check them, make new ones",
        "projects": "List the folders whose workers a server serves, add and remove them",
        "providers": "List the agents and model APIs that a task can be handed to",
    },
    "Say who may use the server": {
        "login": "Print a link that logs a browser in, once",
        "tokens": "List, make and revoke tokens and browser sessions",
        "audit": "Show who did what, from where and when",
    },
    "Read what they did": {
        "list": "List runs, newest first, with filters and search",
        "status": "Show how a run stands, and its timeline",
        "result": "Print what a run gave",
        "show": "Show a transcript readably",
        "tail": "Follow a run that is being written",
        "events": "List what an agent's session reported, as signals",
        "tree": "Draw the steps of a run and its sub-runs",
    },
    "Keep the record": {
        "normalize": "Turn what an agent printed into a transcript",
        "verify": "Hold transcript files against every rule of the format",
        "schema": "Print the JSON Schema of a transcript's lines",
        "rebuild": "Make the rows anew from the logs",
        "delete": "Delete runs that have ended",
        "prune": "Delete runs that ended long ago",
        "doctor": "Look at what this machine has, and say what is missing",
    },
}
COMMANDS: dict[str, str] = {name: summary for group in GROUPS.values() for name, summary in group.items()}

EXAMPLES = """\
  shopfloor run hello -i NAME=Ada        run a worker
  shopfloor run --provider claude-code 'fix the failing test'
                                         hand a task to an agent
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
    groups = "\n\n".join(
        "\n".join([f"{title}:", *(f"  {name:<{width}}  {summary}" for name, summary in group.items())])
        for title, group in GROUPS.items()
    )
    return f"""\
Shopfloor runs AI workers and keeps the record.

Usage: shopfloor COMMAND [OPTIONS]

{groups}

Options:
  -h, --help     Show this, or with a command what it takes
  -V, --version  Show the version

Examples:
{EXAMPLES}

Runs are kept in $SHOPFLOOR_STORAGE, or else in the user's data folder."""
