"""A run's stream made here, from its log: for whoever comes late, and for what a cut connection did not bring."""

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
"""The state, the `seq` before it, and what is told; only with the last event is all told up to the state's `seq`."""
_OPEN = frozenset({"queued", "running", "waiting"})


class ReconnectBackoff:
    """How often in a row a server that does not answer is asked again."""

    def __init__(self) -> None:
        self._tries = 0

    def reset(self) -> None:
        self._tries = 0

    async def wait(self, error: ServerUnreachable) -> None:
        """Raises the error when it is over."""
        if self._tries >= RECONNECT_TRIES:
            raise error
        await anyio.sleep(RECONNECT_PAUSE_SECONDS * 2**self._tries)
        self._tries += 1


async def retry_unreachable(ask: Callable[[], Awaitable[T]]) -> T:
    patience = ReconnectBackoff()
    while True:
        try:
            return await ask()
        except ServerUnreachable as error:
            await patience.wait(error)


async def replay_log(api: Api, run_id: str, *, to: int | None = None, answered: Collection[str] = ()) -> StreamState:
    """Replay a run's log up to `to`, or up to the first result of the calls `answered`."""
    async with aclosing(api.read_log(run_id)) as entries:
        return await replay(entries, to=to, answered=answered)


async def follow_log(
    api: Api, run_id: str, *, after: int, load: Callable[[], Awaitable[StreamState]], attach: bool = False
) -> AsyncGenerator[StreamUpdate]:
    """What comes after a state, until the log ends; however often the connection is cut meanwhile.

    `load` gives the state, of the log up to `after`; it is called once the server has answered. The first step is that
    state, with no events. `attach` is as for `Api.stream_updates`.
    """
    patience = ReconnectBackoff()
    state: StreamState | None = None
    while state is None or not state.ended:
        try:
            async with aclosing(
                api.stream_updates(run_id, after=state.seq if state else after, attach=attach)
            ) as stream_updates:
                async for one in stream_updates:
                    if state is None:
                        state = await load()
                        yield state, state.seq, []
                    if isinstance(one, StreamOpened):
                        continue
                    patience.reset()
                    if isinstance(one, LogTruncated):
                        state = await replay_log(api, run_id, to=one.last)
                        continue
                    before = state.seq
                    if isinstance(one, Entry) and one.seq > state.seq + 1:
                        state, missed = await _missed(api, run_id, state, one.seq)
                        yield state, before, missed
                        before = state.seq
                    state, told = entry_step(state, one)
                    yield state, before, told
            return
        except RunNotFound as missing:
            if state is not None and state.seq:
                raise
            await _queued(api, run_id, missing)
        except ServerUnreachable as error:
            await patience.wait(error)


def with_seq(event: E, seq: int | None) -> E:
    """The event with the place in the log up to which everything is told."""
    return msgspec.structs.replace(event, seq=seq or 0)


async def _queued(api: Api, run_id: str, missing: RunNotFound) -> None:
    """Waits a little where the run has no log because it has not begun."""
    if (await api.run(run_id)).get("status") not in _OPEN:
        raise missing
    await anyio.sleep(QUEUED_POLL_SECONDS)


async def _missed(api: Api, run_id: str, state: StreamState, before: int) -> tuple[StreamState, list[StreamEvent]]:
    """What a server that could not keep up has left out."""
    told: list[StreamEvent] = []
    async with aclosing(api.read_log(run_id, after=state.seq)) as entries:
        async for entry in entries:
            if entry.seq >= before:
                break
            state, more = entry_step(state, entry)
            told += more
    return state, told
