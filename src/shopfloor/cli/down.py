"""`shopfloor down`: stop the server of this storage."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from shopfloor.cli.arguments import Parser, storage_from_args
from shopfloor.cli.json_output import add_json_option, print_json
from shopfloor.cli.server_process import stop_server

EXAMPLES = """\
  shopfloor down   stop the server, and wait until it has ended

The server interrupts the runs that it executes; other hosts, or the next
server, resume them. To let them end first: shopfloor hosts drain.
Runs of `shopfloor run` in other terminals continue."""


def parser(name: str, summary: str) -> ArgumentParser:
    """Return the parser of the command's arguments."""
    parser = Parser(name, summary, examples=EXAMPLES)
    add_json_option(parser, "print whether a server was stopped as JSON")
    return parser


def run(args: Namespace) -> int:
    """Stop the server, if one is running."""
    storage = storage_from_args(args)
    url = stop_server(storage)
    if args.json:
        print_json({"stopped": url is not None, "url": url})
    elif url is None:
        print(f"shopfloor: no server is running on {storage.root}")
    else:
        print(f"shopfloor: stopped the server at {url}; the next one resumes its runs")
    return 0
