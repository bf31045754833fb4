"""`shopfloor delete`: delete finished runs."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import cast

from shopfloor.cli.arguments import RUN_HELP, Parser
from shopfloor.cli.client_session import resolve_run_id, run_with_client
from shopfloor.cli.json_output import add_json_option, print_json
from shopfloor.cli.main import print_error
from shopfloor.client import Client
from shopfloor.errors import ShopfloorError

EXAMPLES = """\
  shopfloor delete 5f3a 77c0      two runs, with their sub-runs
  shopfloor delete last --force   also if the run failed"""


def parser(name: str, summary: str) -> ArgumentParser:
    """Return the parser of the command's arguments."""
    parser = Parser(name, summary, examples=EXAMPLES)
    parser.add_argument("runs", metavar="RUN", nargs="+", help=RUN_HELP)
    parser.add_argument("--force", action="store_true", help="also delete failed runs")
    add_json_option(parser, "print a line of JSON for each RUN")
    return parser


def run(args: Namespace) -> int:
    """Delete the runs, and return the exit code of the last error."""

    async def delete(client: Client) -> int:
        code = 0
        run_refs: list[str] = args.runs
        for run_ref in run_refs:
            try:
                run_id = await resolve_run_id(client.api, args, run_ref)
                response = await client.api.delete(f"/api/runs/{run_id}{'?force=true' if args.force else ''}")
            except ShopfloorError as error:
                code = print_error(error)
                continue
            if args.json:
                print_json({"run_id": run_id, "deleted": response["deleted"]})
                continue
            below = len(cast("list[str]", response["deleted"])) - 1
            more = f", with {below:,} sub-run{'s' if below > 1 else ''}" if below > 0 else ""
            print(f"deleted {run_id[:8]}{more}", flush=True)
        return code

    return run_with_client(args, delete)
