"""A run's stream made here, from its log: for whoever comes late, and for what a cut connection did not bring."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Collection
from contextlib import aclosing
from typing import TypeVar

import anyio

from shopfloor.client.api import Api, LostEnd
from shopfloor.errors import RunNotFound, ServerUnreachable
from shopfloor.limits import QUEUED_PAUSE_SECONDS, RECONNECT_PAUSE_SECONDS, RECONNECT_TRIES
from shopfloor.log import Entry
from shopfloor.views import StreamEvent, StreamState, answered_by, entry_step

T = TypeVar("T")
Step = tuple[StreamState, list[StreamEvent]]
_OPEN = frozenset({"queued", "running", "waiting"})


class Patience:
    """How often in a row a server that does not answer is asked again."""

    def __init__(self) -> None:
        self._tries = 0

    def restored(self) -> None:
        self._tries = 0

    async def wait(self, error: ServerUnreachable) -> None:
        """Raises the error when it is over."""
        if self._tries >= RECONNECT_TRIES:
            raise error
        await anyio.sleep(RECONNECT_PAUSE_SECONDS * 2**self._tries)
        self._tries += 1


async def patiently(ask: Callable[[], Awaitable[T]]) -> T:
    patience = Patience()
    while True:
        try:
            return await ask()
        except ServerUnreachable as error:
            await patience.wait(error)


async def replayed(api: Api, run_id: str, *, to: int | None = None, answered: Collection[str] = ()) -> StreamState:
    """The state of a stream that has told the log up to `to`, or up to the first result of the calls `answered`."""
    state = StreamState()
    async with aclosing(api.whole_log(run_id)) as entries:
        async for entry in entries:
            if to is not None and entry.seq > to:
                break
            if answered and answered_by(entry) in answered:
                break
            state, _ = entry_step(state, entry)
    return state


async def followed(api: Api, run_id: str, state: StreamState) -> AsyncGenerator[Step]:
    """What comes after `state`, until the log ends; however often the connection is cut meanwhile."""
    patience = Patience()
    while not state.ended:
        try:
            async with aclosing(api.live(run_id, after=state.seq)) as live:
                async for one in live:
                    patience.restored()
                    if isinstance(one, LostEnd):
                        state = await replayed(api, run_id, to=one.last)
                        continue
                    if isinstance(one, Entry) and one.seq > state.seq + 1:
                        state, missed = await _missed(api, run_id, state, one.seq)
                        yield state, missed
                    state, told = entry_step(state, one)
                    yield state, told
            return
        except RunNotFound as missing:
            if state.seq:
                raise
            await _queued(api, run_id, missing)
        except ServerUnreachable as error:
            await patience.wait(error)


async def _queued(api: Api, run_id: str, missing: RunNotFound) -> None:
    """Waits a little where the run has no log because it has not begun."""
    if (await api.run(run_id)).get("status") not in _OPEN:
        raise missing
    await anyio.sleep(QUEUED_PAUSE_SECONDS)


async def _missed(api: Api, run_id: str, state: StreamState, before: int) -> Step:
    """What a server that could not keep up has left out."""
    told: list[StreamEvent] = []
    async with aclosing(api.whole_log(run_id, after=state.seq)) as entries:
        async for entry in entries:
            if entry.seq >= before:
                break
            state, more = entry_step(state, entry)
            told += more
    return state, told
