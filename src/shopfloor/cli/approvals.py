"""`shopfloor approvals`: list and revoke the calls that workers may make without asking."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import Any, cast

from shopfloor.cli.arguments import Parser
from shopfloor.cli.client_session import run_with_client
from shopfloor.cli.json_output import RESPONSE, add_json_option, print_json
from shopfloor.cli.style import format_age, one_line
from shopfloor.client import Client
from shopfloor.errors import UsageError
from shopfloor.limits import PREVIEW_CHARS

EXAMPLES = """\
  shopfloor approvals list            what was approved for always
  shopfloor approvals revoke 3f2a     ask again before such calls

An answer `always approve` adds a rule for the worker and the pattern; for an
agent without a worker, only in its folder."""


def parser(name: str, summary: str) -> ArgumentParser:
    """Return the parser of the command's arguments."""
    usage = ("shopfloor approvals [list] [--json]", "shopfloor approvals revoke ID")
    parser = Parser(name, summary, examples=EXAMPLES, usage=usage)
    parser.add_argument("action", metavar="ACTION", nargs="?", choices=("list", "revoke"), default="list")
    parser.add_argument("id", metavar="ID", nargs="?", help="the rule, or the beginning of its id")
    add_json_option(parser, RESPONSE)
    return parser


def run(args: Namespace) -> int:
    """List the rules, or revoke one."""
    if (args.action == "revoke") != (args.id is not None):
        raise UsageError(
            "name the rule to revoke" if args.id is None else f"unexpected argument {args.id!r}",
            hint="shopfloor approvals list; shopfloor approvals revoke ID",
        )

    async def request(client: Client) -> dict[str, Any]:
        if args.action == "revoke":
            return await client.api.revoke_approval(args.id)
        return {"approvals": await client.api.approvals()}

    response = run_with_client(args, request)
    if args.json:
        print_json(response)
        return 0
    if args.action == "revoke":
        print(f"revoked: {_line(response)}")
        return 0
    rules = cast("list[dict[str, Any]]", response["approvals"])
    for rule in rules:
        print(f"{rule['id'][:8]}  {format_age(rule['created_at']):>8}  {_line(rule)}")
    if not rules:
        print("no call is approved for always")
    return 0


def _line(rule: dict[str, Any]) -> str:
    folder = f" in {rule['folder']}" if rule["folder"] else ""
    return one_line(
        f"{rule['pattern']} of {rule['worker']}{folder}, approved in run {rule['run_id'][:8]}", PREVIEW_CHARS
    )
