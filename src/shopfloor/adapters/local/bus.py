"""The live bus of a storage on this machine: of this process, and with notices from and to others."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from shopfloor.adapters.bus import LiveBus
from shopfloor.adapters.local.notices import NoticeSender, receive_notices
from shopfloor.log import Entry, RunCompleted
from shopfloor.record import Storage


class LocalBus(LiveBus):
    """What is published here is also told to the server of `storage`, if that is another process."""

    def __init__(self, storage: Storage | None = None) -> None:
        super().__init__()
        self._sender = NoticeSender(storage.live_socket) if storage else None

    def publish(self, run_id: str, entry: Entry) -> None:
        super().publish(run_id, entry)
        if self._sender is not None:
            self._sender.tell(run_id, at_once=entry.type == RunCompleted.event_type)

    def notify(self, run_id: str) -> None:
        super().notify(run_id)
        if self._sender is not None:
            self._sender.tell(run_id, at_once=True)

    @contextmanager
    def receiving(self, storage: Storage) -> Generator[None]:
        """Be the bus of the server: have other processes tell of their logs. In the event loop of the subscribers."""
        sender, self._sender = self._sender, None
        try:
            with receive_notices(storage.live_socket, super().notify):
                yield
        finally:
            self._sender = sender
