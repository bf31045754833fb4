"""`shopfloor show`: a transcript, readably."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from shopfloor.cli.arguments import (
    Parser,
    ReadWarnings,
    add_color_option,
    add_run_argument,
    log_path_from_args,
    positive_int,
)
from shopfloor.cli.client_session import is_remote, read_remote_log
from shopfloor.cli.style import Style, escape_controls, write_json
from shopfloor.cli.transcript import TranscriptFormatter, outcome_text
from shopfloor.errors import TranscriptBroken
from shopfloor.log import Entry, Event, RunCompleted, RunStarted
from shopfloor.record import Problem, last_entry, read

if TYPE_CHECKING:
    from shopfloor.cli.status import LogStatus

EXAMPLES = """\
  shopfloor show last                  the newest run
  shopfloor show 5f3a --full           nothing folded
  shopfloor show last --json | jq .    the events as they stand in the log
  shopfloor show copied.jsonl          a file from elsewhere"""


def parser(name: str, summary: str) -> ArgumentParser:
    parser = Parser(name, summary, examples=EXAMPLES)
    add_run_argument(parser)
    parser.add_argument("--full", action="store_true", help="fold nothing and cut nothing")
    parser.add_argument("--json", action="store_true", help="the events as they are, one per line")
    parser.add_argument("--after", type=int, default=0, metavar="SEQ", help="begin after this event")
    parser.add_argument("--limit", type=positive_int, metavar="N", help="show at most N events")
    add_color_option(parser)
    return parser


def run(args: Namespace) -> int:
    if is_remote():
        return _show_remote(args)
    path = log_path_from_args(args)
    notes = ReadWarnings()
    entries = iter(read(path, after=args.after, on_problem=notes))
    if args.json:
        return _print_raw(islice(entries, args.limit))
    style = Style.from_choice(args.color)
    first, last = next(read(path, limit=1, on_problem=_ignore), None), last_entry(path)
    if first is None or last is None:
        raise TranscriptBroken(f"{path} holds no event", hint="`shopfloor verify` says what is wrong with it")
    # To see how it stands all of it is read, which is not for who wants but a few events.
    unfinished = last.type != RunCompleted.event_type and args.limit is None
    standing = _standing(args, path) if unfinished else None
    ends = list(ReadWarnings().decode_events([first, last]))
    if len(ends) == 2:  # noqa: PLR2004 - the first event and the last
        for line in _header(ends[0], ends[1], style, standing):
            print(line)
    _print_lines(TranscriptFormatter(style, full=args.full), notes, entries, args.limit)
    for line in standing.lines if standing else ():
        print(style.paint(f"… {line}", "yellow"))
    return 0


def _show_remote(args: Namespace) -> int:
    entries = read_remote_log(args.run, lambda api, run_id: api.read_log(run_id, after=args.after))
    if args.json:
        return _print_raw(islice(entries, args.limit))
    _print_lines(TranscriptFormatter(Style.from_choice(args.color), full=args.full), ReadWarnings(), entries, args.limit)
    return 0


def _print_lines(
    transcript: TranscriptFormatter, notes: ReadWarnings, entries: Iterator[Entry], limit: int | None
) -> None:
    for line in transcript.lines(notes.decode_events(islice(entries, limit)), notes.decode_events(entries)):
        print(line)


def _print_raw(entries: Iterable[Entry]) -> int:
    for entry in entries:
        write_json(entry.raw)
    return 0


def _standing(args: Namespace, path: Path) -> LogStatus:
    from shopfloor.cli.status import read_log_status  # it can speak of servers, which takes longer to load than to show

    return read_log_status(args, path)


def _header(first: Event, last: Event, style: Style, standing: LogStatus | None) -> Iterator[str]:
    yield style.paint(f"run {escape_controls(first.run_id)}", "bold")
    started, ended = first.payload, last.payload
    rows: list[tuple[str, str | None]] = []
    if isinstance(started, RunStarted):
        owner = started.agent_id if started.agent_id != started.name else None
        parts = [started.name, owner and f"for {owner}", started.channel_name and f"from {started.channel_name}"]
        rows = [("worker", " · ".join(part for part in parts if part)), ("task", started.task)]
    rows.append(("parent", first.parent_run_id))
    if isinstance(ended, RunCompleted):
        rows.append(("status", outcome_text(ended)))
    elif standing is not None:
        rows.append(("status", standing.status))
    rows.append(("started", first.timestamp))
    for name, value in rows:
        if value:
            yield f"  {style.paint(name.ljust(8), 'dim')}{escape_controls(value)}"
    yield ""


def _ignore(problem: Problem) -> None:
    """Said once is enough, when the events themselves are read."""
