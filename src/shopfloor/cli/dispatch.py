"""`shopfloor dispatch`: hand a run to the server, which executes it in the background."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from contextlib import aclosing
from typing import cast

import anyio

from shopfloor.cli.arguments import QUIET_HELP, Parser, label, priority, storage_from_args
from shopfloor.cli.client_session import run_with_client
from shopfloor.cli.json_output import add_json_option, print_json
from shopfloor.cli.links import run_link
from shopfloor.cli.outcome_notice import add_on_outcome_option, leave_to_server, reject_on_outcome
from shopfloor.cli.renderer import render_options_from_args
from shopfloor.cli.run_options import (
    add_run_options,
    add_task_argument,
    add_timeout_option,
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
from shopfloor.limits import MAX_PRIORITY, QUEUED_POLL_SECONDS
from shopfloor.ports import CLAIMED, NO_HOST, WAITS_FOR_SLOT
from shopfloor.record import Storage
from shopfloor.wiring import provider_names

EXAMPLES = """\
  shopfloor dispatch hello -i NAME=Ada    print the run id and return
  shopfloor dispatch counter 'a b c'      with a task, its one text input
  shopfloor dispatch repo-report --wait   watch the run until it ends
  shopfloor dispatch hello -i NAME=Ada --idempotency-key greet-ada
                                          dispatched twice, it is still one run"""
_ADVANCED = (
    "--on-outcome",
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
    add_json_option(parser, "print JSON: the run id and link, or with --wait the events")
    parser.add_argument(
        "--idempotency-key",
        metavar="KEY",
        help="if a run with this key exists, print its id instead of creating one",
    )
    parser.add_argument(
        "--priority",
        metavar="N",
        type=priority,
        help=f"queued runs with a higher priority start first, {-MAX_PRIORITY} to {MAX_PRIORITY} (default: 0)",
    )
    parser.add_argument(
        "--label",
        metavar="NAME=VALUE",
        type=label,
        action="append",
        default=[],
        help="only on a host with this label, e.g. gpu=yes (repeatable)",
    )
    parser.add_argument("-q", "--quiet", action="store_true", help=QUIET_HELP)
    add_on_outcome_option(parser)
    add_timeout_option(add_run_options(parser))
    return parser


def run(args: Namespace) -> int:
    """Dispatch the run that the arguments describe."""
    reject_on_outcome(args)
    if args.timeout is not None:
        if args.worker not in provider_names():
            raise UsageError(
                "--timeout can only be used with the worker of a provider",
                hint="set `timeout` on the steps of the worker; `shopfloor providers` lists the providers",
            )
        args.input.append(f"timeout={args.timeout!r}")
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

    async def request(client: Client) -> tuple[str, str | None]:
        worker = find_worker_info(args.worker, await known_workers(client))
        body = {
            "worker": args.worker,
            "input": parse_worker_input(args, worker),
            **run_request_fields(args),
            "idempotency_key": key,
            "priority": args.priority,
            "labels": dict(args.label) or None,
        }
        response = await client.api.post(
            "/api/runs", {name: value for name, value in body.items() if value is not None}
        )
        run_id = str(response["run_id"])
        return run_id, None if args.quiet else await find_obstacle(client, run_id)

    try:
        run_id, obstacle = run_with_client(args, request, workers=worker_settings_from_args(args))
    except ShopfloorError as error:
        raise with_worker_hint(error, args, served=served) from error
    if args.on_outcome:
        leave_to_server(args, run_id)
    if wait:
        if obstacle is not None:
            print(f"shopfloor: queued: {obstacle}", file=sys.stderr)
        return _watch(args, run_id)
    if args.json:
        print_json({"run_id": run_id, "link": run_link(storage_from_args(args), run_id)})
        return 0
    print(run_id, flush=True)
    if not args.quiet:
        print_dispatch(storage_from_args(args), run_id, obstacle)
    return 0


def print_dispatch(storage: Storage, run_id: str, obstacle: str | None) -> None:
    """Print how to follow a dispatched run, and why it does not start soon if something keeps it from that."""
    short = run_id[:8]
    link = run_link(storage, run_id)
    parts = [
        describe_dispatch(obstacle),
        f"shopfloor status {short}",
        f"shopfloor result {short} --wait",
        *([link] if link else []),
    ]
    print(f"shopfloor: {' · '.join(parts)}", file=sys.stderr)


async def find_obstacle(client: Client, run_id: str) -> str | None:
    """Return why a queued run does not start soon; None if nothing keeps it from starting."""
    reason = cast("str | None", (await client.api.run(run_id)).get("queue_reason"))
    return None if reason is None or reason.startswith((WAITS_FOR_SLOT, CLAIMED)) else reason


def describe_dispatch(obstacle: str | None) -> str:
    """Say whether a run that was dispatched starts soon."""
    if obstacle is None:
        return "dispatched"
    if obstacle.startswith(NO_HOST):
        return f"queued, but no server is running; `{UP_COMMAND}` starts one"
    return f"queued: {obstacle}"


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
