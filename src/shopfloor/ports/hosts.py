"""Hosts: the processes that execute runs, as others see them."""

from __future__ import annotations

from typing import Protocol


class Hosts(Protocol):
    async def is_alive(self, host: str) -> bool:
        """Whether that process may still write logs. It may be stopped.

        With a lease, a process that is silent for longer than its lease is not alive, and its appends are refused.
        """
        ...

    async def is_dedicated(self, host: str) -> bool:
        """Whether it executes the runs of its caller and nothing else: no other run would suffer from its end."""
        ...

    async def interrupt(self, host: str) -> None:
        """Ask a dedicated host to cancel what it executes. Changes nothing for any other."""
        ...

    async def kill(self, host: str) -> None:
        """End a dedicated host, with all that it has started. Changes nothing for any other."""
        ...
