"""`shopfloor run --command`: a bare command, live, with its transcript kept."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from argparse import Namespace

import anyio

from shopfloor.cli.arguments import folder_of, storage_of
from shopfloor.cli.echo import Echo
from shopfloor.cli.masking import masking_of
from shopfloor.cli.style import duration
from shopfloor.engine import Cancellation, CommandOutcome, CommandRequest, StepCommand, run_command, shell_argv
from shopfloor.errors import UsageError, exit_code_of
from shopfloor.limits import STOP_GRACE_SECONDS
from shopfloor.log import new_run_id
from shopfloor.record import Durability
from shopfloor.wiring import Shop, local_shop

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_OUTPUT_CLOSED = "the output was closed"


def record_command(args: Namespace) -> int:
    storage = storage_of(args)
    durability = Durability(args.durability or Durability.GROUP)
    with local_shop(storage, durability=durability, mask=masking_of(args)) as shop:
        request = _request(args, shop)
        exit_code, outcome = anyio.run(_record, shop, request)
    if not args.quiet:
        # The command's exit code is ours, also where nobody can read this any more.
        with contextlib.suppress(OSError):
            print(_closing_line(request.run_id, outcome), file=sys.stderr, flush=True)
    return exit_code


def _request(args: Namespace, shop: Shop) -> CommandRequest:
    if not args.command.strip():
        raise UsageError("the command is empty", hint="shopfloor run --command 'echo hello'")
    if "\0" in args.command:
        raise UsageError("a command cannot hold a NUL")
    grace: float = STOP_GRACE_SECONDS if args.grace is None else args.grace
    if not 0 <= grace < float("inf"):
        raise UsageError("--grace is a number of seconds, 0 or more")
    cwd = folder_of(args.cwd or ".")
    if not cwd.is_dir():
        raise UsageError(f"there is no folder {cwd}", hint="name one that exists with --cwd")
    command = StepCommand(
        argv=shell_argv(args.command), cwd=str(cwd), stop_grace=grace, inherits_stdin=_stdin_is_given()
    )
    return CommandRequest(
        run_id=new_run_id(),
        command=command,
        host=shop.host,
        owner=args.owner or "command",
        channel_id=args.channel,
        channel_name=args.channel_name or args.channel,
    )


def _stdin_is_given() -> bool:
    """Whether there is input to pass on: a pipe, a file or a device. A terminal is not, nor is a closed stdin."""
    # Where stdin was closed before we began, its descriptor may be another file's by now.
    return sys.stdin is not None and not sys.stdin.closed and not sys.stdin.isatty()


async def _record(shop: Shop, request: CommandRequest) -> tuple[int, CommandOutcome]:
    """Execute the command; return our exit code and the outcome."""
    cancellation = Cancellation()
    received: list[int] = []

    def cancel(number: int) -> None:
        received.append(number)
        cancellation.request(f"cancelled by {signal.Signals(number).name}")

    for number in _SIGNALS:
        # What we were told to ignore, as by nohup, stays ignored.
        if signal.getsignal(number) is not signal.SIG_IGN:
            asyncio.get_running_loop().add_signal_handler(number, cancel, number)
    outcome = await run_command(
        request,
        logs=shop.logs,
        processes=shop.processes,
        cancellation=cancellation,
        echo=Echo(lambda: cancellation.request(_OUTPUT_CLOSED)).pieces,
    )
    if received:
        return 128 + received[0], outcome
    return (128 + signal.SIGPIPE if cancellation.reason == _OUTPUT_CLOSED else _exit_code(outcome)), outcome


def _exit_code(outcome: CommandOutcome) -> int:
    """The command's own code, unless it was we who failed."""
    if outcome.run.error is None:
        return 0
    return exit_code_of(outcome.run.error.code) if outcome.exit_code is None else outcome.exit_code


def _closing_line(run_id: str, outcome: CommandOutcome) -> str:
    run, step = outcome.run, outcome.step
    why = f" ({run.error.message})" if run.error else ""
    if step is not None and step.result and step.result.get("outlived"):
        why += ", but something it started goes on out of our reach,"
    if step is not None and step.ended_processes and (count := len(step.ended_processes)):
        why += f", ended {count:,} process{'es' if count > 1 else ''} that outlived it,"
    took = duration(run.duration_ms or 0)
    return f"shopfloor: {run.status}{why} in {took} · {outcome.events:,} events · shopfloor show {run_id[:8]}"
