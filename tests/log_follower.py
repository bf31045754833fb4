"""A follower of a log that remembers what it received, and deltas and messages to follow."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import anyio
from tests.timeouts import TIMEOUT_SECONDS

from shopfloor.log import AssistantMessage, Delta, Entry, Reset, TextBlock

Batch = list[Entry | Reset | Delta]


def delta(after: int, text: str, message_id: str = "m1", offset: int = 0) -> Delta:
    return Delta(after=after, path="s", message_id=message_id, block=0, kind="text", offset=offset, text=text)


def message(text: str, message_id: str | None = None) -> AssistantMessage:
    return AssistantMessage(message_id=message_id, blocks=[TextBlock(fidelity="router", text=text)])


def simplify(item: Entry | Reset | Delta) -> Any:
    """Return the `seq` of an event, the text of a delta, a reset unchanged."""
    return item.seq if isinstance(item, Entry) else item.text if isinstance(item, Delta) else item


class Follower:
    """A follower, and the items it has received so far."""

    def __init__(self, batches: AsyncIterator[Batch]) -> None:
        self._batches = batches
        self.received: list[Any] = []
        self.quiet = 0
        """The number of empty batches."""

    async def until(self, done: Callable[[], bool]) -> None:
        with anyio.fail_after(TIMEOUT_SECONDS):
            while not done():
                batch = await anext(self._batches)
                self.quiet += not batch
                self.received += map(simplify, batch)

    async def has(self, *wanted: Any) -> None:
        await self.until(lambda: len(self.received) >= len(wanted))
        assert self.received == list(wanted)

    async def is_quiet(self) -> None:
        """Wait for an empty batch."""
        quiet = self.quiet
        await self.until(lambda: self.quiet > quiet)

    async def rest(self) -> list[Any]:
        """Read to the end and return all items."""
        with anyio.fail_after(TIMEOUT_SECONDS):
            async for batch in self._batches:
                self.received += map(simplify, batch)
        return self.received
