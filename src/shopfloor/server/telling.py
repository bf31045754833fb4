"""A run as its client reads it: the log and what is being typed, folded into the events of a stream."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import Final

from shopfloor.errors import OutcomeUnknown, RunNotFound
from shopfloor.log import Entry, Reset, RunStarted, decode
from shopfloor.ports import LogReader, Store, child_towards
from shopfloor.server.sse import Frames, closing, told_frame
from shopfloor.server.tree_requests import follow_tree
from shopfloor.views import (
    DONE,
    Finish,
    StreamEvent,
    StreamState,
    begin,
    encode_event,
    entry_step,
    event_of,
    finish,
    replay,
    split_call_id,
)

_DONE: Final = told_frame(DONE.encode())


async def told(
    store: Store, logs: LogReader, run_id: str, state: StreamState, finished: Callable[[], Awaitable[None]]
) -> Frames:
    """What comes after `state`, up to the first `finish`. `finished` is called before that is sent."""
    yield told_frame(encode_event(begin(run_id)), state.seq or None)
    async with closing(follow_tree(store, logs, run_id, after=state.seq, patient=True)) as batches:
        async for batch in batches:
            frames: list[bytes] = []
            for one in batch:
                if isinstance(one, Reset):
                    # The log has lost its end: what is written there from now on is told from there on.
                    state = await replayed(logs, run_id, to=one.last)
                    continue
                state, events = entry_step(state, one)
                if over := _up_to_finish(events):
                    await finished()
                frames += _framed(events, one.seq if isinstance(one, Entry) else None)
                if over:
                    yield b"".join([*frames, _DONE])
                    return
            yield b"".join(frames)
    await finished()
    lost = OutcomeUnknown(f"the log of run {run_id} ends without an outcome", hint="was it deleted?")
    yield b"".join([*_framed([event_of(lost), finish("error")], None), _DONE])


async def replayed(
    logs: LogReader, run_id: str, *, to: int | None = None, answered: Collection[str] = ()
) -> StreamState:
    """Replay a run's log up to `to`, or up to the first result of the calls `answered`.

    The result of a call in a sub-run is not in this log; the end of the sub-run that leads there is.
    """
    below = {run for one in answered if (run := split_call_id(one)[0]) is not None}
    children = {child for run in below if (child := await child_towards(logs, run_id, run)) is not None}
    async with closing(logs.batches(run_id)) as batches:
        entries = (entry async for batch in batches for entry in batch)
        return await replay(entries, to=to, answered=answered, runs=children)


async def worker_of(logs: LogReader, run_id: str) -> str:
    """The worker whose run this is."""
    first = await logs.page(run_id, limit=1)
    if not first:
        raise RunNotFound(f"there is no run {run_id} that waits for anything")
    payload = decode(first[0].raw).payload
    return payload.name if isinstance(payload, RunStarted) else ""


def _up_to_finish(events: list[StreamEvent]) -> bool:
    """Whether there is a `finish`; what would come after it is taken away."""
    for place, event in enumerate(events):
        if isinstance(event, Finish):
            del events[place + 1 :]
            return True
    return False


def _framed(events: list[StreamEvent], seq: int | None) -> list[bytes]:
    """The last has the id: only with it is all told that the log has up to there."""
    last = len(events) - 1
    return [told_frame(encode_event(event), seq if place == last else None) for place, event in enumerate(events)]
