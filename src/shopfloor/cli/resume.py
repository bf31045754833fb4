"""`shopfloor resume`: continue a run that has no host, in this process."""

from __future__ import annotations

import time
from argparse import ArgumentParser, Namespace

import anyio

from shopfloor.cli.arguments import PLUGINS_OPTION, QUIET_HELP, RUN_HELP, WORKERS_OPTION, Parser
from shopfloor.cli.client_session import is_remote, resolve_run_id, run_with_client
from shopfloor.cli.json_output import EVENTS, add_json_option
from shopfloor.cli.links import print_link
from shopfloor.cli.outcome_notice import (
    add_no_notify_option,
    add_on_outcome_option,
    announce_outcome,
    reject_on_outcome,
)
from shopfloor.cli.pending_calls import fetch_pending_calls
from shopfloor.cli.renderer import render_options_from_args
from shopfloor.cli.run_options import (
    add_masking_options,
    find_worker_info,
    known_workers,
    masking_from_args,
    reject_worker_options,
    worker_settings_from_args,
)
from shopfloor.cli.tool_commands import parse_tool_handlers
from shopfloor.cli.watch import EventStream, RunWatcher
from shopfloor.client import Client

EXAMPLES = """\
  shopfloor resume last                      continue the newest run here
  shopfloor resume 5f3a --mask-env API_KEY   mask the same secret as before

The run continues in the folder where it started, with the environment of this
shell. Ctrl-C cancels the run."""


def parser(name: str, summary: str) -> ArgumentParser:
    """Return the parser of the command's arguments."""
    parser = Parser(name, summary, examples=EXAMPLES)
    parser.add_argument("run", metavar="RUN", help=RUN_HELP)
    parser.add_argument("--workers", **WORKERS_OPTION)
    parser.add_argument("--plugins", **PLUGINS_OPTION)
    parser.add_argument(
        "--tool",
        metavar="NAME=COMMAND",
        action="append",
        default=[],
        help="run COMMAND when the worker calls this tool, as in `shopfloor run`",
    )
    add_json_option(parser, EVENTS)
    parser.add_argument("-q", "--quiet", action="store_true", help=QUIET_HELP)
    add_on_outcome_option(parser)
    add_no_notify_option(parser)
    add_masking_options(parser)
    return parser


def run(args: Namespace) -> int:
    """Continue the run and watch it until it ends."""
    reject_on_outcome(args)
    if is_remote():
        reject_worker_options(args)
    watcher = RunWatcher(render_options_from_args(args))

    async def resume(client: Client) -> int:
        run_id = await resolve_run_id(client.api, args, args.run)
        detail, calls = await fetch_pending_calls(client, run_id)
        watcher.add_open_questions(run_id, calls)
        watcher.add_usage(detail)
        known = await known_workers(client)
        worker = find_worker_info(detail["name"], known)
        tools = watcher.tools = parse_tool_handlers(args.tool, worker, known)

        def start(abort: anyio.Event) -> EventStream:
            return client.workers.resume(worker.slug, run_id, tools=tools, signal=abort)

        return await watcher.follow(client, start, worker.slug)

    started_at = time.monotonic()
    mask = masking_from_args(args)
    try:
        return run_with_client(
            args,
            resume,
            workers=worker_settings_from_args(args),
            can_run=True,
            mask=mask,
            on_signal=watcher.on_signal,
        )
    finally:
        announce_outcome(args, watcher.run_id, time.monotonic() - started_at)
        print_link(args, watcher.run_id)
