"""This process's memory: a store for tests and for small programs that embed us. Nothing outlives the process."""

from shopfloor.adapters.memory.store import MemoryStore

__all__ = ["MemoryStore"]
