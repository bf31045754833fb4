"""`shopfloor dispatch`: hand a run to the server, which executes it in the background."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from contextlib import aclosing

import anyio

from shopfloor.cli.arguments import QUIET_HELP, Parser
from shopfloor.cli.client_session import run_with_client
from shopfloor.cli.renderer import render_options_from_args
from shopfloor.cli.run_options import (
    add_run_options,
    add_task_argument,
    find_worker_info,
    has_server,
    known_workers,
    parse_worker_input,
    reject_worker_options,
    run_request_fields,
    with_worker_hint,
    worker_settings_from_args,
)
from shopfloor.cli.server_process import UP_COMMAND, offer_server
from shopfloor.cli.watch import EventStream, RunWatcher
from shopfloor.client import Client, Start, WorkerResult
from shopfloor.errors import ShopfloorError, UsageError
from shopfloor.limits import QUEUED_POLL_SECONDS

EXAMPLES = """\
  shopfloor dispatch hello -i NAME=Ada    print the run id and return
  shopfloor dispatch counter 'a b c'      with a task, its one text input
  shopfloor dispatch repo-report --wait   watch the run until it ends
  shopfloor dispatch hello -i NAME=Ada --idempotency-key greet-ada
                                          dispatched twice, it is still one run"""
_ADVANCED = (
    "--input-json",
    "--task",
    "--workers",
    "--plugins",
    "--approve-timeout",
    "--owner",
    "--channel",
    "--channel-name",
    "--debug",
)


def parser(name: str, summary: str) -> ArgumentParser:
    """Return the parser of the command's arguments."""
    parser = Parser(name, summary, examples=EXAMPLES, advanced=_ADVANCED)
    parser.add_argument("worker", metavar="WORKER", help="worker to run; `shopfloor workers list` lists them")
    add_task_argument(parser)
    parser.add_argument("--cwd", metavar="DIR", help="folder to run in (default: the current folder)")
    parser.add_argument("--wait", action="store_true", help="watch the run until it ends")
    parser.add_argument("--json", action="store_true", help="with --wait: print the events as JSON, one per line")
    parser.add_argument(
        "--idempotency-key",
        metavar="KEY",
        help="if a run with this key exists, print its id instead of creating one",
    )
    parser.add_argument("-q", "--quiet", action="store_true", help=QUIET_HELP)
    add_run_options(parser)
    return parser


def run(args: Namespace) -> int:
    """Dispatch the run that the arguments describe."""
    return dispatch(args, key=args.idempotency_key, wait=args.wait)


def dispatch(args: Namespace, *, key: str | None = None, wait: bool = False) -> int:
    """Store the request for a run; print the run id, or watch the run if `wait` is True."""
    served = has_server(args)
    if served:
        reject_worker_options(args)
    else:
        served = offer_server(args)
    if wait and not served:
        raise UsageError(
            "--wait needs a server, and no server is running",
            hint=f"start one with `{UP_COMMAND}`, or use `shopfloor run`",
        )

    async def request(client: Client) -> str:
        worker = find_worker_info(args.worker, await known_workers(client))
        body = {
            "worker": args.worker,
            "input": parse_worker_input(args, worker),
            **run_request_fields(args),
            "idempotency_key": key,
        }
        response = await client.api.post(
            "/api/runs", {name: value for name, value in body.items() if value is not None}
        )
        return str(response["run_id"])

    try:
        run_id = run_with_client(args, request, workers=worker_settings_from_args(args))
    except ShopfloorError as error:
        raise with_worker_hint(error, args, served=served) from error
    if wait:
        return _watch(args, run_id)
    print(run_id, flush=True)
    if not args.quiet:
        status = "dispatched" if served else f"queued, but no server is running; `{UP_COMMAND}` starts one"
        short = run_id[:8]
        print(f"shopfloor: {status} · shopfloor status {short} · shopfloor result {short} --wait", file=sys.stderr)
    return 0


def _watch(args: Namespace, run_id: str) -> int:
    if not args.quiet:
        print(f"shopfloor: dispatched {run_id}; Ctrl-C stops watching, and the run continues", file=sys.stderr)
    watcher = RunWatcher(render_options_from_args(args), cancel_on_signal=False)

    async def watch(client: Client) -> int:
        def start(abort: anyio.Event) -> EventStream:
            del abort
            return _events(client, run_id)

        return await watcher.follow(client, start)

    return run_with_client(args, watch, on_signal=watcher.on_signal)


async def _events(client: Client, run_id: str) -> EventStream:
    """Yield the events of the run until it has ended.

    The stream ends while a run waits for long, because no process writes its log; it is opened again when the log
    grows.
    """
    after = 0
    while True:
        async with aclosing(client.workers.stream(run_id, after=after)) as events:
            async for event in events:
                if not (after and isinstance(event, Start)):
                    yield event
                if isinstance(event, WorkerResult):
                    return
        after = await _wait_for_growth(client, run_id)


async def _wait_for_growth(client: Client, run_id: str) -> int:
    """Wait until the log grows or has its outcome; return its last seq before that."""
    after = (await client.api.run(run_id))["last_seq"]
    while True:
        detail = await client.api.run(run_id)
        if detail["last_seq"] > after or detail["completed_at"] is not None:
            return after
        await anyio.sleep(QUEUED_POLL_SECONDS)
