"""Writing messages that are not complete: their new text as pieces, at most one per second and message."""

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


class PartialMessageWriter:
    """Writes the text of partial messages that has waited for a second.

    Hold `lock` while a whole message is written, so that no piece of it comes later.
    """

    def __init__(self, mask: Masking | None) -> None:
        self.lock = asyncio.Lock()
        self._settle = mask.mask_stable_prefix if mask is not None else None
        self._waiting: dict[PartialMessage, tuple[float, WritePartial]] = {}
        """Messages with text that is in no piece, since when they have it, and how they are written."""
        self._grown = asyncio.Event()

    def schedule_write(self, message: PartialMessage, write: WritePartial) -> None:
        """A message has new text."""
        if message not in self._waiting:
            self._waiting[message] = (time.monotonic(), write)
            self._grown.set()

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Write pieces until the block ends. An error of the block is raised as it is, not in a group."""
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
        """Write pieces until cancelled, or until nothing can be written to the log any more."""
        try:
            while True:
                await self._grown.wait()
                self._grown.clear()
                while self._waiting:
                    first = min(since for since, _ in self._waiting.values())
                    await anyio.sleep(max(0.0, first + CHUNK_FLUSH_SECONDS - time.monotonic()))
                    await self._write_due()
        except ShopfloorError:
            # The log is closed, or takes no pieces. That is no reason for the step to fail: it meets its own errors.
            return

    async def _write_due(self) -> None:
        latest = time.monotonic() - CHUNK_FLUSH_SECONDS
        for message, (since, write) in list(self._waiting.items()):
            if since > latest:
                continue
            async with self.lock:
                del self._waiting[message]
                piece = message.next_chunk(self._settle)
                if piece is None:
                    continue
                try:
                    await write(piece)
                except StorageError:
                    # There may be room in a second. The step itself fails if there is none for long.
                    message.unmark_written(piece)
                    self.schedule_write(message, write)


async def end_partial_messages(attempt: Attempt) -> None:
    """Write the messages that an earlier attempt was cut off in, from their pieces."""
    for event in attempt.replay_state.partial.rest():
        if isinstance(event.payload, AssistantMessage):
            await attempt.append(event.payload, StepKey(event.path, event.iteration))
