"""`shopfloor login`: a link that logs a browser in."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

import anyio

from shopfloor.cli.arguments import Parser, storage_from_args
from shopfloor.client import find_server
from shopfloor.errors import ServerUnreachable
from shopfloor.wiring import access_control

EXAMPLES = """\
  shopfloor login                 a link to the server on this storage; it works once, within 15 minutes
  xdg-open "$(shopfloor login)"   open it at once"""


def parser(name: str, summary: str) -> ArgumentParser:
    return Parser(name, summary, examples=EXAMPLES)


def run(args: Namespace) -> int:
    storage = storage_from_args(args)
    address = find_server(storage, named=False)
    if address is None:
        raise ServerUnreachable(f"no server is running on {storage.root}", hint="start one: `shopfloor up`")
    print(f"{address.url}/login?code={anyio.run(access_control(storage).make_login_code)}")
    return 0
