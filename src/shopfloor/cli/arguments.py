"""What the commands' parsers have in common."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final, NoReturn

from shopfloor.cli.style import escape_controls
from shopfloor.errors import InvalidEvent, UsageError, missing_working_directory
from shopfloor.limits import LONGEST_SPAN_SECONDS, UNPARSED_LINE_WARNINGS
from shopfloor.log import Entry, Event, decode
from shopfloor.record import Problem, Storage


class Parser(argparse.ArgumentParser):
    """Errors in our words, and examples in the help."""

    def __init__(self, name: str, summary: str, *, examples: str) -> None:
        super().__init__(
            prog=f"shopfloor {name}",
            description=f"{summary}.",
            epilog=f"Examples:\n{examples}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        common = self.add_argument_group("everywhere")
        common.add_argument(
            "--storage", metavar="DIR", help="where runs are kept (default: $SHOPFLOOR_STORAGE, or in your data folder)"
        )
        common.add_argument("--debug", action="store_true", help="show a traceback where there is an error")

    def error(self, message: str) -> NoReturn:
        raise UsageError(message, hint=f"`{self.prog} --help` shows what it takes")


class CommandParser(Parser):
    """The parser of a command inside a command, as `workers list` is."""

    def __init__(self, *, prog: str, summary: str, examples: str, **_: Any) -> None:
        super().__init__(prog.removeprefix("shopfloor "), summary, examples=examples)
        # An option that stands before the inner command keeps its value.
        for action in self._actions:
            if action.dest in ("storage", "debug"):
                action.default = argparse.SUPPRESS


WORKERS_OPTION: Final[dict[str, Any]] = {
    "metavar": "WHERE",
    "action": "append",
    "default": [],
    "help": "also look for workers here: a folder, a Python file, or a module; may be repeated",
}
"""The option `--workers`, as every command that looks for workers has it."""


def add_color_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--color", choices=("auto", "always", "never"), default="auto", help="colours (default: where it is a terminal)"
    )


def positive_int(text: str) -> int:
    """A number of things, at least one."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not at least 1")
    return number


def port_number(text: str) -> int:
    """Where to listen; 0 is any that is free."""
    if not (text.isascii() and text.isdecimal() and int(text) <= _LAST_PORT):
        raise argparse.ArgumentTypeError(f"{text!r} is no port: a number from 0 to {_LAST_PORT}")
    return int(text)


_LAST_PORT = 65535
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


def duration_seconds(text: str) -> float:
    """A time that somebody writes as 30d, 12h, 90m, 45s or 2w."""
    number, unit = text[:-1], text[-1:]
    if unit not in _UNITS or not number.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a time such as 30d, 12h, 90m, 45s or 2w")
    seconds = int(number) * _UNITS[unit]
    if seconds > LONGEST_SPAN_SECONDS:
        raise argparse.ArgumentTypeError(f"{text!r} is longer than a thousand years")
    return seconds


def add_run_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="a run's id or its first characters, `last`, or a transcript file")


class ReadWarnings:
    """What a reader did not understand, said beside what it did; the first few of them."""

    def __init__(self) -> None:
        self._said = 0

    def __call__(self, problem: Problem) -> None:
        self.warn(f"at byte {problem.offset}: {problem.reason}")

    def warn(self, text: str) -> None:
        self._said += 1
        if self._said <= UNPARSED_LINE_WARNINGS:
            print(f"note: {escape_controls(text)}", file=sys.stderr)
        elif self._said == UNPARSED_LINE_WARNINGS + 1:
            print("note: and more of that kind; `shopfloor verify` lists them all", file=sys.stderr)

    def decode_events(self, entries: Iterable[Entry]) -> Iterator[Event]:
        """The events; one that cannot be read is said, and does not keep the others from being shown."""
        for entry in entries:
            try:
                yield decode(entry.raw)
            except InvalidEvent as error:
                self.warn(f"event {entry.seq} cannot be shown: {error.message}")


def storage_from_args(args: argparse.Namespace) -> Storage:
    named: str | None = args.storage
    return Storage(resolve_folder(named)) if named else Storage.default()


def resolve_folder(said: str) -> Path:
    """A folder as somebody names it, from here."""
    try:
        return Path(said).expanduser().absolute()
    except RuntimeError as error:
        raise UsageError(f"{said!r} is of nobody: {error}") from error
    except FileNotFoundError as error:
        raise missing_working_directory() from error


def log_path_from_args(args: argparse.Namespace) -> Path:
    """The transcript that RUN means."""
    said: str = args.run
    if os.sep in said or said.endswith(".jsonl"):
        return Path(said)
    storage = storage_from_args(args)
    return storage.log_path(storage.find(said))
