"""The store and the queue in one SQLite file: for one machine, any number of processes."""

from shopfloor.adapters.sqlite.intake import StorageLogLookup
from shopfloor.adapters.sqlite.queue import SqliteQueue
from shopfloor.adapters.sqlite.store import SqliteStore

__all__ = ["SqliteQueue", "SqliteStore", "StorageLogLookup"]
