"""Requests to cancel a run."""

from __future__ import annotations

import asyncio


class Cancellation:
    """The requests to cancel a run. The first one cancels gracefully, a second one forces the end."""

    def __init__(self) -> None:
        self.reason: str | None = None
        self.requested = asyncio.Event()
        self.forced = asyncio.Event()

    def request(self, reason: str) -> None:
        """Request a graceful end; from the second call on, an immediate one. The first reason is kept."""
        if self.reason is None:
            self.reason = reason
            self.requested.set()
        else:
            self.forced.set()
