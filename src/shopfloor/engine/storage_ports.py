"""The ports that the parts of an engine find and record runs by."""

from __future__ import annotations

import msgspec

from shopfloor.ports import Audit, Hosts, LogReader, Logs, Queue, Store


class StoragePorts(msgspec.Struct, frozen=True, kw_only=True):
    """The ports to a storage: all that the engine knows of it."""

    store: Store
    queue: Queue
    hosts: Hosts
    logs: Logs
    reader: LogReader
    audit: Audit
