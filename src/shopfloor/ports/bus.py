"""Bus: live events and wake-ups, from the writers of logs to their followers.

An event is published after the storage of the log has acknowledged it, never before. The bus is fast but not complete:
a subscriber that is slow or in another process reads the events that it missed from the log.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

from shopfloor.log import Delta, Entry, Gap
from shopfloor.views import FleetEvent


class Subscription(Protocol):
    """The unread events of one run for one subscriber, limited by a buffer."""

    async def wait(self, seconds: float) -> None:
        """Return when something was published or notified since the last `drain`, or after `seconds`."""
        ...

    def drain(self) -> list[Entry | Gap | Delta]:
        """Return the items published since the last call, in order, with a `Gap` where the buffer overflowed.

        Never waits.

        The first call after `notify` returns an empty list, even if items are pending. The caller must then read the
        log, which has changed in a way that is no event of this process. The call after that returns the pending items.
        """
        ...


class RunsSubscription(Protocol):
    """The unread events of all runs for one subscriber."""

    async def wait(self, seconds: float) -> None:
        """Return when something was published or notified since the last `drain`, or after `seconds`."""
        ...

    def drain(self) -> dict[str, list[Entry]]:
        """Return the runs that changed since the last call, each with its consecutive new events.

        An empty list means that the caller must read the log: the buffer overflowed, or another process wrote the log.
        """
        ...


class FleetSubscription(Protocol):
    """The wake-ups for one reader of stored fleet events, and the heartbeats that are not stored."""

    async def wait(self, seconds: float) -> None:
        """Return when new fleet events are stored or a heartbeat came since the last `drain`, or after `seconds`."""
        ...

    def drain(self) -> list[FleetEvent]:
        """Return the heartbeats since the last call, in order; the oldest are dropped if there are too many."""
        ...


class Bus(Protocol):
    """Publish and subscribe to events of runs and of the fleet."""

    def publish(self, run_id: str, entry: Entry) -> None:
        """Send a stored event to the subscribers of this run. Never waits; may be called from any thread."""
        ...

    def publish_delta(self, run_id: str, delta: Delta) -> None:
        """Send a part of a message that is being generated."""
        ...

    def notify(self, run_id: str) -> None:
        """Tell the subscribers of this run to read the log, because it was opened, closed or deleted."""
        ...

    def subscribe(self, run_id: str, *, deltas: bool = False) -> AbstractContextManager[Subscription]:
        """Subscribe to one run, from the next event on. Call this in the event loop that will wait."""
        ...

    def subscribe_all(self) -> AbstractContextManager[RunsSubscription]:
        """Subscribe to every run, from the next event on."""
        ...

    def notify_fleet(self) -> None:
        """Wake the readers of fleet events, because new ones are stored. May be called from any thread."""
        ...

    def publish_heartbeat(self, event: FleetEvent) -> None:
        """Send a heartbeat to the readers of fleet events. May be called from any thread."""
        ...

    def subscribe_fleet(self) -> AbstractContextManager[FleetSubscription]:
        """Subscribe to wake-ups and heartbeats, from the next one on. Call this in the event loop that will wait."""
        ...
