"""The store and the queue in one SQLite file, for any number of processes on one machine."""

from shopfloor.adapters.sqlite.fleet_events import SqliteFleetEvents
from shopfloor.adapters.sqlite.hooks import SqliteHooks
from shopfloor.adapters.sqlite.host_registry import SqliteHostRegistry
from shopfloor.adapters.sqlite.intake import StorageLogLookup
from shopfloor.adapters.sqlite.provider_health import SqliteProviderHealth
from shopfloor.adapters.sqlite.queue import SqliteQueue
from shopfloor.adapters.sqlite.store import SqliteStore, find_later_runs

__all__ = [
    "SqliteFleetEvents",
    "SqliteHooks",
    "SqliteHostRegistry",
    "SqliteProviderHealth",
    "SqliteQueue",
    "SqliteStore",
    "StorageLogLookup",
    "find_later_runs",
]
