"""A run's stream that survives a broken connection: the client reconnects and continues it from the run's log."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Collection
from contextlib import aclosing
from typing import TypeVar

import anyio
import msgspec

from shopfloor.client.api import Api, LogTruncated, StreamOpened
from shopfloor.errors import RunNotFound, ServerUnreachable
from shopfloor.limits import QUEUED_POLL_SECONDS, RECONNECT_PAUSE_SECONDS, RECONNECT_TRIES
from shopfloor.log import Entry
from shopfloor.views import StreamEvent, StreamState, UnknownEvent, entry_step, replay

T = TypeVar("T")
E = TypeVar("E", bound=StreamEvent | UnknownEvent)
StreamUpdate = tuple[StreamState, int, list[StreamEvent]]
"""The new state, the `seq` before it, and the events. The log is complete up to the new `seq` with the last event."""
_OPEN = frozenset({"queued", "running", "waiting"})


class ReconnectBackoff:
    """Waits between attempts to reach a server, longer each time, and limits their number."""

    def __init__(self) -> None:
        self._tries = 0

    def reset(self) -> None:
        """Start over, after the server has responded."""
        self._tries = 0

    async def wait(self, error: ServerUnreachable) -> None:
        """Wait before the next attempt. Raises the error if no attempts are left."""
        if self._tries >= RECONNECT_TRIES:
            raise error
        await anyio.sleep(RECONNECT_PAUSE_SECONDS * 2**self._tries)
        self._tries += 1


async def retry_unreachable(request: Callable[[], Awaitable[T]]) -> T:
    """Call `request` until the server is reachable. Raises `ServerUnreachable` if no attempts are left."""
    backoff = ReconnectBackoff()
    while True:
        try:
            return await request()
        except ServerUnreachable as error:
            await backoff.wait(error)


async def replay_log(api: Api, run_id: str, *, to: int | None = None, answered: Collection[str] = ()) -> StreamState:
    """Replay a run's log up to `to`, or up to the first result of the calls `answered`."""
    async with aclosing(api.read_log(run_id)) as entries:
        return await replay(entries, to=to, answered=answered)


async def follow_log(
    api: Api, run_id: str, *, after: int, load: Callable[[], Awaitable[StreamState]], attach: bool = False
) -> AsyncGenerator[StreamUpdate]:
    """Follow a run's log after a state until the log ends, and reconnect when the connection breaks.

    `load` returns the state of the log up to `after`; it is called once the server has responded. The first update is
    that state, without events. `attach` is the same as for `Api.stream_updates`.
    """
    backoff = ReconnectBackoff()
    state: StreamState | None = None
    while state is None or not state.ended:
        try:
            async with aclosing(
                api.stream_updates(run_id, after=state.seq if state else after, attach=attach)
            ) as received:
                async for update in received:
                    if state is None:
                        state = await load()
                        yield state, state.seq, []
                    if isinstance(update, StreamOpened):
                        continue
                    backoff.reset()
                    if isinstance(update, LogTruncated):
                        state = await replay_log(api, run_id, to=update.last)
                        continue
                    before = state.seq
                    if isinstance(update, Entry) and update.seq > state.seq + 1:
                        state, missed = await _read_missed(api, run_id, state, update.seq)
                        yield state, before, missed
                        before = state.seq
                    state, events = entry_step(state, update)
                    yield state, before, events
            return
        except RunNotFound as missing:
            if state is not None and state.seq:
                raise
            await _wait_queued(api, run_id, missing)
        except ServerUnreachable as error:
            await backoff.wait(error)


def with_seq(event: E, seq: int | None) -> E:
    """Return the event with the `seq` up to which the stream is complete."""
    return msgspec.structs.replace(event, seq=seq or 0)


async def _wait_queued(api: Api, run_id: str, missing: RunNotFound) -> None:
    """Wait a little if the run exists but has no log yet. Raises `missing` if it does not exist or has ended."""
    if (await api.run(run_id)).get("status") not in _OPEN:
        raise missing
    await anyio.sleep(QUEUED_POLL_SECONDS)


async def _read_missed(api: Api, run_id: str, state: StreamState, before: int) -> tuple[StreamState, list[StreamEvent]]:
    """Read the entries that a server which could not keep up has skipped."""
    missed: list[StreamEvent] = []
    async with aclosing(api.read_log(run_id, after=state.seq)) as entries:
        async for entry in entries:
            if entry.seq >= before:
                break
            state, events = entry_step(state, entry)
            missed += events
    return state, missed
