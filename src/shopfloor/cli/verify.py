"""`shopfloor verify`: check transcript files against the rules of the format."""

from __future__ import annotations

import stat
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from shopfloor.cli.arguments import Parser, storage_from_args
from shopfloor.cli.json_output import add_json_option, print_json
from shopfloor.cli.style import escape_controls
from shopfloor.error_factories import storage_error
from shopfloor.errors import FileMissing, ShopfloorError, UsageError
from shopfloor.limits import LOG_LINE_BYTES, LOG_MODE, READ_CHUNK_BYTES
from shopfloor.log import RULES, RuleViolation, Verifier, is_run_id
from shopfloor.record import is_locked

EXAMPLES = """\
  shopfloor verify last      the newest run
  shopfloor verify *.jsonl   transcript files
  shopfloor verify --all     all transcripts in the storage
  shopfloor verify --rules   list the rules"""
BROKEN_EXIT = 1
_STATES = {
    "complete": "complete",
    "being_written": "still being written",
    "without_outcome": "valid, without an outcome",
}


def parser(name: str, summary: str) -> ArgumentParser:
    """Return the parser of the command's arguments."""
    parser = Parser(name, summary, examples=EXAMPLES)
    parser.add_argument("files", nargs="*", metavar="FILE", help="transcript file, run id, or `last`")
    parser.add_argument("--all", action="store_true", help="check all transcripts in the storage")
    parser.add_argument("--rules", action="store_true", help="list the rules and exit")
    add_json_option(parser, "print a line of JSON for each file, or with --rules the rules")
    return parser


def run(args: Namespace) -> int:
    """Print the problems of each file; return 1 if a rule is broken."""
    if args.rules:
        if args.json:
            print_json({"rules": RULES})
            return 0
        for rule, text in RULES.items():
            print(f"{rule:<12}  {text}")
        return 0
    paths = list(_paths(args))
    if not paths and args.all:
        print(f"no transcripts in {storage_from_args(args).root}", file=sys.stderr if args.json else sys.stdout)
        return 0
    if not paths:
        raise UsageError("missing file or run to verify", hint="e.g. shopfloor verify last, or --all for all runs")
    # Check all files, also after a broken one.
    return max([_verify(path, as_json=args.json) for path in paths])


def _paths(args: Namespace) -> Iterator[Path]:
    storage = storage_from_args(args)
    if args.all:
        yield from (storage.log_path(run_id) for run_id in sorted(storage.run_ids()))
    name: str
    for name in args.files:
        path = Path(name)
        is_run = "/" not in name and not name.endswith(".jsonl") and not path.exists()
        yield storage.log_path(storage.find(name)) if is_run else path


def _verify(path: Path, *, as_json: bool) -> int:
    verifier = Verifier(path.stem if is_run_id(path.stem) else None)
    broken = 0
    problems: list[dict[str, str | int]] = []
    try:
        for problem in _problems(path, verifier):
            broken += 1
            if as_json:
                problems.append({"line": problem.line, "rule": problem.rule, "message": problem.message})
                continue
            print(f"{path}:{problem.line}: {problem.rule}: {escape_controls(problem.message)}")
    except ShopfloorError as error:
        # Printed here, so that the other files are checked too.
        print(f"error[{error.code}]: {error.message}", file=sys.stderr)
        if error.hint:
            print(f"hint: {error.hint}", file=sys.stderr)
        return error.exit_code
    state = "complete" if verifier.ended else "being_written" if is_locked(path) else "without_outcome"
    if as_json:
        fields = {"file": str(path), "lines": verifier.lines, "state": "broken" if broken else state}
        print_json({**fields, "problems": problems})
        return BROKEN_EXIT if broken else 0
    if broken:
        found = f"{broken:,} problem{'s' if broken > 1 else ''}"
        print(f"{path}: {found} in {verifier.lines:,} line{'' if verifier.lines == 1 else 's'}", file=sys.stderr)
        return BROKEN_EXIT
    print(f"{path}: {verifier.lines:,} events, {_STATES[state]}")
    return 0


def _problems(path: Path, verifier: Verifier) -> Iterator[RuleViolation]:
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            kind = "folder" if stat.S_ISDIR(status.st_mode) else "device"
            raise FileMissing(f"{path} is a {kind}, not a transcript", hint="name a .jsonl file")
        mode = stat.S_IMODE(status.st_mode)
        if path.absolute().parent.name == "transcripts" and mode != LOG_MODE:
            yield RuleViolation(0, "mode", f"the file has mode {mode:04o}")
        with path.open("rb") as file:
            for raw in _lines(file):
                if not raw.endswith(b"\n") and len(raw) <= LOG_LINE_BYTES and is_locked(path):
                    # The writer has not completed this line yet.
                    return
                yield from verifier.line(raw)
        if not is_locked(path):
            yield from verifier.end()
    except FileNotFoundError as error:
        raise FileMissing(f"file {path} does not exist", hint="name a transcript file or a run id") from error
    except OSError as error:
        raise storage_error(error, f"cannot read {path}", reading=True) from error


def _lines(file: BinaryIO) -> Iterator[bytes]:
    """Yield the lines. A line over the limit is truncated shortly after the limit, which is enough to reject it."""
    while raw := file.readline(LOG_LINE_BYTES + 1):
        is_cut = len(raw) > LOG_LINE_BYTES and not raw.endswith(b"\n")
        yield raw
        del raw
        while is_cut and (rest := file.readline(READ_CHUNK_BYTES)):
            is_cut = not rest.endswith(b"\n")
