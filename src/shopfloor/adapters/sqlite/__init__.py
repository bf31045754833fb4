"""The store in one SQLite file: for one machine, any number of processes."""

from shopfloor.adapters.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
