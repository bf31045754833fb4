"""A run's stream made here, from its log: for whoever comes late, and for what a cut connection did not bring."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Collection
from contextlib import aclosing
from typing import TypeVar

import anyio
import msgspec

from shopfloor.client.api import Api, LostEnd, Opened
from shopfloor.errors import RunNotFound, ServerUnreachable
from shopfloor.limits import QUEUED_PAUSE_SECONDS, RECONNECT_PAUSE_SECONDS, RECONNECT_TRIES
from shopfloor.log import Entry
from shopfloor.views import StreamEvent, StreamState, UnknownEvent, entry_step, replay

T = TypeVar("T")
E = TypeVar("E", bound=StreamEvent | UnknownEvent)
Step = tuple[StreamState, int, list[StreamEvent]]
"""The state, the `seq` before it, and what is told; only with the last event is all told up to the state's `seq`."""
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
    """Replay a run's log up to `to`, or up to the first result of the calls `answered`."""
    async with aclosing(api.whole_log(run_id)) as entries:
        return await replay(entries, to=to, answered=answered)


async def followed(
    api: Api, run_id: str, *, after: int, load: Callable[[], Awaitable[StreamState]], attach: bool = False
) -> AsyncGenerator[Step]:
    """What comes after a state, until the log ends; however often the connection is cut meanwhile.

    `load` gives the state, of the log up to `after`; it is called once the server has answered. The first step is that
    state, with no events. `attach` is as for `Api.live`.
    """
    patience = Patience()
    state: StreamState | None = None
    while state is None or not state.ended:
        try:
            async with aclosing(api.live(run_id, after=state.seq if state else after, attach=attach)) as live:
                async for one in live:
                    if state is None:
                        state = await load()
                        yield state, state.seq, []
                    if isinstance(one, Opened):
                        continue
                    patience.restored()
                    if isinstance(one, LostEnd):
                        state = await replayed(api, run_id, to=one.last)
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


def stamped(event: E, seq: int | None) -> E:
    """The event with the place in the log up to which everything is told."""
    return msgspec.structs.replace(event, seq=seq or 0)


async def _queued(api: Api, run_id: str, missing: RunNotFound) -> None:
    """Waits a little where the run has no log because it has not begun."""
    if (await api.run(run_id)).get("status") not in _OPEN:
        raise missing
    await anyio.sleep(QUEUED_PAUSE_SECONDS)


async def _missed(api: Api, run_id: str, state: StreamState, before: int) -> tuple[StreamState, list[StreamEvent]]:
    """What a server that could not keep up has left out."""
    told: list[StreamEvent] = []
    async with aclosing(api.whole_log(run_id, after=state.seq)) as entries:
        async for entry in entries:
            if entry.seq >= before:
                break
            state, more = entry_step(state, entry)
            told += more
    return state, told
