"""The stream of a run's log."""

from __future__ import annotations

from collections import OrderedDict
from contextlib import AbstractAsyncContextManager, suppress

import anyio
import msgspec
from starlette.requests import Request
from starlette.responses import Response

from shopfloor.errors import InvalidEvent, RunNotFound
from shopfloor.limits import SHARED_CHUNK_BYTES, SHARED_CHUNKS
from shopfloor.log import Delta, Entry, Reset, RunStarted, decode
from shopfloor.server.answers import services_of, streams
from shopfloor.server.limits import SHARED_EVENTS
from shopfloor.server.operations import Operations
from shopfloor.server.parameters import RunStreamParams
from shopfloor.server.services import Services
from shopfloor.server.sse import EventStream, Frames, closing, frame, log_frame
from shopfloor.server.tree_requests import Followed, follow_tree
from shopfloor.server.watchers import watchers_of
from shopfloor.views import CallsBelow

_END = frame(b"end", b"{}")
_encode = msgspec.json.Encoder().encode

_RUN_STREAM = (
    "Each event of the log as `data`, its `seq` as `id`; `event: reset` where the log has lost its end; "
    "`event: delta`, without an `id`, with a piece of a message that is being made, after the event `after` and before "
    "the message `message_id`; pieces may be missing, and `offset` says where one belongs; "
    "`event: requests` with the `toolCalls` that runs below this one wait for, once everything in its tree waits, or "
    "with `waits` where none does and nothing of it works any more; "
    "`event: end` when there will be no more."
)

operations = Operations()


@operations("GET", "/api/runs/{run_id}/stream", streams(_RUN_STREAM), RunStreamParams)
async def stream_run(request: Request, asked: RunStreamParams) -> Response:
    """A run's log as server-sent events: what is there, and then what comes."""
    served = services_of(request)
    frames = await _frames_of(served, asked.run_id, asked.last_seq)
    return event_stream(request, served, frames)


@operations("POST", "/api/runs/{run_id}/attach", streams(_RUN_STREAM), RunStreamParams)
async def attach_to_run(request: Request, asked: RunStreamParams) -> Response:
    """The same stream for the client that executes the run, in place of a connection of `execute` that has ended.

    Closing it cancels the run, as closing `execute` does, unless the run waits for somebody.
    """
    served = services_of(request)
    frames = await _frames_of(served, asked.run_id, asked.last_seq)
    return event_stream(request, served, frames, within=watchers_of(request).watching(asked.run_id))


async def _frames_of(served: Services, run_id: str, after: int) -> Frames:
    # Asked now, while the answer can still be another one.
    first = await served.logs.page(run_id, limit=1)
    if first is None:
        raise RunNotFound(f"there is no log of a run {run_id}")
    return _run_frames(served, run_id, after, patient=can_go_on(served, first))


def event_stream(
    request: Request, served: Services, *sources: Frames, within: AbstractAsyncContextManager[None] | None = None
) -> EventStream:
    stopping: anyio.Event = request.app.state.stopping
    return EventStream(*sources, heartbeat=served.heartbeat_seconds, stopping=stopping, within=within)


def can_go_on(served: Services, first: list[Entry]) -> bool:
    """Whether a run whose writer is gone is gone on with here, so that there is something to wait for."""
    if served.works is None or not first:
        return False
    try:
        payload = decode(first[0].raw).payload
    except InvalidEvent:
        return False
    return isinstance(payload, RunStarted) and payload.definition is not None


async def _run_frames(served: Services, run_id: str, after: int, *, patient: bool) -> Frames:
    # Deleted under our eyes: then there is no more of it.
    with suppress(RunNotFound):
        async with closing(follow_tree(served.store, served.logs, run_id, after=after, patient=patient)) as batches:
            async for batch in batches:
                yield _framed(batch)
    yield _END


_frames: OrderedDict[int, tuple[list[Followed], bytes]] = OrderedDict()
_newest: tuple[Followed | None, bytes] = (None, b"")
"""What was framed last, for the others to whom it is published."""


def _framed(batch: list[Followed]) -> bytes:
    """The batch as frames. A long one is often read by many at once, as the same list: then it is framed once."""
    if len(batch) == 1:
        return _framed_once(batch[0])
    if len(batch) < SHARED_EVENTS:
        return b"".join([_run_part(one) for one in batch])
    # The list is kept with its frames, so that no other list can get its identity meanwhile.
    known = _frames.get(id(batch))
    if known is not None and known[0] is batch:
        return known[1]
    frames = b"".join([_run_part(one) for one in batch])
    if len(frames) > 2 * SHARED_CHUNK_BYTES:
        return frames
    _frames[id(batch)] = (batch, frames)
    if len(_frames) > SHARED_CHUNKS:
        _frames.popitem(last=False)
    return frames


def _framed_once(one: Followed) -> bytes:
    global _newest  # noqa: PLW0603 - a hundred clients get the same event, one after the other
    if _newest[0] is not one:
        _newest = (one, _run_part(one))
    return _newest[1]


def _run_part(one: Followed) -> bytes:
    if isinstance(one, Delta):
        return frame(b"delta", _encode(one))
    if isinstance(one, CallsBelow):
        return frame(b"requests", _encode(one))
    return frame(b"reset", _encode({"last": one.last})) if isinstance(one, Reset) else log_frame(one.seq, one.raw)
