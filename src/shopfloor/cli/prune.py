"""`shopfloor prune`: old runs deleted, because somebody asked for it."""

from __future__ import annotations

import time
from argparse import ArgumentParser, Namespace

import anyio

from shopfloor.cli.arguments import Parser, duration_seconds, storage_of
from shopfloor.engine import prune
from shopfloor.log import timestamp_of
from shopfloor.wiring import local_office

EXAMPLES = """\
  shopfloor prune --older-than 30d                   runs that ended more than 30 days ago; pinned ones stay
  shopfloor prune --older-than 30d --archives-only   only their archived transcripts; rows and logs stay

A run and its sub-runs go together, or not at all: a tree stays as long as one of its runs is pinned, has not ended, or
ended later than that."""


def parser(name: str, summary: str) -> ArgumentParser:
    parser = Parser(name, summary, examples=EXAMPLES)
    parser.add_argument(
        "--older-than", metavar="TIME", type=duration_seconds, required=True, help="e.g. 30d, 12h, 90m, 2w"
    )
    parser.add_argument("--archives-only", action="store_true", help="keep the rows and the logs")
    return parser


def run(args: Namespace) -> int:
    storage = storage_of(args)
    before = timestamp_of(int((time.time() - args.older_than) * 1000))

    async def work() -> int:
        async with local_office(storage) as office:
            await office.ingest.catch_up()
            return await prune(storage, office.store, office.queue, before=before, archives_only=args.archives_only)

    pruned = anyio.run(work)
    what = "archived transcripts" if args.archives_only else "runs"
    print(f"{pruned:,} {what} deleted")
    return 0
