"""`shopfloor show`: print the transcript of a run."""

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
    storage_from_args,
)
from shopfloor.cli.client_session import is_remote, read_remote_log
from shopfloor.cli.json_output import add_json_option, write_json
from shopfloor.cli.links import run_link
from shopfloor.cli.style import Style, escape_controls, format_based_on, format_client, format_later_runs
from shopfloor.cli.transcript import TranscriptFormatter, outcome_text
from shopfloor.errors import TranscriptBroken
from shopfloor.log import Entry, Event, RunCompleted, RunStarted
from shopfloor.record import Problem, last_entry, read

if TYPE_CHECKING:
    from shopfloor.cli.status import LogStatus

EXAMPLES = """\
  shopfloor show last                 the newest run
  shopfloor show 5f3a --full          with all of the long texts
  shopfloor show last --json | jq .   the events as recorded
  shopfloor show copied.jsonl         a transcript file"""


def parser(name: str, summary: str) -> ArgumentParser:
    """Return the parser of the command's arguments."""
    parser = Parser(name, summary, examples=EXAMPLES)
    add_run_argument(parser)
    parser.add_argument("--full", action="store_true", help="show long texts in full")
    add_json_option(parser, "print the recorded events, one JSON object per line")
    parser.add_argument("--after", type=int, default=0, metavar="SEQ", help="start after this event number")
    parser.add_argument("--limit", type=positive_int, metavar="N", help="show at most N events")
    add_color_option(parser)
    return parser


def run(args: Namespace) -> int:
    """Print the transcript, with its status if it has no outcome."""
    if is_remote():
        return _show_remote(args)
    path = log_path_from_args(args)
    warnings = ReadWarnings()
    entries = iter(read(path, after=args.after, on_problem=warnings))
    if args.json:
        return _print_raw(islice(entries, args.limit))
    style = Style.from_choice(args.color)
    first, last = next(read(path, limit=1, on_problem=_ignore), None), last_entry(path)
    if first is None or last is None:
        raise TranscriptBroken(f"{path} has no events", hint="`shopfloor verify` reports what is wrong with the file")
    # The status takes reading the whole log, which is too slow for a command that shows only a few events.
    needs_status = last.type != RunCompleted.event_type and args.limit is None
    log_status = _read_status(args, path) if needs_status else None
    storage = storage_from_args(args)
    link = run_link(storage, path.stem) if path.parent == storage.transcripts else None
    later = _find_later_runs(args, path)
    ends = list(ReadWarnings().decode_events([first, last]))
    if len(ends) == 2:  # noqa: PLR2004 - the first event and the last
        for line in _header(ends[0], ends[1], style, log_status, later=later, link=link):
            print(line)
    _print_lines(TranscriptFormatter(style, full=args.full), warnings, entries, args.limit)
    for line in log_status.lines if log_status else ():
        print(style.paint(f"… {line}", "yellow"))
    return 0


def _show_remote(args: Namespace) -> int:
    entries = read_remote_log(args.run, lambda api, run_id: api.read_log(run_id, after=args.after))
    if args.json:
        return _print_raw(islice(entries, args.limit))
    _print_lines(
        TranscriptFormatter(Style.from_choice(args.color), full=args.full), ReadWarnings(), entries, args.limit
    )
    return 0


def _print_lines(
    transcript: TranscriptFormatter, warnings: ReadWarnings, entries: Iterator[Entry], limit: int | None
) -> None:
    for line in transcript.lines(warnings.decode_events(islice(entries, limit)), warnings.decode_events(entries)):
        print(line)


def _print_raw(entries: Iterable[Entry]) -> int:
    for entry in entries:
        write_json(entry.raw)
    return 0


def _read_status(args: Namespace, path: Path) -> LogStatus:
    # Imported here because it loads the client, which takes longer than showing a transcript.
    from shopfloor.cli.status import read_log_status

    return read_log_status(args, path)


def _find_later_runs(args: Namespace, path: Path) -> list[tuple[str, str]]:
    """Return the runs based on this one; none for a log outside of the storage."""
    from shopfloor.wiring import find_later_runs

    storage = storage_from_args(args)
    return find_later_runs(storage, path.stem) if path.parent == storage.transcripts else []


def _header(
    first: Event,
    last: Event,
    style: Style,
    log_status: LogStatus | None,
    *,
    later: list[tuple[str, str]],
    link: str | None,
) -> Iterator[str]:
    yield style.paint(f"run {escape_controls(first.run_id)}", "bold")
    started, ended = first.payload, last.payload
    rows: list[tuple[str, str | None]] = []
    if isinstance(started, RunStarted):
        owner = started.agent_id if started.agent_id != started.name else None
        parts = [started.name, owner and f"for {owner}", started.channel_name and f"from {started.channel_name}"]
        rows = [
            ("worker", " · ".join(part for part in parts if part)),
            ("client", format_client(started.client)),
            ("task", started.task),
            ("earlier", format_based_on(started.based_on)),
        ]
    rows.append(("parent", first.parent_run_id))
    if isinstance(ended, RunCompleted):
        rows.append(("status", outcome_text(ended)))
    elif log_status is not None:
        rows.append(("status", log_status.status))
    rows += [("started", first.timestamp), ("then", format_later_runs(later)), ("page", link)]
    for name, value in rows:
        if value:
            yield f"  {style.paint(name.ljust(8), 'dim')}{escape_controls(value)}"
    yield ""


def _ignore(problem: Problem) -> None:
    """Ignore the problem: reading the events themselves reports it."""
