"""`shopfloor reply`: continue the session of an agent with a new prompt."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from shopfloor.cli.arguments import RUN_HELP, Parser
from shopfloor.cli.new_run import ADVANCED, add_watch_options, start_and_watch
from shopfloor.cli.run_options import WorkerInfo, add_masking_options, masking_from_args, read_stdin
from shopfloor.client import Client

EXAMPLES = """\
  shopfloor reply last 'now add a test for it'
  shopfloor reply 5f3a - < review.md     read the text from stdin

The agent continues in its session, in a new run with the same options. Claude
Code continues a copy of the session; other agents continue the session itself,
so only its newest run can be replied to."""


def parser(name: str, summary: str) -> ArgumentParser:
    """Return the parser of the command's arguments."""
    parser = Parser(name, summary, examples=EXAMPLES, advanced=ADVANCED)
    parser.add_argument("run", metavar="RUN", help=RUN_HELP)
    parser.add_argument("text", metavar="TEXT", help="what the agent should do next (- for stdin)")
    add_watch_options(parser)
    add_masking_options(parser)
    return parser


def run(args: Namespace) -> int:
    """Continue the session in a new run."""
    text = read_stdin() if args.text == "-" else args.text

    async def request(client: Client, run_id: str, _: WorkerInfo) -> str:
        return await client.api.reply(run_id, text)

    return start_and_watch(args, request, mask=masking_from_args(args))
