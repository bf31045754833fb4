"""A few real runs, so that a first look has something to look at."""

from __future__ import annotations

import os
from argparse import Namespace
from pathlib import Path
from typing import Any

import anyio

from shopfloor.cli.arguments import storage_of
from shopfloor.cli.asking import ask
from shopfloor.cli.remote import is_remote
from shopfloor.client import Client
from shopfloor.engine import Cancellation, CommandRequest, StepCommand, run_command, shell_argv
from shopfloor.log import new_run_id
from shopfloor.record import Storage
from shopfloor.wiring import local_shop

_COMMANDS = (
    "echo 'Hello from the shop floor'; uname -sm",
    "echo 'looking for what is not there' >&2; ls /no/such/folder",
)
_WORKERS: dict[str, dict[str, Any]] = {
    "hello": {"NAME": "Ada"},
    "repo-report": {},
    # Nobody searches the web for it: it waits, and can be answered.
    "research-assistant": {"TOPIC": "the history of tea"},
}


def make_example_runs(args: Namespace) -> None:
    """Records a few, and asks for others that whoever serves next makes; unless the storage has runs already."""
    storage = storage_of(args)
    if next(storage.run_ids(), None) is not None:
        return
    _record_commands(storage)
    # They are for the server that is about to start, never for one somewhere else.
    if not is_remote():
        ask(args, _dispatch_workers)


async def _dispatch_workers(client: Client) -> None:
    for worker, given in _WORKERS.items():
        order = {"worker": worker, "input": given, "channel_id": "examples", "cwd": os.fspath(Path.cwd())}
        await client.api.post("/api/runs", order)


def _record_commands(storage: Storage) -> None:
    with local_shop(storage) as shop:
        for script in _COMMANDS:
            command = StepCommand(argv=shell_argv(script), cwd=os.fspath(Path.cwd()))
            request = CommandRequest(run_id=new_run_id(), command=command, host=shop.host)

            async def record(request: CommandRequest = request) -> None:
                await run_command(request, logs=shop.logs, processes=shop.processes, cancellation=Cancellation())

            anyio.run(record)
