"""`shopfloor up`: the server on this machine."""

from __future__ import annotations

import logging
import sys
from argparse import ArgumentParser, Namespace

import anyio

from shopfloor.cli.arguments import Parser, duration_seconds, storage_of
from shopfloor.cli.examples import make_example_runs
from shopfloor.wiring import serve_storage

EXAMPLES = """\
  shopfloor up                        serve on 127.0.0.1:7420; the first line is a link to log in
  shopfloor up --port 8080            somewhere else
  shopfloor up --keep 30d             delete what ended more than 30 days ago and is not pinned"""


def parser(name: str, summary: str) -> ArgumentParser:
    parser = Parser(name, summary, examples=EXAMPLES)
    parser.add_argument("--host", metavar="ADDRESS", default="127.0.0.1", help="the address to listen on")
    parser.add_argument("--port", metavar="N", type=int, default=7420, help="the port to listen on (0: any free one)")
    parser.add_argument(
        "--allow-host", metavar="NAME", action="append", default=[], help="a name by which the server may be asked for"
    )
    parser.add_argument(
        "--keep",
        metavar="TIME",
        type=duration_seconds,
        help="how long ended runs are kept, e.g. 30d (default: always)",
    )
    parser.add_argument("--examples", action="store_true", help="record a few runs first, where there are none yet")
    return parser


def run(args: Namespace) -> int:
    logging.basicConfig(level=logging.WARNING, format="shopfloor: %(message)s", stream=sys.stderr)
    storage = storage_of(args)
    if args.examples:
        make_example_runs(storage)

    def started(url: str, token: str) -> None:
        print(f"Shopfloor is up: {url}/login?token={token}")
        print(f"  runs are kept in {storage.root}")
        print(f"  the API is described at {url}/api/docs; Ctrl-C stops", flush=True)

    async def serve() -> None:
        await serve_storage(
            storage,
            host=args.host,
            port=args.port,
            allowed_hosts=tuple(args.allow_host),
            keep_seconds=args.keep,
            on_started=started,
        )

    anyio.run(serve, backend_options={"use_uvloop": True})
    return 0
