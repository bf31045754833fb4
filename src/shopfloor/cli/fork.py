"""`shopfloor fork`: start a run with the steps and messages of another run up to an event."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from shopfloor.cli.arguments import RUN_HELP, Parser, positive_int
from shopfloor.cli.new_run import ADVANCED, add_watch_options, start_and_watch
from shopfloor.cli.run_options import WorkerInfo
from shopfloor.client import Client

EXAMPLES = """\
  shopfloor show 5f3a --json | jq -c '[.seq, .type, .path]'    find the event
  shopfloor fork 5f3a --at 17     what happened up to event 17 is taken over

Steps that had completed by then are not executed again, and a conversation with
a model goes on after its last message; the rest is executed now. The earlier
run stays as it is. The session of an agent cannot be cut: fork before or after
the step of the agent, or use `shopfloor reply`."""


def parser(name: str, summary: str) -> ArgumentParser:
    """Return the parser of the command's arguments."""
    parser = Parser(name, summary, examples=EXAMPLES, advanced=ADVANCED)
    parser.add_argument("run", metavar="RUN", help=RUN_HELP)
    parser.add_argument(
        "--at", type=positive_int, metavar="SEQ", required=True, help="number of the last event to take over"
    )
    add_watch_options(parser)
    return parser


def run(args: Namespace) -> int:
    """Start the fork."""

    async def request(client: Client, run_id: str, _: WorkerInfo) -> str:
        return await client.api.fork(run_id, args.at)

    return start_and_watch(args, request)
