"""Hosts: the processes that execute runs, as others see them."""

from __future__ import annotations

from typing import Protocol


class Hosts(Protocol):
    def alive(self, host: str) -> bool:
        """Whether that process is there still, though it may be stopped."""
        ...

    def alone(self, host: str) -> bool:
        """Whether it does nothing but runs of its own: nobody else's would suffer from its end."""
        ...

    def interrupt(self, host: str) -> None:
        """Asks it to cancel what it runs."""
        ...

    def kill(self, host: str) -> None:
        """Ends it, and with it whatever it has started."""
        ...
