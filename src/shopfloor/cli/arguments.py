"""What the commands' parsers have in common."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import NoReturn

from shopfloor.errors import UsageError
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
        common.add_argument("--storage", metavar="DIR", help="where runs are kept (default: $SHOPFLOOR_STORAGE)")
        common.add_argument("--debug", action="store_true", help="show a traceback where there is an error")

    def error(self, message: str) -> NoReturn:
        raise UsageError(message, hint=f"`{self.prog} --help` shows what it takes")


def add_color(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--color", choices=("auto", "always", "never"), default="auto", help="colours (default: where it is a terminal)"
    )


def positive(text: str) -> int:
    """A number of things, at least one."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not at least 1")
    return number


def add_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="a run's id or its first characters, `last`, or a transcript file")


def say_problem(problem: Problem) -> None:
    """What a reader did not understand, said beside what it did."""
    print(f"note: at byte {problem.offset}: {problem.reason}", file=sys.stderr)


def storage_of(args: argparse.Namespace) -> Storage:
    named: str | None = args.storage
    return Storage(Path(named).expanduser().absolute()) if named else Storage.default()


def log_of(args: argparse.Namespace) -> Path:
    """The transcript that RUN means."""
    said: str = args.run
    if os.sep in said or said.endswith(".jsonl"):
        return Path(said)
    storage = storage_of(args)
    return storage.log_path(storage.find(said))
