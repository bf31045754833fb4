"""`shopfloor run WORKER`: a worker, live, in this process; or on the server that SHOPFLOOR_URL names."""

from __future__ import annotations

import os
import shutil
import sys
from argparse import Namespace

import anyio

from shopfloor.cli.asking import ask
from shopfloor.cli.following import Events, Following
from shopfloor.cli.live import Look
from shopfloor.cli.masking import masking_of
from shopfloor.cli.ordering import asked_of, explained, input_of, known_workers, refuse_workers, worker_named
from shopfloor.cli.remote import is_remote
from shopfloor.cli.style import Style
from shopfloor.cli.tool_commands import handlers_of
from shopfloor.client import CallResult, Client
from shopfloor.errors import ShopfloorError, UnsupportedOption
from shopfloor.wiring import Workers


def run_worker(args: Namespace) -> int:
    mask = masking_of(args)
    if args.detach:
        if mask is not None:
            raise UnsupportedOption(
                "what is left to the server cannot be masked: it cannot be told what", hint="leave out --detach"
            )
        from shopfloor.cli.dispatch import dispatch

        return dispatch(args)
    if is_remote():
        refuse_workers(args)
    following = Following(look_of(args))

    async def run(client: Client) -> int:
        known = await known_workers(client)
        worker = worker_named(args.worker, known)
        tools = following.tools = handlers_of(args.tool, worker, known)
        given, asked = input_of(args, worker), asked_of(args)

        def begin(abort: anyio.Event) -> Events:
            return client.workers.execute(args.worker, given, tools=tools, signal=abort, **asked)

        def go_on(run_id: str, results: list[CallResult]) -> Events:
            return client.workers.continue_(args.worker, run_id, results, tools=tools)

        code = await following.follow(client, begin, go_on)
        if not args.quiet:
            for name in sorted(tools.keys() - {*worker.client_tools} - following.requested):
                # It may be of a worker that this one could have called: which ones it calls, nobody knows before.
                print(f"shopfloor: no run asked for the tool {name}", file=sys.stderr)
        return code

    try:
        return ask(args, run, workers=Workers.named(args.workers), can_run=True, mask=mask, hear=following.hear)
    except ShopfloorError as error:
        raise explained(error, args, served=is_remote()) from error


def look_of(args: Namespace) -> Look:
    """How whoever started us can be shown things."""
    draws = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    return Look(
        as_json=args.json,
        quiet=args.quiet,
        out_is_terminal=sys.stdout.isatty(),
        progress=draws,
        style=Style(enabled=draws and not os.environ.get("NO_COLOR")),
        width=shutil.get_terminal_size((80, 24)).columns,
    )
