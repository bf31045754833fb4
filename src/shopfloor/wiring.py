"""The composition root: the only place that names adapters."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager

import msgspec

from shopfloor.adapters.local import LocalHost, LocalLogs, LocalProcesses
from shopfloor.errors import UsageError
from shopfloor.limits import DISK_LOW_WATER_BYTES
from shopfloor.ports import Logs, Processes
from shopfloor.record import Durability, Hook, Storage


class Shop(msgspec.Struct, frozen=True):
    """A host with what it works with."""

    host: str
    logs: Logs
    processes: Processes


@contextmanager
def local_shop(storage: Storage, *, durability: Durability, mask: Hook | None = None) -> Generator[Shop]:
    """Everything on this machine, in this process."""
    with LocalHost(storage) as host:
        logs = LocalLogs(storage, durability=durability, mask=mask, low_water=_low_water())
        yield Shop(host.id, logs, LocalProcesses(host))


def _low_water() -> int:
    said = os.environ.get("SHOPFLOOR_DISK_LOW_WATER", str(DISK_LOW_WATER_BYTES))
    if not said.isdecimal():
        raise UsageError(
            f"SHOPFLOOR_DISK_LOW_WATER is {said!r}, not a number of bytes", hint="unset it, or say e.g. 200000000"
        )
    return int(said)
