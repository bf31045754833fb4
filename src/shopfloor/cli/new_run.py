"""New runs that are based on an earlier one, for `rerun`, `reply` and `fork`: request them and watch them."""

from __future__ import annotations

import time
from argparse import ArgumentParser, Namespace
from collections.abc import Awaitable, Callable

import anyio

from shopfloor.cli.arguments import PLUGINS_OPTION, QUIET_HELP, WORKERS_OPTION, storage_from_args
from shopfloor.cli.client_session import is_remote, resolve_run_id, run_with_client
from shopfloor.cli.dispatch import find_obstacle, print_dispatch
from shopfloor.cli.json_output import EVENTS, add_json_option, print_json
from shopfloor.cli.links import print_link, run_link
from shopfloor.cli.outcome_notice import (
    add_no_notify_option,
    add_on_outcome_option,
    announce_outcome,
    leave_to_server,
    reject_on_outcome,
)
from shopfloor.cli.renderer import render_options_from_args
from shopfloor.cli.run_options import (
    WorkerInfo,
    find_worker_info,
    has_server,
    known_workers,
    reject_worker_options,
    worker_settings_from_args,
)
from shopfloor.cli.tool_commands import parse_tool_handlers
from shopfloor.cli.watch import EventStream, RunWatcher
from shopfloor.client import Client
from shopfloor.errors import UnsupportedOption
from shopfloor.log import Masking

ADVANCED = ("--on-outcome", "--no-notify", "--workers", "--plugins", "--tool", "--debug")
"""The options that only `--help-all` shows."""

NewRun = Callable[[Client, str, WorkerInfo], Awaitable[str]]
"""Requests the new run, from the id and the worker of the earlier one; returns its id."""


def add_watch_options(parser: ArgumentParser) -> None:
    """Add the options for executing and watching the new run."""
    parser.add_argument("--detach", action="store_true", help="let the server run it, and print the run id")
    add_json_option(parser, EVENTS)
    parser.add_argument("-q", "--quiet", action="store_true", help=QUIET_HELP)
    parser.add_argument(
        "--tool",
        metavar="NAME=COMMAND",
        action="append",
        default=[],
        help="run COMMAND when the worker calls this tool, as in `shopfloor run`",
    )
    add_on_outcome_option(parser)
    add_no_notify_option(parser)
    parser.add_argument("--workers", **WORKERS_OPTION)
    parser.add_argument("--plugins", **PLUGINS_OPTION)


def start_and_watch(args: Namespace, request: NewRun, *, mask: Masking | None = None) -> int:
    """Request a new run that is based on `args.run`, and watch it here; or print its id with `--detach`."""
    reject_on_outcome(args)
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
        new_id = await request(client, run_id, worker)

        def start(abort: anyio.Event) -> EventStream:
            return client.workers.follow(worker.slug, new_id, tools=tools, signal=abort)

        return await watcher.follow(client, start, worker.slug)

    settings = worker_settings_from_args(args)
    started_at = time.monotonic()
    try:
        return run_with_client(args, run, workers=settings, can_run=True, mask=mask, on_signal=watcher.on_signal)
    finally:
        announce_outcome(args, watcher.run_id, time.monotonic() - started_at)
        print_link(args, watcher.run_id)


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
        detail = await client.api.run(run_id)
        new_id = await request(client, run_id, find_worker_info(detail["name"], await known_workers(client)))
        return new_id, None if args.quiet else await find_obstacle(client, new_id)

    new_id, obstacle = run_with_client(args, detach, workers=worker_settings_from_args(args))
    if args.on_outcome:
        leave_to_server(args, new_id)
    link = run_link(storage_from_args(args), new_id)
    if args.json:
        print_json({"run_id": new_id, "link": link})
        return 0
    print(new_id, flush=True)
    if not args.quiet:
        print_dispatch(storage_from_args(args), new_id, obstacle)
    return 0
