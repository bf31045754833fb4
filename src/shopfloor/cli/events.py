"""`shopfloor events`: the signals of a run, as dashboards get them."""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Iterator

import msgspec

from shopfloor.cli.arguments import Parser, ReadWarnings, add_color_option, add_run_argument, log_path_from_args
from shopfloor.cli.client_session import is_remote, read_remote_log
from shopfloor.cli.style import Style, one_line, write_json
from shopfloor.limits import PREVIEW_CHARS
from shopfloor.log import Entry, Event
from shopfloor.record import read
from shopfloor.views import FleetEvent, FleetEventState, fleet_event_step

EXAMPLES = """\
  shopfloor events last                     what the agents of the newest run reported
  shopfloor events last --json | jq -c .    with all fields, one signal per line
  shopfloor events 5f3a --type agent.file_change"""


def parser(name: str, summary: str) -> ArgumentParser:
    parser = Parser(name, summary, examples=EXAMPLES)
    add_run_argument(parser)
    parser.add_argument("--type", metavar="TYPE", help="only these, e.g. agent.tool_call")
    parser.add_argument("--json", action="store_true", help="with all fields, one per line")
    add_color_option(parser)
    return parser


def run(args: Namespace) -> int:
    notes, style = ReadWarnings(), Style.from_choice(args.color)
    entries: Iterable[Entry] = (
        read_remote_log(args.run, lambda api, run_id: api.read_log(run_id))
        if is_remote()
        else read(log_path_from_args(args), on_problem=notes)
    )
    for signal in _signals(notes.decode_events(entries)):
        if args.type not in (None, signal.type):
            continue
        if args.json:
            write_json(msgspec.json.encode(signal))
        else:
            said = one_line(json.dumps(_telling(signal), ensure_ascii=False), PREVIEW_CHARS)
            at, what = style.paint(signal.timestamp[11:23], "dim"), style.paint(signal.type.ljust(18), "cyan")
            print(f"{at}  {what}  {said}")
    return 0


def _signals(events: Iterable[Event]) -> Iterator[FleetEvent]:
    state = FleetEventState()
    for event in events:
        state, told = fleet_event_step(state, event)
        yield from told


def _telling(signal: FleetEvent) -> dict[str, object]:
    """Without what is the same in every line."""
    return {name: value for name, value in signal.payload.items() if name not in ("agentId", "taskId", "workerId")}
