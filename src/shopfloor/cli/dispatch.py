"""`shopfloor dispatch`: a run that a server executes, whoever watches."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from contextlib import aclosing

import anyio

from shopfloor.cli.arguments import Parser
from shopfloor.cli.client_session import run_with_client
from shopfloor.cli.run import render_options_from_args
from shopfloor.cli.run_options import (
    add_run_options,
    find_worker_info,
    has_server,
    known_workers,
    parse_worker_input,
    reject_workers_option,
    run_request_fields,
    with_worker_hint,
)
from shopfloor.cli.server_process import UP_COMMAND, offer_server
from shopfloor.cli.watch import EventStream, RunWatcher
from shopfloor.client import Client, Start, WorkerResult
from shopfloor.errors import ShopfloorError, UsageError
from shopfloor.limits import QUEUED_POLL_SECONDS
from shopfloor.wiring import WorkerSettings

EXAMPLES = """\
  shopfloor dispatch hello -i NAME=Ada                  prints the id of the run
  shopfloor dispatch repo-report --wait                 the same, and follows it to its end
  shopfloor dispatch hello -i NAME=Ada --idempotency-key greet-ada
                                                        asked for twice, it is still one run"""


def parser(name: str, summary: str) -> ArgumentParser:
    parser = Parser(name, summary, examples=EXAMPLES)
    parser.add_argument("worker", metavar="WORKER", help="the worker to run; `shopfloor workers list`")
    parser.add_argument("--cwd", metavar="DIR", help="the folder to run in (default: this one)")
    parser.add_argument("--wait", action="store_true", help="follow it to its end, as `shopfloor run` does")
    parser.add_argument("--json", action="store_true", help="with --wait: the events on stdout, one per line")
    parser.add_argument("--idempotency-key", metavar="KEY", help="the same key again is the same run")
    parser.add_argument("-q", "--quiet", action="store_true", help="nothing of our own on stderr, except errors")
    add_run_options(parser)
    return parser


def run(args: Namespace) -> int:
    return dispatch(args, key=args.idempotency_key, wait=args.wait)


def dispatch(args: Namespace, *, key: str | None = None, wait: bool = False) -> int:
    served = has_server(args)
    if served:
        reject_workers_option(args)
    else:
        served = offer_server(args)
    if wait and not served:
        raise UsageError(
            "no server is running: there is nothing to wait for",
            hint=f"start one with `{UP_COMMAND}`, or use `shopfloor run`",
        )

    async def order(client: Client) -> str:
        worker = find_worker_info(args.worker, await known_workers(client))
        said = {
            "worker": args.worker,
            "input": parse_worker_input(args, worker),
            **run_request_fields(args),
            "idempotency_key": key,
        }
        answer = await client.api.post("/api/runs", {name: one for name, one in said.items() if one is not None})
        return str(answer["run_id"])

    try:
        run_id = run_with_client(args, order, workers=WorkerSettings.from_names(args.workers))
    except ShopfloorError as error:
        raise with_worker_hint(error, args, served=served) from error
    if wait:
        return _follow(args, run_id)
    print(run_id, flush=True)
    if not args.quiet:
        how = "dispatched" if served else f"queued: no server is running; `{UP_COMMAND}` starts one"
        short = run_id[:8]
        print(f"shopfloor: {how} · shopfloor status {short} · shopfloor result {short} --wait", file=sys.stderr)
    return 0


def _follow(args: Namespace, run_id: str) -> int:
    if not args.quiet:
        print(f"shopfloor: dispatched {run_id}; it goes on if you leave", file=sys.stderr)
    following = RunWatcher(render_options_from_args(args), cancel_on_signal=False)

    async def follow(client: Client) -> int:
        def begin(abort: anyio.Event) -> EventStream:
            del abort
            return _told(client, run_id)

        return await following.follow(client, begin)

    return run_with_client(args, follow, on_signal=following.on_signal)


async def _told(client: Client, run_id: str) -> EventStream:
    """What the run does, until it has ended: also where it waits for so long that nobody writes its log meanwhile."""
    after = 0
    while True:
        async with aclosing(client.workers.stream(run_id, after=after)) as events:
            async for event in events:
                if not (after and isinstance(event, Start)):
                    yield event
                if isinstance(event, WorkerResult):
                    return
        after = await _written_on(client, run_id)


async def _written_on(client: Client, run_id: str) -> int:
    """Where the log stood, once it goes on or has its outcome."""
    after = (await client.api.run(run_id))["last_seq"]
    while True:
        detail = await client.api.run(run_id)
        if detail["last_seq"] > after or detail["completed_at"] is not None:
            return after
        await anyio.sleep(QUEUED_POLL_SECONDS)
