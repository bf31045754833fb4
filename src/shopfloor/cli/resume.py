"""`shopfloor resume`: a run that has no host, continued in this shell."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

import anyio

from shopfloor.cli.arguments import WORKERS_OPTION, Parser
from shopfloor.cli.client_session import is_remote, resolve_run_id, run_with_client
from shopfloor.cli.pending_calls import fetch_pending_calls
from shopfloor.cli.run import render_options_from_args
from shopfloor.cli.run_options import (
    add_masking_options,
    find_worker_info,
    known_workers,
    masking_from_args,
    reject_workers_option,
)
from shopfloor.cli.tool_commands import parse_tool_handlers
from shopfloor.cli.watch import EventStream, RunWatcher
from shopfloor.client import CallResult, Client
from shopfloor.wiring import WorkerSettings

EXAMPLES = """\
  shopfloor resume last                       a run whose process was killed, continued here
  shopfloor resume 5f3a --mask-env API_KEY    with what was masked before still masked

The run continues with the environment of this shell, in the folder that it began in. Ctrl-C cancels the run."""


def parser(name: str, summary: str) -> ArgumentParser:
    parser = Parser(name, summary, examples=EXAMPLES)
    parser.add_argument("run", metavar="RUN", help="a run's id or its first characters, or `last`")
    parser.add_argument("--workers", **WORKERS_OPTION)
    parser.add_argument(
        "--tool",
        metavar="NAME=COMMAND",
        action="append",
        default=[],
        help="execute this tool of the worker by a command, as for `shopfloor run`; may be repeated",
    )
    parser.add_argument("--json", action="store_true", help="the events of the run on stdout, one per line")
    parser.add_argument("-q", "--quiet", action="store_true", help="nothing of our own on stderr, except errors")
    add_masking_options(parser)
    return parser


def run(args: Namespace) -> int:
    if is_remote():
        reject_workers_option(args)
    following = RunWatcher(render_options_from_args(args))

    async def resume(client: Client) -> int:
        run_id = await resolve_run_id(client.api, args, args.run)
        detail, calls = await fetch_pending_calls(client, run_id)
        following.add_open_questions(run_id, calls)
        known = await known_workers(client)
        worker = find_worker_info(detail["name"], known)
        tools = following.tools = parse_tool_handlers(args.tool, worker, known)

        def begin(abort: anyio.Event) -> EventStream:
            return client.workers.resume(worker.slug, run_id, tools=tools, signal=abort)

        def continue_run(run_id: str, results: list[CallResult]) -> EventStream:
            return client.workers.continue_(worker.slug, run_id, results, tools=tools)

        return await following.follow(client, begin, continue_run)

    mask = masking_from_args(args)
    return run_with_client(
        args,
        resume,
        workers=WorkerSettings.from_names(args.workers),
        can_run=True,
        mask=mask,
        on_signal=following.on_signal,
    )
