"""Watchers: the clients that execute runs, at whichever server they are connected."""

from __future__ import annotations

from typing import Protocol


class Watchers(Protocol):
    """Counts the open connections of the clients that execute each run.

    A run is *bound* to its clients from `execute` or `continue` on, until it ends or waits for somebody.
    """

    async def connect(self, run_id: str, *, bound: bool = True) -> None:
        """Count a client of this run, which is bound to its clients from now on, or no longer."""
        ...

    async def disconnect(self, run_id: str) -> str | None:
        """Count a client less. Returns the name of the hang-up where it was the last client of a bound run."""
        ...

    async def unbind(self, run_id: str) -> None:
        """Unbind a run that has ended, or that waits for somebody."""
        ...

    async def is_abandoned(self, run_id: str, disconnect_id: str) -> bool:
        """Whether no client has returned since that hang-up; if so, the run is unbound. True once for each."""
        ...
