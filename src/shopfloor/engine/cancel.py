"""Cancelling: asked for once, with a reason; asked for twice, without patience."""

from __future__ import annotations

import asyncio


class Cancellation:
    def __init__(self) -> None:
        self.reason: str | None = None
        self.requested = asyncio.Event()
        self.forced = asyncio.Event()

    def request(self, reason: str) -> None:
        """The first time asks for a clean end; from the second time on it is to end at once."""
        if self.reason is None:
            self.reason = reason
            self.requested.set()
        else:
            self.forced.set()
