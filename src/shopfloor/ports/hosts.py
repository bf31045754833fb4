"""Hosts: the processes that execute runs, as seen by other processes."""

from __future__ import annotations

from typing import Protocol


class Hosts(Protocol):
    """The registry of hosts."""

    async def is_alive(self, host: str) -> bool:
        """Return whether the process may still write logs. A suspended process counts as alive.

        With a lease, a process that is silent for longer than its lease is not alive, and its appends are refused.
        """
        ...

    async def is_dedicated(self, host: str) -> bool:
        """Return whether the host executes only the runs of its caller, so that ending it affects no other run."""
        ...

    async def interrupt(self, host: str) -> None:
        """Ask a dedicated host to cancel its runs. Does nothing for other hosts."""
        ...

    async def kill(self, host: str) -> None:
        """Kill a dedicated host and all processes it started. Does nothing for other hosts."""
        ...
