"""`shopfloor login`: print a one-time link that logs a browser in."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

import anyio

from shopfloor.cli.arguments import Parser, storage_from_args
from shopfloor.cli.json_output import add_json_option, print_json
from shopfloor.client import find_storage_server
from shopfloor.errors import ServerUnreachable
from shopfloor.wiring import access_control

EXAMPLES = """\
  shopfloor login                 print the link
  xdg-open "$(shopfloor login)"   open it in the browser

The link is for the server on this storage. It works once, within 15 minutes."""


def parser(name: str, summary: str) -> ArgumentParser:
    """Return the parser of the command's arguments."""
    parser = Parser(name, summary, examples=EXAMPLES)
    add_json_option(parser, "print the link as JSON")
    return parser


def run(args: Namespace) -> int:
    """Create a login code and print the link."""
    storage = storage_from_args(args)
    address = find_storage_server(storage)
    if address is None:
        raise ServerUnreachable(f"no server is running on {storage.root}", hint="start one with `shopfloor up`")
    link = f"{address.link_url}/login?code={anyio.run(access_control(storage).make_login_code)}"
    if args.json:
        print_json({"link": link})
    else:
        print(link)
    return 0
