"""This process's memory, for tests and for small programs that embed us. Nothing outlives the process."""

from typing import TYPE_CHECKING

from shopfloor.lazy import lazily as _lazily

if TYPE_CHECKING:
    from shopfloor.adapters.memory.audit import MemoryAudit
    from shopfloor.adapters.memory.feed import MemoryLogFeed
    from shopfloor.adapters.memory.hosts import MemoryHosts
    from shopfloor.adapters.memory.logs import MemoryLogs
    from shopfloor.adapters.memory.queue import MemoryQueue
    from shopfloor.adapters.memory.reader import MemoryLogReader
    from shopfloor.adapters.memory.storage import MemoryStorage
    from shopfloor.adapters.memory.store import MemoryStore
    from shopfloor.adapters.memory.tokens import MemoryTokens
    from shopfloor.adapters.memory.watchers import MemoryWatchers

__all__ = [
    "MemoryAudit",
    "MemoryHosts",
    "MemoryLogFeed",
    "MemoryLogReader",
    "MemoryLogs",
    "MemoryQueue",
    "MemoryStorage",
    "MemoryStore",
    "MemoryTokens",
    "MemoryWatchers",
]

__getattr__ = _lazily(
    __name__,
    {
        "audit": ("MemoryAudit",),
        "feed": ("MemoryLogFeed",),
        "hosts": ("MemoryHosts",),
        "logs": ("MemoryLogs",),
        "queue": ("MemoryQueue",),
        "reader": ("MemoryLogReader",),
        "storage": ("MemoryStorage",),
        "store": ("MemoryStore",),
        "tokens": ("MemoryTokens",),
        "watchers": ("MemoryWatchers",),
    },
)
