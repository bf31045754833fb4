"""Bus: live events and wake-ups, from those who write logs to those who watch them.

An event is published after the log's authority has acknowledged it, and never before. The bus promises speed, not
completeness: a subscriber that is slow, or that sits in another process, reads what it missed from the log.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

from shopfloor.log import Delta, Entry, Gap


class Subscription(Protocol):
    """What one subscriber has not read yet of one run: at most a buffer of it."""

    async def wait(self, seconds: float) -> None:
        """Return when something was published or notified since the last `drain`, or after that many seconds."""
        ...

    def drain(self) -> list[Entry | Gap | Delta]:
        """What was published since the last call, in order, with a gap where the buffer had no room; never waits.

        After `notify` the next call gives an empty list, once, whatever is pending: the log has to be looked at, since
        something happened to it which is no event of this process. The call after that gives what is pending.
        """
        ...


class RunsSubscription(Protocol):
    """What one subscriber has not read yet of all runs."""

    async def wait(self, seconds: float) -> None:
        """Return when something was published or notified since the last `drain`, or after that many seconds."""
        ...

    def drain(self) -> dict[str, list[Entry]]:
        """The runs that something happened to since the last call, each with the events that follow one another.

        An empty list says that the log has to be looked at: the buffer had no room, or another process wrote it.
        """
        ...


class Bus(Protocol):
    def publish(self, run_id: str, entry: Entry) -> None:
        """Pass a stored event on to whoever watches this run. Never waits; from any thread."""
        ...

    def publish_delta(self, run_id: str, delta: Delta) -> None:
        """Pass on a piece of a message that is being made."""
        ...

    def notify(self, run_id: str) -> None:
        """Have the log looked at by whoever watches this run: it was opened, closed or deleted."""
        ...

    def subscribe(self, run_id: str, *, deltas: bool = False) -> AbstractContextManager[Subscription]:
        """Watch one run, from the next event on. To be called in the event loop that waits."""
        ...

    def subscribe_all(self) -> AbstractContextManager[RunsSubscription]:
        """Watch every run, from the next event on."""
        ...
