"""`shopfloor rerun`: run a worker again; and the watching of new runs that `reply` and `fork` share with it."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Awaitable, Callable
from typing import Any

import anyio

from shopfloor.cli.arguments import PLUGINS_OPTION, QUIET_HELP, RUN_HELP, WORKERS_OPTION, Parser
from shopfloor.cli.client_session import is_remote, resolve_run_id, run_with_client
from shopfloor.cli.dispatch import describe_dispatch, find_obstacle
from shopfloor.cli.renderer import render_options_from_args
from shopfloor.cli.run_options import (
    add_masking_options,
    find_worker_info,
    has_server,
    known_workers,
    masking_from_args,
    parse_worker_input,
    reject_worker_options,
    worker_settings_from_args,
)
from shopfloor.cli.tool_commands import parse_tool_handlers
from shopfloor.cli.watch import EventStream, RunWatcher
from shopfloor.client import CallResult, Client
from shopfloor.errors import UnsupportedOption
from shopfloor.log import Masking

EXAMPLES = """\
  shopfloor rerun last                the newest run once more
  shopfloor rerun 5f3a -i NAME=Ada    with one input changed
  shopfloor rerun 5f3a --detach       let the server run it

The worker runs as it is now, in the folder of the earlier run. `shopfloor show`
names both runs."""
NewRun = Callable[[Client, str, dict[str, Any]], Awaitable[str]]
"""Requests the new run, from the id and the detail of the earlier one; returns its id."""


def parser(name: str, summary: str) -> ArgumentParser:
    """Return the parser of the command's arguments."""
    parser = Parser(name, summary, examples=EXAMPLES, advanced=("--workers", "--plugins", "--debug"))
    parser.add_argument("run", metavar="RUN", help=RUN_HELP)
    parser.add_argument(
        "-i",
        "--input",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="change an input; NAME=@FILE reads a file (repeatable)",
    )
    parser.add_argument("--input-json", metavar="JSON", help="change inputs with one JSON object")
    add_watch_options(parser)
    add_masking_options(parser)
    return parser


def add_watch_options(parser: ArgumentParser) -> None:
    """Add the options for executing and watching the new run."""
    parser.add_argument("--detach", action="store_true", help="let the server run it, and print the run id")
    parser.add_argument("--json", action="store_true", help="print the events as JSON, one per line")
    parser.add_argument("-q", "--quiet", action="store_true", help=QUIET_HELP)
    parser.add_argument(
        "--tool",
        metavar="NAME=COMMAND",
        action="append",
        default=[],
        help="run COMMAND when the worker calls this tool, as in `shopfloor run`",
    )
    parser.add_argument("--workers", **WORKERS_OPTION)
    parser.add_argument("--plugins", **PLUGINS_OPTION)


def run(args: Namespace) -> int:
    """Run the worker again."""
    args.text = None

    async def request(client: Client, run_id: str, detail: dict[str, Any]) -> str:
        worker = find_worker_info(detail["name"], await known_workers(client))
        return await client.api.rerun(run_id, parse_worker_input(args, worker) or None)

    return start_and_watch(args, request, mask=masking_from_args(args))


def start_and_watch(args: Namespace, request: NewRun, *, mask: Masking | None = None) -> int:
    """Request a new run that is based on `args.run`, and watch it here; or print its id with `--detach`."""
    if args.detach:
        return _detach(args, request, mask)
    if is_remote():
        reject_worker_options(args)
    watcher = RunWatcher(render_options_from_args(args))

    async def run(client: Client) -> int:
        run_id = await resolve_run_id(client.api, args, args.run)
        detail = await client.api.run(run_id)
        known = await known_workers(client)
        worker = find_worker_info(detail["name"], known)
        tools = watcher.tools = parse_tool_handlers(args.tool, worker, known)
        new_id = await request(client, run_id, detail)

        def start(abort: anyio.Event) -> EventStream:
            return client.workers.follow(worker.slug, new_id, tools=tools, signal=abort)

        def continue_run(run_id: str, results: list[CallResult]) -> EventStream:
            return client.workers.continue_(worker.slug, run_id, results, tools=tools)

        return await watcher.follow(client, start, continue_run)

    settings = worker_settings_from_args(args)
    return run_with_client(args, run, workers=settings, can_run=True, mask=mask, on_signal=watcher.on_signal)


def _detach(args: Namespace, request: NewRun, mask: Masking | None) -> int:
    if mask is not None:
        raise UnsupportedOption(
            "--detach does not support masking: the secrets would have to be sent to the server",
            hint="remove --detach, or remove --mask-env and --mask-keys",
        )
    if has_server(args):
        reject_worker_options(args)

    async def detach(client: Client) -> tuple[str, str | None]:
        run_id = await resolve_run_id(client.api, args, args.run)
        new_id = await request(client, run_id, await client.api.run(run_id))
        return new_id, None if args.quiet else await find_obstacle(client, new_id)

    new_id, obstacle = run_with_client(args, detach, workers=worker_settings_from_args(args))
    print(new_id, flush=True)
    if not args.quiet:
        print(f"shopfloor: {describe_dispatch(obstacle)} · shopfloor status {new_id[:8]}", file=sys.stderr)
    return 0
