"""`shopfloor events`: print the agent events of a run, as dashboards get them."""

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
  shopfloor events last                            the events of the newest run
  shopfloor events last --json | jq -c .           with all fields
  shopfloor events 5f3a --type agent.file_change   only events of this type"""


def parser(name: str, summary: str) -> ArgumentParser:
    """Return the parser of the command's arguments."""
    parser = Parser(name, summary, examples=EXAMPLES)
    add_run_argument(parser)
    parser.add_argument("--type", metavar="TYPE", help="only events of this type, e.g. agent.tool_call")
    parser.add_argument("--json", action="store_true", help="print one JSON object per line, with all fields")
    add_color_option(parser)
    return parser


def run(args: Namespace) -> int:
    """Print the agent events of the run."""
    warnings, style = ReadWarnings(), Style.from_choice(args.color)
    entries: Iterable[Entry] = (
        read_remote_log(args.run, lambda api, run_id: api.read_log(run_id))
        if is_remote()
        else read(log_path_from_args(args), on_problem=warnings)
    )
    for event in _fleet_events(warnings.decode_events(entries)):
        if args.type not in (None, event.type):
            continue
        if args.json:
            write_json(msgspec.json.encode(event))
        else:
            fields = one_line(json.dumps(_own_fields(event), ensure_ascii=False), PREVIEW_CHARS)
            time, kind = style.paint(event.timestamp[11:23], "dim"), style.paint(event.type.ljust(18), "cyan")
            print(f"{time}  {kind}  {fields}")
    return 0


def _fleet_events(events: Iterable[Event]) -> Iterator[FleetEvent]:
    state = FleetEventState()
    for event in events:
        state, fleet_events = fleet_event_step(state, event)
        yield from fleet_events


def _own_fields(event: FleetEvent) -> dict[str, object]:
    """Return the fields that differ between the events of a run."""
    return {name: value for name, value in event.payload.items() if name not in ("agentId", "taskId", "workerId")}
