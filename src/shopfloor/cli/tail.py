"""`shopfloor tail`: a run as it is being written, by whichever process."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace

from shopfloor.cli.arguments import Notes, Parser, add_color, add_run, log_of
from shopfloor.cli.style import Style
from shopfloor.cli.transcript import Transcript
from shopfloor.record import Reset, follow, is_locked, last_entry

EXAMPLES = """\
  shopfloor tail last                from the beginning, until the outcome
  shopfloor tail 5f3a --after 120    only what comes after event 120
  shopfloor tail last --json         the events as they stand in the log"""
NO_OUTCOME_EXIT = 1


def parser(name: str, summary: str) -> ArgumentParser:
    parser = Parser(name, summary, examples=EXAMPLES)
    add_run(parser)
    parser.add_argument("--json", action="store_true", help="the events as they are, one per line")
    parser.add_argument("--after", type=int, default=0, metavar="SEQ", help="begin after this event")
    add_color(parser)
    return parser


def run(args: Namespace) -> int:
    path = log_of(args)
    transcript = Transcript(Style.named(args.color), live=True)
    ended = False
    notes = Notes()
    for item in follow(path, after=args.after, done=lambda: not is_locked(path), report=notes):
        if isinstance(item, Reset):
            print(f"note: the log was cut back to event {item.last}", file=sys.stderr)
            continue
        ended = item.type == "run.completed"
        if args.json:
            sys.stdout.buffer.write(item.raw + b"\n")
        else:
            for line in transcript.lines(notes.decoded([item])):
                print(line)
        sys.stdout.flush()
    last = last_entry(path)
    ended = ended or (last is not None and last.type == "run.completed")
    if not ended:
        print("note: no outcome was recorded, and the process that wrote this is gone", file=sys.stderr)
    return 0 if ended else NO_OUTCOME_EXIT
