"""The ingest of a file storage, for tests that write logs without the bus."""

from __future__ import annotations

from shopfloor.adapters.local import LocalBus, LocalLogFeed
from shopfloor.engine import Ingest
from shopfloor.ports import Store
from shopfloor.record import Storage

POLL_INTERVAL_SECONDS = 0.05


def create_ingest(storage: Storage, store: Store, *, forget_at: int = 1024 * 1024) -> Ingest:
    """Return an ingest that polls the logs often, because it gets no notifications."""
    return Ingest(
        LocalLogFeed(storage), store, LocalBus(), forget_after_bytes=forget_at, poll_seconds=POLL_INTERVAL_SECONDS
    )
