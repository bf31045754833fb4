"""This process's memory, for tests and for small programs that embed us. Nothing outlives the process."""

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
