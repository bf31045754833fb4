"""Where an engine keeps and finds its runs."""

from __future__ import annotations

import msgspec

from shopfloor.ports import Hosts, LogReader, Logs, Queue, Store
from shopfloor.record import Storage


class StoragePorts(msgspec.Struct, frozen=True, kw_only=True):
    """The storage of an engine, and the ports to what is in it."""

    storage: Storage
    store: Store
    queue: Queue
    hosts: Hosts
    logs: Logs
    reader: LogReader
