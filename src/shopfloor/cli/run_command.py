"""`shopfloor run --command`: a bare command, live, with its transcript kept."""

from __future__ import annotations

import contextlib
import signal
import sys
from argparse import Namespace

import anyio

from shopfloor.cli.arguments import folder_of, storage_of
from shopfloor.cli.echo import Echo
from shopfloor.cli.masking import masking_of
from shopfloor.cli.style import duration
from shopfloor.engine import Cancellation, CommandRun, Outcome, run_command
from shopfloor.errors import ShopfloorError, UnexpectedError, UsageError, exit_code_of
from shopfloor.limits import STOP_GRACE_SECONDS
from shopfloor.log import new_run_id
from shopfloor.record import Durability, Masking
from shopfloor.wiring import Shop, local_shop

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_OUTPUT_CLOSED = "the output was closed"


def record_command(args: Namespace) -> int:
    storage = storage_of(args)
    mask = masking_of(args)
    with local_shop(storage, durability=Durability(args.durability or Durability.GROUP), mask=mask) as shop:
        order = _order(args, shop)
        ended, outcome = anyio.run(_record, shop, order, mask)
    if not args.quiet:
        # The command's exit code is ours, also where nobody can read this any more.
        with contextlib.suppress(OSError):
            print(_closing_line(order.run_id, outcome), file=sys.stderr, flush=True)
    return ended if ended is not None else _exit_code(outcome)


def _order(args: Namespace, shop: Shop) -> CommandRun:
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
    return CommandRun(
        run_id=new_run_id(),
        command=args.command,
        cwd=str(cwd),
        host=shop.host,
        owner=args.owner or "command",
        channel_id=args.channel,
        channel_name=args.channel_name or args.channel,
        stop_grace=grace,
        inherits_stdin=_stdin_is_given(),
    )


def _stdin_is_given() -> bool:
    """Whether there is input to pass on: a pipe, a file or a device. A terminal is not, nor is a closed stdin."""
    # Where stdin was closed before we began, its descriptor may be another file's by now.
    return sys.stdin is not None and not sys.stdin.closed and not sys.stdin.isatty()


async def _record(shop: Shop, order: CommandRun, mask: Masking | None) -> tuple[int | None, Outcome]:
    """The outcome, and our exit code where it is not for the command to say."""
    cancellation = Cancellation()
    received: list[int] = []
    # An error leaves the task group as what it is, not wrapped in a group of one.
    result: Outcome | ShopfloorError = UnexpectedError("the run was left before it had ended")
    # What we were told to ignore, as by nohup, stays ignored.
    heard = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    with anyio.open_signal_receiver(*heard) as signals:

        async def obey() -> None:
            async for number in signals:
                received.append(number)
                cancellation.request(f"cancelled by {signal.Signals(number).name}")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(obey)
            try:
                result = await run_command(
                    order,
                    logs=shop.logs,
                    processes=shop.processes,
                    echo=Echo(lambda: cancellation.request(_OUTPUT_CLOSED)).pieces,
                    cancellation=cancellation,
                    mask=mask,
                )
            except ShopfloorError as error:
                result = error
            tasks.cancel_scope.cancel()
    if isinstance(result, ShopfloorError):
        raise result
    if received:
        return 128 + received[0], result
    return (128 + signal.SIGPIPE if cancellation.reason == _OUTPUT_CLOSED else None), result


def _exit_code(outcome: Outcome) -> int:
    """The command's own code, unless it was we who failed."""
    if outcome.error is None:
        return 0
    if outcome.exit is not None and outcome.error.code == "command_failed":
        return outcome.exit.shell_code
    return exit_code_of(outcome.error.code)


def _closing_line(run_id: str, outcome: Outcome) -> str:
    why = f" ({outcome.error.message})" if outcome.error else ""
    if outcome.exit is not None and outcome.exit.outlived:
        why += ", but something it started goes on out of our reach,"
    if outcome.exit is not None and (count := len(outcome.exit.ended_processes)):
        why += f", ended {count:,} process{'es' if count > 1 else ''} that outlived it,"
    took = duration(outcome.duration_ms)
    return f"shopfloor: {outcome.status}{why} in {took} · {outcome.events:,} events · shopfloor show {run_id[:8]}"
