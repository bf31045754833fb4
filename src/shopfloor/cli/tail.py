"""`shopfloor tail`: print the transcript of a run while any process writes it."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Iterator

from shopfloor.cli.arguments import Parser, ReadWarnings, add_color_option, add_run_argument, log_path_from_args
from shopfloor.cli.client_session import is_remote, read_remote_log
from shopfloor.cli.json_output import add_json_option, write_json
from shopfloor.cli.style import Style
from shopfloor.cli.transcript import TranscriptFormatter
from shopfloor.log import Entry, Reset, RunCompleted
from shopfloor.record import follow, is_locked, last_entry

EXAMPLES = """\
  shopfloor tail last               from the first event to the outcome
  shopfloor tail 5f3a --after 120   only the events after event 120
  shopfloor tail last --json        the events as recorded"""
NO_OUTCOME_EXIT = 1


def parser(name: str, summary: str) -> ArgumentParser:
    """Return the parser of the command's arguments."""
    parser = Parser(name, summary, examples=EXAMPLES)
    add_run_argument(parser)
    add_json_option(parser, "print the recorded events, one JSON object per line")
    parser.add_argument("--after", type=int, default=0, metavar="SEQ", help="start after this event number")
    add_color_option(parser)
    return parser


def run(args: Namespace) -> int:
    """Print events until the run ends; return 1 if it has no outcome then."""
    transcript, warnings = TranscriptFormatter(Style.from_choice(args.color), live=True), ReadWarnings()
    ended = False
    for item in _items(args, warnings):
        if isinstance(item, Reset):
            print(f"note: the log was truncated after event {item.last}", file=sys.stderr)
            continue
        ended = item.type == RunCompleted.event_type
        if args.json:
            write_json(item.raw)
        else:
            for event in warnings.decode_events([item]):
                _print(transcript.event(event))
        sys.stdout.flush()
    _print(transcript.end())
    if ended or _has_outcome(args):
        return 0
    # Imported here because it loads the client, which `tail` does not need for local logs.
    from shopfloor.cli.status import read_log_status

    lines = (
        ["the stream ended without an outcome"]
        if is_remote()
        else read_log_status(args, log_path_from_args(args)).lines
    )
    for line in lines:
        print(f"note: {line}", file=sys.stderr)
    return NO_OUTCOME_EXIT


def _print(lines: Iterable[str]) -> None:
    for line in lines:
        print(line)


def _items(args: Namespace, warnings: ReadWarnings) -> Iterator[Entry | Reset]:
    if is_remote():
        return read_remote_log(args.run, lambda api, run_id: api.stream(run_id, after=args.after))
    path = log_path_from_args(args)
    return follow(path, after=args.after, done=lambda: not is_locked(path), on_problem=warnings)


def _has_outcome(args: Namespace) -> bool:
    """Return whether the local log ends with the outcome. Nothing is followed then."""
    last = last_entry(log_path_from_args(args)) if not is_remote() else None
    return last is not None and last.type == RunCompleted.event_type
