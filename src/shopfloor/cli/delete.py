"""`shopfloor delete`: runs that have ended, gone for good."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import cast

from shopfloor.cli.arguments import Parser
from shopfloor.cli.client_session import resolve_run_id, run_with_client
from shopfloor.cli.main import print_error
from shopfloor.client import Client
from shopfloor.errors import ShopfloorError

EXAMPLES = """\
  shopfloor delete 5f3a 77c0     their logs, rows and transcripts, with those of their sub-runs
  shopfloor delete last --force  also where it failed"""


def parser(name: str, summary: str) -> ArgumentParser:
    parser = Parser(name, summary, examples=EXAMPLES)
    parser.add_argument("runs", metavar="RUN", nargs="+", help="a run's id or its first characters, or `last`")
    parser.add_argument("--force", action="store_true", help="also what failed")
    return parser


def run(args: Namespace) -> int:
    async def delete(client: Client) -> int:
        code = 0
        said: list[str] = args.runs
        for one in said:
            try:
                run_id = await resolve_run_id(client.api, args, one)
                answer = await client.api.delete(f"/api/runs/{run_id}{'?force=true' if args.force else ''}")
            except ShopfloorError as error:
                code = print_error(error)
                continue
            below = len(cast("list[str]", answer["deleted"])) - 1
            more = f", with {below:,} sub-run{'s' if below > 1 else ''}" if below > 0 else ""
            print(f"deleted {run_id[:8]}{more}", flush=True)
        return code

    return run_with_client(args, delete)
