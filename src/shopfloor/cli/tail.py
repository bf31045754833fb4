"""`shopfloor tail`: a run as it is being written, by whichever process."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Iterator

from shopfloor.cli.arguments import Parser, ReadWarnings, add_color_option, add_run_argument, log_path_from_args
from shopfloor.cli.client_session import is_remote, read_remote_log
from shopfloor.cli.style import Style, write_json
from shopfloor.cli.transcript import TranscriptFormatter
from shopfloor.log import Entry, Reset, RunCompleted
from shopfloor.record import follow, is_locked, last_entry

EXAMPLES = """\
  shopfloor tail last                from the beginning, until the outcome
  shopfloor tail 5f3a --after 120    only what comes after event 120
  shopfloor tail last --json         the events as they stand in the log"""
NO_OUTCOME_EXIT = 1


def parser(name: str, summary: str) -> ArgumentParser:
    parser = Parser(name, summary, examples=EXAMPLES)
    add_run_argument(parser)
    parser.add_argument("--json", action="store_true", help="the events as they are, one per line")
    parser.add_argument("--after", type=int, default=0, metavar="SEQ", help="begin after this event")
    add_color_option(parser)
    return parser


def run(args: Namespace) -> int:
    transcript, notes = TranscriptFormatter(Style.from_choice(args.color), live=True), ReadWarnings()
    ended = False
    for item in _items(args, notes):
        if isinstance(item, Reset):
            print(f"note: the log was cut back to event {item.last}", file=sys.stderr)
            continue
        ended = item.type == RunCompleted.event_type
        if args.json:
            write_json(item.raw)
        else:
            for event in notes.decode_events([item]):
                _print(transcript.event(event))
        sys.stdout.flush()
    _print(transcript.end())
    if ended or _has_outcome(args):
        return 0
    from shopfloor.cli.status import (
        read_log_status,  # it can speak of servers, which takes longer to load than to follow
    )

    lines = ["the server told no outcome"] if is_remote() else read_log_status(args, log_path_from_args(args)).lines
    for line in lines:
        print(f"note: {line}", file=sys.stderr)
    return NO_OUTCOME_EXIT


def _print(lines: Iterable[str]) -> None:
    for line in lines:
        print(line)


def _items(args: Namespace, notes: ReadWarnings) -> Iterator[Entry | Reset]:
    if is_remote():
        return read_remote_log(args.run, lambda api, run_id: api.stream(run_id, after=args.after))
    path = log_path_from_args(args)
    return follow(path, after=args.after, done=lambda: not is_locked(path), on_problem=notes)


def _has_outcome(args: Namespace) -> bool:
    """Whether there was nothing to follow because the outcome came before."""
    last = last_entry(log_path_from_args(args)) if not is_remote() else None
    return last is not None and last.type == RunCompleted.event_type
