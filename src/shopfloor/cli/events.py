"""`shopfloor events`: print the events of agents, hosts and providers, as dashboards get them."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from shopfloor.cli.arguments import (
    RUN_HELP,
    Parser,
    ReadWarnings,
    add_color_option,
    log_path_from_args,
    positive_int,
)
from shopfloor.cli.client_session import is_remote, read_remote_log, resolve_run_id, run_with_client
from shopfloor.cli.json_output import add_json_option, write_json
from shopfloor.cli.style import Style, escape_controls, one_line
from shopfloor.errors import UsageError
from shopfloor.limits import PREVIEW_CHARS
from shopfloor.log import Entry, Event
from shopfloor.record import read
from shopfloor.views import EVENT_STREAMS, FLEET_PAYLOADS, FleetEvent, FleetEventState, fleet_event_step, stream_of

if TYPE_CHECKING:
    from shopfloor.client import Client, FleetUpdate

EXAMPLES = """\
  shopfloor events                                 the newest events of all runs
  shopfloor events last                            the events of the newest run
  shopfloor events --follow --provider codex       new events of one provider
  shopfloor events last --json | jq -c .           with all fields
  shopfloor events 5f3a --type agent.file_change   only events of this type"""
_SHOWN_EVENTS = 20
_SUBJECT_WIDTH = len("local-1a2b3c4d 5f3a1c9e") + 2


def parser(name: str, summary: str) -> ArgumentParser:
    """Return the parser of the command's arguments."""
    parser = Parser(name, summary, examples=EXAMPLES)
    parser.add_argument(
        "run", metavar="RUN", nargs="?", help=f"{RUN_HELP}; or a transcript file; without it, the stored events"
    )
    parser.add_argument("--follow", action="store_true", help="print new events as they happen, until Ctrl-C")
    parser.add_argument("--provider", metavar="NAME", help="only events of this provider, e.g. claude-code")
    parser.add_argument("--stream", choices=EVENT_STREAMS, help="only events of this stream")
    parser.add_argument("--tree", action="store_true", help="with --follow: also the events of the run's sub-runs")
    parser.add_argument(
        "--type", metavar="TYPE", type=_event_type, help="only events of this type, e.g. agent.tool_call"
    )
    parser.add_argument(
        "--limit",
        type=positive_int,
        default=_SHOWN_EVENTS,
        metavar="N",
        help=f"at most N stored events (default: {_SHOWN_EVENTS})",
    )
    add_json_option(parser, "print one JSON object per line, with all fields")
    add_color_option(parser)
    return parser


def _event_type(text: str) -> str:
    """Parse a type of fleet event."""
    if text not in FLEET_PAYLOADS:
        raise ArgumentTypeError(f"must be a type of event, e.g. agent.tool_call, got {text!r}")
    return text


def run(args: Namespace) -> int:
    """Print the events of a log, the newest stored events, or new events until the user ends the command."""
    if args.tree and not (args.run and args.follow):
        raise UsageError("--tree needs RUN and --follow", hint="for example: shopfloor events last --follow --tree")
    style = Style.from_choice(args.color)
    stream = args.stream or (stream_of(args.type) if args.type else "agent")
    if args.run is None or args.follow or stream != "agent":
        # A log has the events of agents only.
        run_with_client(args, lambda client: _print_stored(client, args, style))
        return 0
    warnings = ReadWarnings()
    entries: Iterable[Entry] = (
        read_remote_log(args.run, lambda api, run_id: api.read_log(run_id))
        if is_remote()
        else read(log_path_from_args(args), on_problem=warnings)
    )
    for event in _fleet_events(warnings.decode_events(entries)):
        if args.provider in (None, event.provider) and args.type in (None, event.type):
            _print_event(event, args, style)
    return 0


def _fleet_events(events: Iterable[Event]) -> Iterator[FleetEvent]:
    state = FleetEventState()
    for event in events:
        state, fleet_events = fleet_event_step(state, event)
        yield from fleet_events


async def _print_stored(client: Client, args: Namespace, style: Style) -> None:
    from shopfloor.client import newest_events

    run_id = args.run and await resolve_run_id(client.api, args, args.run)
    after: str | int = 0
    filters = {"provider": args.provider, "stream": args.stream, "type": args.type}
    if run_id is None or not args.follow:
        events, after = await newest_events(client.api, limit=args.limit, run=run_id, **filters)
        for event in events:
            _print_event(event, args, style)
    sys.stdout.flush()
    if not args.follow:
        return
    async for event in client.events(run=run_id, tree=args.tree, after=after, **filters):
        _print_event(event, args, style)
        sys.stdout.flush()


def _print_event(event: FleetEvent | FleetUpdate, args: Namespace, style: Style) -> None:
    if args.json:
        write_json(msgspec.json.encode(event))
        return
    fields = one_line(json.dumps(_own_fields(event.payload), ensure_ascii=False), PREVIEW_CHARS)
    time, kind = style.paint(event.timestamp[11:23], "dim"), style.paint(event.type.ljust(21), "cyan")
    is_one_run = args.run and not args.tree
    subject = "" if is_one_run else f"{_subject(event.payload):<{_SUBJECT_WIDTH}}"
    print(f"{time}  {kind}  {subject}{fields}")


def _subject(payload: Mapping[str, Any]) -> str:
    """Return the host and the run that an event is about."""
    host, run = payload.get("workerId"), payload.get("taskId")
    return escape_controls(" ".join(part for part in (host, run and run[:8]) if part))


def _own_fields(payload: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields without the host, the run and the session."""
    return {name: value for name, value in payload.items() if name not in ("agentId", "taskId", "workerId")}
