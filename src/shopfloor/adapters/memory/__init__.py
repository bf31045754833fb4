"""Adapters in memory, for tests and for small programs that embed Shopfloor. All data ends with the process."""

from typing import TYPE_CHECKING

from shopfloor.lazy import lazy_getattr as _lazy_getattr

if TYPE_CHECKING:
    from shopfloor.adapters.memory.blobs import MemoryBlobs
    from shopfloor.adapters.memory.fleet_events import MemoryFleetEvents, MemoryProviderHealth
    from shopfloor.adapters.memory.hooks import MemoryHooks
    from shopfloor.adapters.memory.host_registry import MemoryHostRegistry
    from shopfloor.adapters.memory.logs import MemoryLogFeed, MemoryLogReader, MemoryLogs
    from shopfloor.adapters.memory.queue import MemoryQueue
    from shopfloor.adapters.memory.storage import MemoryAudit, MemoryHosts, MemoryStorage, MemoryTokens, MemoryWatchers
    from shopfloor.adapters.memory.store import MemoryStore

__all__ = [
    "MemoryAudit",
    "MemoryBlobs",
    "MemoryFleetEvents",
    "MemoryHooks",
    "MemoryHostRegistry",
    "MemoryHosts",
    "MemoryLogFeed",
    "MemoryLogReader",
    "MemoryLogs",
    "MemoryProviderHealth",
    "MemoryQueue",
    "MemoryStorage",
    "MemoryStore",
    "MemoryTokens",
    "MemoryWatchers",
]

__getattr__ = _lazy_getattr(
    __name__,
    {
        "storage": (
            "MemoryAudit",
            "MemoryHosts",
            "MemoryStorage",
            "MemoryTokens",
            "MemoryWatchers",
        ),
        "hooks": ("MemoryHooks",),
        "blobs": ("MemoryBlobs",),
        "logs": (
            "MemoryLogFeed",
            "MemoryLogReader",
            "MemoryLogs",
        ),
        "fleet_events": ("MemoryFleetEvents", "MemoryProviderHealth"),
        "host_registry": ("MemoryHostRegistry",),
        "queue": ("MemoryQueue",),
        "store": ("MemoryStore",),
    },
)
