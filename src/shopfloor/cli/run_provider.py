"""`shopfloor run --provider`: a task handed to an agent as it is."""

from __future__ import annotations

import json
from argparse import Namespace

from shopfloor.cli.arguments import storage_of
from shopfloor.cli.ordering import read_stdin
from shopfloor.cli.remote import is_remote, run_meant
from shopfloor.cli.run_worker import run_worker
from shopfloor.errors import ProviderNotFound, UsageError
from shopfloor.wiring import provider_names


def run_provider(args: Namespace) -> int:
    names = provider_names()
    if args.provider not in names:
        raise ProviderNotFound(f"there is no provider {args.provider!r}", hint=f"there are {', '.join(names)}")
    if args.command is not None:
        raise UsageError("name one thing to run: --provider, or --command")
    if args.max_turns is not None and args.max_turns < 1:
        raise UsageError("--max-turns is a number, 1 or more")
    if args.max_budget is not None and not 0 < args.max_budget < float("inf"):
        raise UsageError("--max-budget is an amount of US dollars, more than 0")
    given = {
        "prompt": _prompt(args),
        "model": args.model,
        "tools": [name.strip() for name in args.tools.split(",") if name.strip()] if args.tools is not None else None,
        "read_only": args.read_only or None,
        "sandbox": args.sandbox or None,
        "max_turns": args.max_turns,
        "max_budget": args.max_budget,
        "resume": _run(args),
    }
    args.worker = args.provider
    args.input_json = json.dumps({name: value for name, value in given.items() if value is not None})
    return run_worker(args)


def _prompt(args: Namespace) -> str:
    prompt = read_stdin() if args.worker == "-" else args.worker
    if prompt is None or not prompt.strip():
        raise UsageError("there is no prompt", hint=f"shopfloor run --provider {args.provider} 'fix the failing test'")
    return prompt


def _run(args: Namespace) -> str | None:
    if args.resume is None:
        return None
    return run_meant(args.resume) if is_remote() else storage_of(args).find(args.resume)
