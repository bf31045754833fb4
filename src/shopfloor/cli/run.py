"""`shopfloor run`: a command as a worker, live, with its transcript kept."""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import select
import signal
import sys
import threading
from argparse import ArgumentParser, Namespace

import anyio

from shopfloor.cli.arguments import Parser, folder_of, storage_of
from shopfloor.cli.style import duration
from shopfloor.engine import Cancellation, CommandRun, Outcome, run_command
from shopfloor.errors import ShopfloorError, UnexpectedError, UsageError, exit_code_of
from shopfloor.limits import STOP_GRACE_SECONDS
from shopfloor.log import new_run_id
from shopfloor.ports import Piece
from shopfloor.record import Durability, Masking
from shopfloor.wiring import Shop, local_shop

EXAMPLES = """\
  shopfloor run --command 'pytest -q'                     record it; its exit code is ours
  shopfloor run --command 'make' --cwd ~/app --owner ada  in a folder, for somebody
  shopfloor run --command './deploy' --mask-env API_KEY   without that variable's value in the transcript"""
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_OUTPUT_CLOSED = "the output was closed"


def parser(name: str, summary: str) -> ArgumentParser:
    parser = Parser(name, summary, examples=EXAMPLES)
    parser.add_argument("--command", metavar="LINE", required=True, help="the shell command to run")
    parser.add_argument("--cwd", metavar="DIR", default=".", help="the folder to run it in (default: this one)")
    parser.add_argument("--owner", metavar="NAME", default="command", help="on whose behalf it runs")
    parser.add_argument("--channel", metavar="ID", default="cli", help="where it came from, e.g. discord:123:456")
    parser.add_argument("--channel-name", metavar="NAME", help="what people call that, e.g. '#general'")
    parser.add_argument(
        "--grace",
        metavar="SECONDS",
        type=float,
        default=STOP_GRACE_SECONDS,
        help="when cancelled: how long it may take to end by itself (default: %(default)g)",
    )
    parser.add_argument(
        "--durability",
        choices=[level.value for level in Durability],
        default=Durability.GROUP.value,
        help="when an event counts as written (default: %(default)s)",
    )
    parser.add_argument(
        "--mask-env",
        metavar="NAME",
        action="append",
        default=[],
        help="mask the value of this variable; may be repeated",
    )
    parser.add_argument("--mask-keys", action="store_true", help="mask what looks like a known kind of key")
    parser.add_argument("-q", "--quiet", action="store_true", help="nothing of our own on stderr")
    return parser


def run(args: Namespace) -> int:
    storage = storage_of(args)
    mask = _mask(args)
    with local_shop(storage, durability=Durability(args.durability), mask=mask) as shop:
        order = _order(args, shop)
        ended, outcome = anyio.run(_record, shop, order, mask)
    if not args.quiet:
        # The command's exit code is ours, also where nobody can read this any more.
        with contextlib.suppress(OSError):
            print(_closing_line(order.run_id, outcome), file=sys.stderr, flush=True)
    return ended if ended is not None else _exit_code(outcome)


def _mask(args: Namespace) -> Masking | None:
    values: list[str] = []
    name: str
    for name in args.mask_env:
        if name not in os.environ:
            raise UsageError(f"there is no variable {name} to mask", hint="set it, or leave --mask-env out")
        values.append(os.environ[name])
    return Masking(values, key_shapes=args.mask_keys) if values or args.mask_keys else None


def _order(args: Namespace, shop: Shop) -> CommandRun:
    if not args.command.strip():
        raise UsageError("the command is empty", hint="shopfloor run --command 'echo hello'")
    if "\0" in args.command:
        raise UsageError("a command cannot hold a NUL")
    if not 0 <= args.grace < float("inf"):
        raise UsageError("--grace is a number of seconds, 0 or more")
    cwd = folder_of(args.cwd)
    if not cwd.is_dir():
        raise UsageError(f"there is no folder {cwd}", hint="name one that exists with --cwd")
    return CommandRun(
        run_id=new_run_id(),
        command=args.command,
        cwd=str(cwd),
        host=shop.host,
        owner=args.owner,
        channel_id=args.channel,
        channel_name=args.channel_name or args.channel,
        stop_grace=args.grace,
    )


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
                    echo=_Echo(cancellation).pieces,
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


class _Echo:
    """The command's bytes to our own stdout and stderr, as they are. Whoever reads them sets the pace.

    In a thread of its own that nobody waits for: a reader who has stopped reading must not keep us from ending.
    """

    def __init__(self, cancellation: Cancellation) -> None:
        self._cancellation = cancellation
        self._loop = asyncio.get_running_loop()
        self._todo: queue.SimpleQueue[tuple[list[Piece], anyio.Event]] = queue.SimpleQueue()
        threading.Thread(target=self._work, name="shopfloor-echo", daemon=True).start()

    async def pieces(self, pieces: list[Piece]) -> None:
        written = anyio.Event()
        self._todo.put((pieces, written))
        await written.wait()

    def _work(self) -> None:
        listening = True
        while True:
            pieces, written = self._todo.get()
            if listening and not self._wrote(pieces):
                # As when a shell's pipe breaks: nobody listens, so the command ends.
                listening = False
                self._loop.call_soon_threadsafe(self._cancellation.request, _OUTPUT_CLOSED)
            with contextlib.suppress(RuntimeError):
                # The loop is closed when the run ended without waiting for us.
                self._loop.call_soon_threadsafe(written.set)

    def _wrote(self, pieces: list[Piece]) -> bool:
        for piece in pieces:
            descriptor = 1 if piece.stream == "stdout" else 2
            rest = memoryview(piece.data)
            while rest:
                try:
                    rest = rest[os.write(descriptor, rest) :]
                except BlockingIOError:
                    select.select([], [descriptor], [])
                except OSError:
                    return False
        return True


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
    took = duration(outcome.duration_ms)
    return f"shopfloor: {outcome.status}{why} in {took} · {outcome.events:,} events · shopfloor show {run_id[:8]}"
