"""A writer of incomplete messages: appends their new text as chunks, at most one per second and message."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

import anyio

from shopfloor.engine.attempt import Attempt
from shopfloor.engine.replay_state import StepKey
from shopfloor.errors import ShopfloorError, StorageError
from shopfloor.limits import CHUNK_FLUSH_SECONDS
from shopfloor.log import AssistantMessage, Masking, PartialMessage

WritePartial = Callable[[AssistantMessage], Awaitable[object]]
"""Appends a chunk of a message to the log."""


class PartialMessageWriter:
    """A background writer that appends the new text of partial messages after a second.

    Hold `lock` while writing a complete message, so that no chunk of it follows.
    """

    def __init__(self, mask: Masking | None) -> None:
        self.lock = asyncio.Lock()
        self._mask_stable = mask.mask_stable_prefix if mask is not None else None
        self._pending: dict[PartialMessage, tuple[float, WritePartial]] = {}
        """Messages with unwritten text: since when they have it, and the function that writes them."""
        self._has_new_text = asyncio.Event()

    def schedule_write(self, message: PartialMessage, write: WritePartial) -> None:
        """Schedule the new text of a message to be written."""
        if message not in self._pending:
            self._pending[message] = (time.monotonic(), write)
            self._has_new_text.set()

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Write chunks until the block ends. An error of the block is raised without an exception group."""
        failure: Exception | None = None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.run)
            try:
                yield
            except Exception as error:  # noqa: BLE001 - raised below, outside of the task group
                failure = error
            tasks.cancel_scope.cancel()
        if failure is not None:
            raise failure

    async def run(self) -> None:
        """Write chunks until cancelled, or until the log refuses them."""
        try:
            while True:
                await self._has_new_text.wait()
                self._has_new_text.clear()
                while self._pending:
                    first = min(since for since, _ in self._pending.values())
                    await anyio.sleep(max(0.0, first + CHUNK_FLUSH_SECONDS - time.monotonic()))
                    await self._write_due()
        except ShopfloorError:
            # The log is closed or refuses chunks. The step does not fail for that: its own writes raise errors.
            return

    async def _write_due(self) -> None:
        """Write the messages whose text has waited long enough."""
        latest = time.monotonic() - CHUNK_FLUSH_SECONDS
        for message, (since, write) in list(self._pending.items()):
            if since > latest:
                continue
            async with self.lock:
                del self._pending[message]
                chunk = message.next_chunk(self._mask_stable)
                if chunk is None:
                    continue
                try:
                    await write(chunk)
                except StorageError:
                    # Retry in a second. The step itself fails if the disk stays full.
                    message.unmark_written(chunk)
                    self.schedule_write(message, write)


async def end_partial_messages(attempt: Attempt) -> None:
    """Write the messages that an earlier attempt left incomplete, assembled from their chunks."""
    for event in attempt.replay_state.partial.rest():
        if isinstance(event.payload, AssistantMessage):
            await attempt.append(event.payload, StepKey(event.path, event.iteration))
