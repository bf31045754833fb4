"""Watchers: the clients that execute runs, whichever server they are connected to."""

from __future__ import annotations

from typing import Protocol


class Watchers(Protocol):
    """Counters of the open connections of the clients that execute each run.

    A run is *bound* to its clients from `execute` or `continue` until it ends or waits for an answer.
    """

    async def connect(self, run_id: str, *, bound: bool = True) -> None:
        """Count a new client of this run, and bind or unbind the run."""
        ...

    async def disconnect(self, run_id: str) -> str | None:
        """Count a client less. Return a new disconnect id if this was the last client of a bound run."""
        ...

    async def unbind(self, run_id: str) -> None:
        """Unbind a run that has ended or waits for an answer."""
        ...

    async def is_abandoned(self, run_id: str, disconnect_id: str) -> bool:
        """Return whether no client has connected since that disconnect, and if so, unbind the run.

        True once per disconnect.
        """
        ...
