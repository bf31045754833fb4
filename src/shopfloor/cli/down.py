"""`shopfloor down`: the server of this storage stopped."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from shopfloor.cli.arguments import Parser, storage_from_args
from shopfloor.cli.server_process import stop_server

EXAMPLES = """\
  shopfloor down      stop the server, and wait until it has ended

Runs that the server executes stop where they are; the next server resumes them. Runs that `shopfloor run` executes in
other terminals go on."""


def parser(name: str, summary: str) -> ArgumentParser:
    return Parser(name, summary, examples=EXAMPLES)


def run(args: Namespace) -> int:
    storage = storage_from_args(args)
    url = stop_server(storage)
    if url is None:
        print(f"shopfloor: no server is running on {storage.root}")
    else:
        print(f"shopfloor: stopped the server at {url}; the next one resumes its runs")
    return 0
