"""The two streams: a run's log, and everything that one page wants to know."""

from __future__ import annotations

from collections import OrderedDict
from contextlib import AbstractContextManager, suppress

import anyio
import msgspec
from fastapi import Request
from starlette.responses import Response

from shopfloor.errors import RunNotFound
from shopfloor.limits import SHARED_CHUNKS
from shopfloor.log import Delta, Entry, RunStarted, decode
from shopfloor.ports import Changes, LogReader
from shopfloor.record import Reset
from shopfloor.server.answers import Served, streams
from shopfloor.server.limits import SHARED_EVENTS
from shopfloor.server.parameters import (
    AfterSeq,
    FollowedRuns,
    LastEventId,
    RunId,
    api_router,
    event_place,
    followed_runs,
)
from shopfloor.server.services import Services
from shopfloor.server.shapes import Problem, item_of
from shopfloor.server.sse import EventStream, Frames, closing, frame, log_frame
from shopfloor.server.watchers import watchers_of

_END = frame(b"end", b"{}")
_READY = frame(b"ready", b"{}")
_encode = msgspec.json.Encoder().encode

_RUN_STREAM = (
    "Each event of the log as `data`, its `seq` as `id`; `event: reset` where the log has lost its end; "
    "`event: delta`, without an `id`, with a piece of a message that is being made, after the event `after` and before "
    "the message `message_id`; pieces may be missing, and `offset` says where one belongs; "
    "`event: end` when there will be no more."
)
_PAGE_STREAM = (
    "`event: ready` once nothing will be missed; `event: run` with a `WorkerItem` whenever a row has changed; "
    "of the runs asked for `event: log` with `run_id` and `event`, and `event: reset` and `event: end` with `run_id`."
)

router = api_router("/api")


@router.get(
    "/runs/{run_id}/stream",
    response_class=Response,
    responses=streams(_RUN_STREAM),
)
async def stream_run(
    request: Request, run_id: RunId, served: Served, after: AfterSeq = 0, last_event_id: LastEventId = None
) -> EventStream:
    """A run's log as server-sent events: what is there, and then what comes."""
    place = event_place(last_event_id, after)
    # Asked now, while the answer can still be another one.
    first = await served.logs.page(run_id, limit=1)
    if first is None:
        raise RunNotFound(f"there is no log of a run {run_id}")
    within = watchers_of(request).watching(run_id)
    patient = served.works is not None and _can_go_on(first)
    return _stream(request, served, _run_frames(served.logs, run_id, place, patient=patient), within=within)


@router.get(
    "/stream",
    response_class=Response,
    responses=streams(_PAGE_STREAM),
)
async def stream_page(
    request: Request, served: Served, runs: FollowedRuns = "", last_event_id: LastEventId = None
) -> EventStream:
    """All that a page shows live, over one connection."""
    places = followed_runs(last_event_id or runs)
    followed = [_page_log_frames(served.logs, run_id, places) for run_id in tuple(places)]
    return _stream(request, served, _row_frames(served.changes), *followed)


def _stream(
    request: Request, served: Services, *sources: Frames, within: AbstractContextManager[None] | None = None
) -> EventStream:
    stopping: anyio.Event = request.app.state.stopping
    return EventStream(*sources, heartbeat=served.heartbeat_seconds, stopping=stopping, within=within)


def _can_go_on(first: list[Entry]) -> bool:
    """Whether a run whose writer is gone is gone on with here, so that there is something to wait for."""
    payload = decode(first[0].raw).payload if first else None
    return isinstance(payload, RunStarted) and payload.definition is not None


async def _run_frames(logs: LogReader, run_id: str, after: int, *, patient: bool) -> Frames:
    # Deleted under our eyes: then there is no more of it.
    with suppress(RunNotFound):
        async with closing(logs.follow(run_id, after=after, deltas=True, patient=patient)) as batches:
            async for batch in batches:
                yield _framed(batch)
    yield _END


_frames: OrderedDict[int, tuple[list[Entry | Reset | Delta], bytes]] = OrderedDict()


def _framed(batch: list[Entry | Reset | Delta]) -> bytes:
    """The batch as frames. A long one is often read by many at once, as the same list: then it is framed once."""
    if len(batch) < SHARED_EVENTS:
        return b"".join([_run_part(one) for one in batch])
    # The list is kept with its frames, so that no other list can get its identity meanwhile.
    known = _frames.get(id(batch))
    if known is not None and known[0] is batch:
        return known[1]
    frames = b"".join([_run_part(one) for one in batch])
    _frames[id(batch)] = (batch, frames)
    if len(_frames) > SHARED_CHUNKS:
        _frames.popitem(last=False)
    return frames


def _run_part(one: Entry | Reset | Delta) -> bytes:
    if isinstance(one, Delta):
        return frame(b"delta", _encode(one))
    return frame(b"reset", _encode({"last": one.last})) if isinstance(one, Reset) else log_frame(one.seq, one.raw)


async def _row_frames(changes: Changes) -> Frames:
    async with changes.subscribe() as subscribed, closing(subscribed) as batches:
        yield _READY
        async for batch in batches:
            yield b"".join([frame(b"run", _encode(item_of(run))) for run in batch])


class _LogEvent(msgspec.Struct, frozen=True):
    run_id: str
    event: msgspec.Raw


class _LogReset(msgspec.Struct, frozen=True):
    run_id: str
    last: int


class _LogEnd(msgspec.Struct, frozen=True):
    run_id: str
    error: Problem | None = None


async def _page_log_frames(logs: LogReader, run_id: str, places: dict[str, int]) -> Frames:
    """The events of one run among those of others. Each carries where all of them are, to go on from after a cut."""
    error: Problem | None = None
    try:
        async with closing(logs.follow(run_id, after=places[run_id])) as batches:
            async for batch in batches:
                yield b"".join([_page_part(run_id, one, places) for one in batch])
    except RunNotFound as missing:
        # One run that is gone is no reason to tell nothing of the others.
        error = Problem(missing.code, missing.message, missing.hint)
    yield frame(b"end", _encode(_LogEnd(run_id, error)))


def _page_part(run_id: str, one: Entry | Reset | Delta, places: dict[str, int]) -> bytes:
    if isinstance(one, Delta):
        return b""
    if isinstance(one, Reset):
        places[run_id] = one.last
        return frame(b"reset", _encode(_LogReset(run_id, one.last)), _place(places))
    places[run_id] = one.seq
    return frame(b"log", _encode(_LogEvent(run_id, msgspec.Raw(one.raw))), _place(places))


def _place(places: dict[str, int]) -> bytes:
    return ",".join(f"{run_id}:{seq}" for run_id, seq in places.items()).encode()
