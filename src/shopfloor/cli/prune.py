"""`shopfloor prune`: delete runs that finished long ago."""

from __future__ import annotations

import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import AsyncIterator

import anyio

from shopfloor.cli.arguments import Parser, duration_seconds, storage_from_args
from shopfloor.cli.json_output import add_json_option, print_json
from shopfloor.cli.style import one_line
from shopfloor.engine import prunable, prunable_archives, prune, prune_archives
from shopfloor.errors import UsageError
from shopfloor.limits import PREVIEW_CHARS
from shopfloor.log import format_timestamp
from shopfloor.ports import RunItem
from shopfloor.wiring import local_backend, local_process_name, own_plugins

EXAMPLES = """\
  shopfloor prune --older-than 30d --dry-run        only list the runs
  shopfloor prune --older-than 30d                  ask, then delete them
  shopfloor prune --older-than 30d --yes --force    do not ask; also failed runs
  shopfloor prune --older-than 30d --archives-only  keep transcripts and rows

A run is deleted together with its sub-runs. The whole tree stays if one of its
runs is pinned, failed, still running, or finished later."""
_YES = ("y", "yes")


def parser(name: str, summary: str) -> ArgumentParser:
    """Return the parser of the command's arguments."""
    parser = Parser(name, summary, examples=EXAMPLES)
    parser.add_argument(
        "--older-than",
        metavar="TIME",
        type=duration_seconds,
        required=True,
        help="only runs that finished longer ago, e.g. 30d, 12h",
    )
    parser.add_argument("--yes", action="store_true", help="delete without confirmation")
    parser.add_argument("--dry-run", action="store_true", help="list what would be deleted, and delete nothing")
    parser.add_argument("--force", action="store_true", help="also delete failed runs")
    parser.add_argument("--archives-only", action="store_true", help="delete only archived transcripts")
    add_json_option(parser, "print how many were deleted as JSON, or with --dry-run the runs")
    return parser


def run(args: Namespace) -> int:
    """Delete the old runs, after confirmation."""
    needs_confirmation = not (args.yes or args.dry_run)
    if needs_confirmation and not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError(
            "cannot ask for confirmation: stdin or stderr is not a terminal",
            hint="add --yes to delete, or --dry-run to list what would be deleted",
        )
    before = format_timestamp(int((time.time() - args.older_than) * 1000))
    return anyio.run(_prune, args, before, needs_confirmation)


async def _prune(args: Namespace, before: str, needs_confirmation: bool) -> int:  # noqa: FBT001 - called by anyio
    storage = storage_from_args(args)
    async with local_backend(storage) as backend:
        await backend.ingest.catch_up()
        if args.archives_only and not args.dry_run:
            if needs_confirmation and not _confirm(f"the archived transcripts of runs that ended before {before}"):
                return 1
            archives = await prune_archives(backend.store, before=before)
            _print_count(args, archives, f"{archives:,} archived transcripts deleted")
            return 0
        if args.dry_run:
            if args.archives_only:
                items = prunable_archives(backend.store, before=before)
                return await _list(args, items, "would lose their archived transcripts")
            trees = prunable(backend.store, before=before, force=args.force)
            return await _list(args, _runs(trees), "would be deleted")
        if needs_confirmation:
            count = sum([len(tree) async for tree in prunable(backend.store, before=before, force=args.force)])
            if count and not _confirm(_format_count(count)):
                return 1
        async with own_plugins(storage) as plugins:
            by = local_process_name()
            pruned = await prune(backend, before=before, by=by, force=args.force, plugins=plugins)
        _print_count(args, pruned, f"{_format_count(pruned)} deleted")
        return 0


async def _runs(trees: AsyncIterator[list[RunItem]]) -> AsyncIterator[RunItem]:
    async for tree in trees:
        for item in tree:
            yield item


def _print_count(args: Namespace, count: int, text: str) -> None:
    if args.json:
        print_json({"deleted": count, "archives_only": args.archives_only})
    else:
        print(text)


async def _list(args: Namespace, items: AsyncIterator[RunItem], verb: str) -> int:
    count = 0
    async for item in items:
        row = item.row
        if args.json:
            fields = {"run_id": row.id, "status": row.status, "completed_at": row.completed_at}
            print_json({**fields, "task": row.task})
            continue
        print(f"{row.id[:8]}  {row.status:<9}  {row.completed_at}  {one_line(row.task, PREVIEW_CHARS)}")
        count += 1
    if not args.json:
        print(f"{_format_count(count)} {verb}")
    return 0


def _format_count(count: int) -> str:
    return f"{count:,} run{'' if count == 1 else 's'}"


def _confirm(target: str) -> bool:
    print(f"Delete {target} permanently? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() in _YES:
        return True
    print("nothing was deleted", file=sys.stderr)
    return False
