"""`shopfloor rebuild`: rebuild the database from the transcripts."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace

import anyio

from shopfloor.cli.arguments import Parser, storage_from_args
from shopfloor.cli.json_output import add_json_option, print_json
from shopfloor.engine import finish_deletions
from shopfloor.errors import DatabaseDamaged, DatabaseTooOld, ServerRunning
from shopfloor.wiring import hold_server_lock, local_backend

EXAMPLES = """\
  shopfloor rebuild   if the database is lost, damaged or wrong

The transcripts are the record; the database only indexes them. A damaged
database is kept under another name."""


def parser(name: str, summary: str) -> ArgumentParser:
    """Return the parser of the command's arguments."""
    parser = Parser(name, summary, examples=EXAMPLES)
    add_json_option(parser, "print the numbers of runs and events as JSON")
    return parser


def run(args: Namespace) -> int:
    """Rebuild the rows, with a new database if the old one is damaged."""
    storage = storage_from_args(args)

    async def rebuild() -> tuple[int, int]:
        async with local_backend(storage) as backend:
            await backend.store.check()
            await finish_deletions(backend)
            await backend.store.clear_views()
            events = await backend.ingest.catch_up(everything=True)
            await backend.queue.restore_queued_rows()
            return events, len(await backend.store.known_runs())

    kept: str | None = None
    try:
        with hold_server_lock(storage):
            try:
                events, runs = anyio.run(rebuild)
            except (DatabaseDamaged, DatabaseTooOld) as error:
                kept = storage.rename_damaged_database().name
                print(f"shopfloor: {error.message}; the old database is kept as {kept}", file=sys.stderr)
                events, runs = anyio.run(rebuild)
    except ServerRunning as error:
        raise ServerRunning(
            "a server is using the database", hint="stop it with `shopfloor down`, rebuild, and start it again"
        ) from error
    if args.json:
        print_json({"runs": runs, "events": events, "kept_database": kept})
        return 0
    print(f"{runs:,} run{'s' if runs != 1 else ''} from {events:,} event{'s' if events != 1 else ''}")
    return 0
