"""A run as its client reads it: the log and what is being typed, folded into the events of a stream."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection
from typing import Final

import msgspec
from starlette.responses import Response

from shopfloor.errors import (
    DatabaseBusy,
    InvalidEvent,
    OutcomeUnknown,
    RunFailed,
    RunNotFound,
    ShopfloorError,
    StorageError,
)
from shopfloor.limits import JOURNAL_PAGE_EVENTS
from shopfloor.log import Delta, Entry, RunStarted, ToolResult, decode
from shopfloor.ports import LogReader
from shopfloor.record import Reset
from shopfloor.server.sse import HEADERS, Frames, closing, told_frame
from shopfloor.views import DONE, ErrorEvent, Finish, StreamEvent, StreamState, begin, encode_event, stream_step

_encode = msgspec.json.Encoder().encode
_DONE: Final = told_frame(DONE.encode())


async def told(logs: LogReader, run_id: str, state: StreamState, finished: Callable[[], None]) -> Frames:
    """What comes after `state`, up to the first `finish`. `finished` is called before that is sent."""
    yield told_frame(encode_event(begin(run_id)))
    async with closing(logs.follow(run_id, after=state.seq, deltas=True, patient=True)) as batches:
        async for batch in batches:
            frames: list[bytes] = []
            for one in batch:
                if isinstance(one, Reset):
                    # The log has lost its end: what is written there from now on is told from there on.
                    state = await replayed(logs, run_id, to=one.last)
                    continue
                state, events = _folded(state, one)
                if over := _up_to_finish(events):
                    finished()
                frames += _framed(events, None if isinstance(one, Delta) else one.seq)
                if over:
                    yield b"".join([*frames, _DONE])
                    return
            yield b"".join(frames)
    finished()
    lost = OutcomeUnknown(f"the log of run {run_id} ends without an outcome", hint="was it deleted?")
    yield b"".join([*_framed([event_of(lost), Finish(finish_reason="error")], None), _DONE])


async def replayed(
    logs: LogReader, run_id: str, *, to: int | None = None, answered: Collection[str] = ()
) -> StreamState:
    """The state of a stream that has told the log up to `to`, or up to the first result of the calls `answered`."""
    state = StreamState()
    async for entry in _entries(logs, run_id):
        if (to is not None and entry.seq > to) or (answered and _result_of(entry) in answered):
            break
        state, _ = _folded(state, entry)
    return state


async def worker_of(logs: LogReader, run_id: str) -> str:
    """The worker whose run this is."""
    first = await logs.page(run_id, limit=1)
    if not first:
        raise RunNotFound(f"there is no run {run_id} that waits for anything")
    payload = decode(first[0].raw).payload
    return payload.name if isinstance(payload, RunStarted) else ""


async def _entries(logs: LogReader, run_id: str) -> AsyncIterator[Entry]:
    after = 0
    while entries := await logs.page(run_id, after=after, limit=JOURNAL_PAGE_EVENTS):
        for entry in entries:
            yield entry
        after = entries[-1].seq


def _folded(state: StreamState, one: Entry | Delta) -> tuple[StreamState, list[StreamEvent]]:
    if isinstance(one, Delta):
        return stream_step(state, one)
    try:
        return stream_step(state, decode(one.raw))
    except InvalidEvent:
        # It cannot be read at all; the log has it, and what follows can be told without it.
        return msgspec.structs.replace(state, seq=max(state.seq, one.seq)), []


def _result_of(entry: Entry) -> str | None:
    if entry.type != ToolResult.event_type:
        return None
    try:
        payload = decode(entry.raw).payload
    except InvalidEvent:
        return None
    return payload.call_id if isinstance(payload, ToolResult) else None


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


def event_of(error: ShopfloorError) -> ErrorEvent:
    passing = error.retryable if isinstance(error, RunFailed) else isinstance(error, StorageError | DatabaseBusy)
    after = error.retry_after if isinstance(error, RunFailed) else None
    return ErrorEvent(
        message=error.message, error_type=error.code, retryable=passing, retry_after=after, hint=error.hint
    )


def refusal(error: ShopfloorError) -> Response:
    """The answer where nothing runs: the stream of one error."""
    return Response(told_frame(encode_event(event_of(error))) + _DONE, error.status, HEADERS)
