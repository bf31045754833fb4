"""Implementations of the ports: local files and processes, SQLite, memory, models, providers. None imports another."""
