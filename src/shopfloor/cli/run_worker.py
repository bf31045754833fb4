"""`shopfloor run` for workers and agents: start the run, watch it and return its exit code."""

from __future__ import annotations

import json
import sys
import time
from argparse import Namespace

import anyio

from shopfloor.cli.arguments import storage_from_args
from shopfloor.cli.client_session import is_remote, resolve_remote_run_id, run_with_client
from shopfloor.cli.links import print_link
from shopfloor.cli.outcome_notice import announce_outcome
from shopfloor.cli.renderer import render_options_from_args
from shopfloor.cli.run_options import (
    find_worker_info,
    known_workers,
    masking_from_args,
    parse_worker_input,
    read_stdin,
    reject_worker_options,
    run_request_fields,
    with_worker_hint,
    worker_settings_from_args,
)
from shopfloor.cli.tool_commands import parse_tool_handlers
from shopfloor.cli.watch import EventStream, RunWatcher
from shopfloor.client import Client
from shopfloor.errors import ProviderNotFound, ShopfloorError, UnsupportedOption, UsageError
from shopfloor.wiring import provider_names


def run_worker(args: Namespace) -> int:
    """Run a worker here, or hand it to the server with `--detach`."""
    mask = masking_from_args(args)
    if args.detach:
        if mask is not None:
            raise UnsupportedOption(
                "--detach does not support masking: the secrets would have to be sent to the server",
                hint="remove --detach, or remove --mask-env and --mask-keys",
            )
        from shopfloor.cli.dispatch import dispatch

        return dispatch(args)
    if is_remote():
        reject_worker_options(args)
    watcher = RunWatcher(render_options_from_args(args))

    async def run(client: Client) -> int:
        known = await known_workers(client)
        worker = find_worker_info(args.worker, known)
        tools = watcher.tools = parse_tool_handlers(args.tool, worker, known)
        worker_input, fields = parse_worker_input(args, worker), run_request_fields(args)

        def start(abort: anyio.Event) -> EventStream:
            return client.workers.execute(args.worker, worker_input, tools=tools, signal=abort, **fields)

        code = await watcher.follow(client, start, args.worker)
        if not args.quiet:
            # A tool of any other worker is accepted, because this worker may call it. Now it is known to be unused.
            for name in sorted(tools.keys() - {*worker.client_tools} - watcher.requested_tools):
                print(f"shopfloor: the tool {name} (--tool) was never called", file=sys.stderr)
        return code

    started_at = time.monotonic()
    try:
        return run_with_client(
            args,
            run,
            workers=worker_settings_from_args(args),
            can_run=True,
            mask=mask,
            on_signal=watcher.on_signal,
        )
    except ShopfloorError as error:
        raise with_worker_hint(error, args, served=is_remote()) from error
    finally:
        print_link(args, watcher.run_id)
        # In its own event loop, after the engine has stopped: the outcome is stored, and the command delays no run.
        announce_outcome(args, watcher.run_id, time.monotonic() - started_at)


def run_provider(args: Namespace) -> int:
    """Hand a prompt to an agent or a model API. Each provider is also a worker, whose input is made of the options."""
    names = provider_names()
    if args.provider not in names:
        raise ProviderNotFound(f"unknown provider {args.provider!r}", hint=f"the providers are {', '.join(names)}")
    if args.command is not None:
        raise UsageError("--provider and --command cannot be used together", hint="choose one of them")
    if args.text is not None:
        raise UsageError(
            f"--provider takes one prompt, got also {args.text!r}",
            hint="put the prompt in quotes, and name no worker: --provider names the agent",
        )
    if args.max_turns is not None and args.max_turns < 1:
        raise UsageError(f"--max-turns must be at least 1, got {args.max_turns}")
    if args.max_budget is not None and not 0 < args.max_budget < float("inf"):
        raise UsageError(f"--max-budget must be an amount in USD greater than 0, got {args.max_budget:g}")
    worker_input = {
        "prompt": _prompt(args),
        "model": args.model,
        "tools": [name.strip() for name in args.tools.split(",") if name.strip()] if args.tools is not None else None,
        "read_only": args.read_only or None,
        "sandbox": args.sandbox or None,
        "max_turns": args.max_turns,
        "max_budget": args.max_budget,
        "resume": _resumed_run_id(args),
        "timeout": args.timeout,
    }
    args.worker = args.provider
    args.input_json = json.dumps({name: value for name, value in worker_input.items() if value is not None})
    return run_worker(args)


def _prompt(args: Namespace) -> str:
    prompt = read_stdin() if args.worker == "-" else args.worker
    if prompt is None or not prompt.strip():
        raise UsageError(
            "the prompt is empty", hint=f"e.g. shopfloor run --provider {args.provider} 'fix the failing test'"
        )
    return prompt


def _resumed_run_id(args: Namespace) -> str | None:
    if args.resume is None:
        return None
    return resolve_remote_run_id(args.resume) if is_remote() else storage_from_args(args).find(args.resume)
