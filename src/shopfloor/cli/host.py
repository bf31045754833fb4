"""`shopfloor host`: execute runs of this storage, without the page and the API."""

from __future__ import annotations

import logging
import math
import signal
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import AsyncGenerator, AsyncIterable
from typing import TYPE_CHECKING

import anyio

from shopfloor.cli.arguments import PLUGINS_OPTION, WORKERS_OPTION, Parser, label, slot_count, storage_from_args
from shopfloor.cli.main import restore_gc_thresholds
from shopfloor.cli.shutdown import receive_signals, schedule_exit_if_tasks_remain
from shopfloor.cli.up import return_freed_memory, slots_setting
from shopfloor.limits import (
    DRAIN_SECONDS,
    HOST_HEARTBEAT_MIN_SECONDS,
    HOST_HEARTBEAT_SECONDS,
    HOST_SLOTS,
    LONGEST_SPAN_SECONDS,
)
from shopfloor.wiring import WorkerSettings, heartbeat_seconds, run_host

if TYPE_CHECKING:
    from shopfloor.fleet import RegisteredHost

EXAMPLES = """\
  shopfloor host                      beside `shopfloor up`, or several of them
  shopfloor host --slots 4            execute at most 4 runs at once
  shopfloor host --label gpu=yes      for runs that need this label
  shopfloor host --drain 300          after SIGTERM runs have 5 minutes to end

SIGTERM drains: the host claims no more runs, and stops when those that it has
have ended. After the time of --drain, or a second SIGTERM, other hosts resume
them. Ctrl-C stops at once."""


def parser(name: str, summary: str) -> ArgumentParser:
    """Return the parser of the command's arguments."""
    parser = Parser(name, summary, examples=EXAMPLES)
    parser.add_argument(
        "--slots",
        metavar="N",
        type=slot_count,
        help=f"execute at most N runs at once (default: $SHOPFLOOR_SLOTS or {HOST_SLOTS})",
    )
    parser.add_argument(
        "--label",
        metavar="NAME=VALUE",
        type=label,
        action="append",
        default=[],
        help="a label of this host, which runs can require (repeatable)",
    )
    parser.add_argument(
        "--heartbeat",
        metavar="SECONDS",
        type=heartbeat_interval,
        help=f"time between heartbeats (default: $SHOPFLOOR_HEARTBEAT or {HOST_HEARTBEAT_SECONDS:g})",
    )
    parser.add_argument(
        "--drain",
        metavar="SECONDS",
        type=seconds,
        default=DRAIN_SECONDS,
        help=f"time for runs to end after SIGTERM (default: {DRAIN_SECONDS:g}; 0 stops at once)",
    )
    parser.add_argument("--workers", **WORKERS_OPTION)
    parser.add_argument("--plugins", **PLUGINS_OPTION)
    return parser


def seconds(text: str) -> float:
    """Parse a number of seconds."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 <= number <= LONGEST_SPAN_SECONDS:
        raise ArgumentTypeError(f"must be a number of seconds, got {text!r}")
    return number


def heartbeat_interval(text: str) -> float:
    """Parse the number of seconds between heartbeats."""
    if (number := seconds(text)) < HOST_HEARTBEAT_MIN_SECONDS:
        raise ArgumentTypeError(f"must be at least {HOST_HEARTBEAT_MIN_SECONDS:g}, got {text!r}")
    return number


def run(args: Namespace) -> int:
    """Execute runs until a signal stops the host."""
    logging.basicConfig(level=logging.WARNING, format="shopfloor: %(message)s", stream=sys.stderr)
    return_freed_memory()
    storage = storage_from_args(args)
    workers = WorkerSettings.from_names(
        args.workers, plugins=args.plugins, slots=args.slots or slots_setting(), labels=dict(args.label)
    )

    started: list[RegisteredHost] = []

    def on_started(host: RegisteredHost) -> None:
        started.append(host)
        print(f"host {host.id} executes runs of {storage.root}, at most {workers.slots} at once")
        print("  SIGTERM drains it; Ctrl-C stops it", flush=True)
        restore_gc_thresholds()

    async def serve() -> None:
        with receive_signals((signal.SIGINT, signal.SIGTERM)) as signals:
            await run_host(
                storage,
                workers=workers,
                heartbeat_seconds=args.heartbeat or heartbeat_seconds(),
                drain_seconds=args.drain,
                signals=_announce(signals, args.drain),
                on_started=on_started,
            )
        schedule_exit_if_tasks_remain(0)

    anyio.run(serve, backend_options={"use_uvloop": True})
    for host in started:
        left = f"; {_count_runs(len(host.orphans))} open, for other hosts to resume" if host.orphans else ""
        print(f"host {host.id} has stopped{left}", flush=True)
    return 0


async def _announce(signals: AsyncIterable[int], drain_seconds: float) -> AsyncGenerator[int]:
    """Yield the signals, and print what the host does at each."""
    is_draining = False
    async for number in signals:
        if number == signal.SIGTERM and drain_seconds and not is_draining:
            is_draining = True
            print(f"draining: claims no more runs, and stops when its runs have ended, within {drain_seconds:g} s")
        else:
            print("stopping")
        sys.stdout.flush()
        yield number


def _count_runs(count: int) -> str:
    return "1 run is" if count == 1 else f"{count:,} runs are"
