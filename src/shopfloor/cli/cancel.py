"""`shopfloor cancel`: cancel a run and wait for its end."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from typing import Any

import anyio

from shopfloor.cli.arguments import RUN_HELP, Parser
from shopfloor.cli.client_session import API_COMPLETED, resolve_run_id, run_status, run_with_client, wait_for_outcome
from shopfloor.cli.json_output import add_json_option, print_json
from shopfloor.cli.limits import CANCEL_WAIT_SECONDS
from shopfloor.cli.renderer import summary_line
from shopfloor.cli.watch import WAITING_EXIT
from shopfloor.client import Client

EXAMPLES = """\
  shopfloor cancel last                          cancel, and wait for the end
  shopfloor cancel 5f3a --reason 'wrong topic'   record a reason"""


def parser(name: str, summary: str) -> ArgumentParser:
    """Return the parser of the command's arguments."""
    parser = Parser(name, summary, examples=EXAMPLES)
    parser.add_argument("run", metavar="RUN", help=RUN_HELP)
    parser.add_argument("--reason", metavar="TEXT", help="reason to record in the outcome")
    add_json_option(parser, "print the run id, the status and the duration as JSON")
    return parser


def run(args: Namespace) -> int:
    """Cancel the run and print its outcome."""

    async def cancel(client: Client) -> tuple[str, dict[str, Any] | None]:
        run_id = await resolve_run_id(client.api, args, args.run)
        await client.workers.cancel(run_id, reason=args.reason)
        detail: dict[str, Any] | None = None
        with anyio.move_on_after(CANCEL_WAIT_SECONDS):
            detail = await wait_for_outcome(client, run_id)
        return run_id, detail

    run_id, detail = run_with_client(args, cancel)
    if args.json:
        status = "running" if detail is None else run_status(detail)
        print_json({"run_id": run_id, "status": status, "duration_ms": detail and detail["duration_ms"]})
    if detail is None:
        print(f"shopfloor: run {run_id[:8]} was asked to stop and is still running", file=sys.stderr)
        return WAITING_EXIT
    if args.json:
        return 0
    status = "completed before it could be cancelled" if detail["status"] == API_COMPLETED else detail["status"]
    print(summary_line(status, run_id, detail["duration_ms"]))
    return 0
