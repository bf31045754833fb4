"""`shopfloor rerun`: run a worker again."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from shopfloor.cli.arguments import RUN_HELP, Parser
from shopfloor.cli.new_run import ADVANCED, add_watch_options, start_and_watch
from shopfloor.cli.run_options import WorkerInfo, add_masking_options, masking_from_args, parse_worker_input
from shopfloor.client import Client

EXAMPLES = """\
  shopfloor rerun last                the newest run once more
  shopfloor rerun 5f3a -i NAME=Ada    with one input changed
  shopfloor rerun 5f3a --detach       let the server run it

The worker runs as it is now, in the folder of the earlier run. `shopfloor show`
names both runs."""


def parser(name: str, summary: str) -> ArgumentParser:
    """Return the parser of the command's arguments."""
    parser = Parser(name, summary, examples=EXAMPLES, advanced=ADVANCED)
    parser.add_argument("run", metavar="RUN", help=RUN_HELP)
    parser.add_argument(
        "-i",
        "--input",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="change an input; NAME=@FILE reads a file, NAME= is an empty text (repeatable)",
    )
    parser.add_argument("--input-json", metavar="JSON", help="change inputs with one JSON object; null leaves one out")
    add_watch_options(parser)
    add_masking_options(parser)
    return parser


def run(args: Namespace) -> int:
    """Run the worker again."""
    args.text = None

    async def request(client: Client, run_id: str, worker: WorkerInfo) -> str:
        return await client.api.rerun(run_id, parse_worker_input(args, worker) or None)

    return start_and_watch(args, request, mask=masking_from_args(args))
