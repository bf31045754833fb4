"""A few real runs, so that a first look has something to look at."""

from __future__ import annotations

import os
from pathlib import Path

import anyio

from shopfloor.engine import Cancellation, CommandRun, run_command
from shopfloor.log import new_run_id
from shopfloor.ports import Piece
from shopfloor.record import Storage
from shopfloor.wiring import local_shop

_COMMANDS = (
    "echo 'Hello from the shop floor'; uname -sm",
    'python3 --version; for i in 1 2 3 4 5; do echo "step $i of 5"; sleep 0.1; done',
    "echo 'looking for what is not there' >&2; ls /no/such/folder",
)


def make_example_runs(storage: Storage) -> None:
    """Records them, unless the storage has runs already."""
    if next(storage.run_ids(), None) is not None:
        return
    with local_shop(storage) as shop:
        for command in _COMMANDS:
            order = CommandRun(run_id=new_run_id(), command=command, cwd=os.fspath(Path.cwd()), host=shop.host)

            async def record(order: CommandRun = order) -> None:
                await run_command(
                    order, logs=shop.logs, processes=shop.processes, echo=_hush, cancellation=Cancellation()
                )

            anyio.run(record)


async def _hush(pieces: list[Piece]) -> None:
    """What they print can be read in their transcripts."""
