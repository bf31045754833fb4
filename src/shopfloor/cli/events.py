"""`shopfloor events`: the signals of a run, as dashboards get them."""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Iterator

import msgspec

from shopfloor.cli.arguments import Notes, Parser, add_color, add_run, log_of
from shopfloor.cli.remote import entries_of, is_remote
from shopfloor.cli.style import Style, one_line, write_json
from shopfloor.limits import PREVIEW_CHARS
from shopfloor.log import Entry, Event
from shopfloor.record import read
from shopfloor.views import Signal, Signals, signals_step

EXAMPLES = """\
  shopfloor events last                     what the agents of the newest run reported
  shopfloor events last --json | jq -c .    with all fields, one signal per line
  shopfloor events 5f3a --type agent.file_change"""


def parser(name: str, summary: str) -> ArgumentParser:
    parser = Parser(name, summary, examples=EXAMPLES)
    add_run(parser)
    parser.add_argument("--type", metavar="TYPE", help="only these, e.g. agent.tool_call")
    parser.add_argument("--json", action="store_true", help="with all fields, one per line")
    add_color(parser)
    return parser


def run(args: Namespace) -> int:
    notes, style = Notes(), Style.named(args.color)
    entries: Iterable[Entry] = (
        entries_of(args.run, lambda api, run_id: api.whole_log(run_id))
        if is_remote()
        else read(log_of(args), report=notes)
    )
    for signal in _signals(notes.decoded(entries)):
        if args.type not in (None, signal.type):
            continue
        if args.json:
            write_json(msgspec.json.encode(signal))
        else:
            said = one_line(json.dumps(_telling(signal), ensure_ascii=False), PREVIEW_CHARS)
            at, what = style.paint(signal.timestamp[11:23], "dim"), style.paint(signal.type.ljust(18), "cyan")
            print(f"{at}  {what}  {said}")
    return 0


def _signals(events: Iterable[Event]) -> Iterator[Signal]:
    state = Signals()
    for event in events:
        state, told = signals_step(state, event)
        yield from told


def _telling(signal: Signal) -> dict[str, object]:
    """Without what is the same in every line."""
    return {name: value for name, value in signal.payload.items() if name not in ("agentId", "taskId", "workerId")}
