"""This process's memory, for tests and for small programs that embed us. Nothing outlives the process."""

from shopfloor.adapters.memory.queue import MemoryQueue
from shopfloor.adapters.memory.store import MemoryStore

__all__ = ["MemoryQueue", "MemoryStore"]
