"""The stream of a run's log."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, suppress

import anyio
import anyio.to_thread
import msgspec
from starlette.requests import Request
from starlette.responses import Response

from shopfloor.errors import InvalidEvent, RunNotFound
from shopfloor.limits import SHARED_CHUNK_BYTES, SHARED_CHUNKS
from shopfloor.log import Delta, Entry, Reset, RunStarted, decode
from shopfloor.ports import LogReader, RowChanges, RunDeleted
from shopfloor.server.limits import QUEUED_CHECK_SECONDS, SHARED_EVENTS, THREAD_OFFLOAD_BYTES
from shopfloor.server.openapi import Operations
from shopfloor.server.parameters import PageStreamParams, RunStreamParams, parse_followed_runs
from shopfloor.server.response_models import Problem, build_worker_item
from shopfloor.server.responses import get_services, streams
from shopfloor.server.run_tree import TreeUpdate, follow_tree
from shopfloor.server.services import Services
from shopfloor.server.sse import EventStream, Frames, closing, frame, log_frame
from shopfloor.server.watchers import get_client_tracker
from shopfloor.views import SubRunCalls, truncate_event

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
    served = get_services(request)
    frames = await _frames_of(served, asked.run_id, asked.last_seq)
    return event_stream(request, served, frames)


@operations("POST", "/api/runs/{run_id}/attach", streams(_RUN_STREAM), RunStreamParams)
async def attach_to_run(request: Request, asked: RunStreamParams) -> Response:
    """The same stream for the client that executes the run, in place of a connection of `execute` that has ended.

    Closing it cancels the run, as closing `execute` does, unless the run waits for somebody.
    """
    served = get_services(request)
    frames = await _frames_of(served, asked.run_id, asked.last_seq)
    return event_stream(request, served, frames, context=get_client_tracker(request).track_client(asked.run_id))


async def _frames_of(served: Services, run_id: str, after: int) -> Frames:
    # Asked now, while the answer can still be another one.
    first = await served.logs.page(run_id, limit=1)
    if first is None:
        raise RunNotFound(f"there is no log of a run {run_id}")
    return _run_frames(served, run_id, after, wait_for_writer=can_resume_here(served, first))


def event_stream(
    request: Request, served: Services, *sources: Frames, context: AbstractAsyncContextManager[None] | None = None
) -> EventStream:
    shutdown_event: anyio.Event = request.app.state.shutdown_event
    return EventStream(
        *sources, heartbeat_seconds=served.heartbeat_seconds, shutdown_event=shutdown_event, context=context
    )


def can_resume_here(served: Services, first: list[Entry]) -> bool:
    """Whether a run whose writer is gone is gone on with here, so that there is something to wait for."""
    if served.run_service is None or not first:
        return False
    try:
        payload = decode(first[0].raw).payload
    except InvalidEvent:
        return False
    return isinstance(payload, RunStarted) and payload.definition is not None


async def _run_frames(served: Services, run_id: str, after: int, *, wait_for_writer: bool) -> Frames:
    # Deleted under our eyes: then there is no more of it.
    with suppress(RunNotFound):
        async with closing(
            follow_tree(served.store, served.logs, run_id, after=after, wait_for_writer=wait_for_writer)
        ) as batches:
            async for batch in batches:
                yield _framed(batch)
    yield _END


_frames: OrderedDict[int, tuple[list[TreeUpdate], bytes]] = OrderedDict()
_newest: tuple[TreeUpdate | None, bytes] = (None, b"")
"""What was framed last, for the others to whom it is published."""


def _framed(batch: list[TreeUpdate]) -> bytes:
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


def _framed_once(one: TreeUpdate) -> bytes:
    global _newest  # noqa: PLW0603 - a hundred clients get the same event, one after the other
    if _newest[0] is not one:
        _newest = (one, _run_part(one))
    return _newest[1]


def _run_part(one: TreeUpdate) -> bytes:
    if isinstance(one, Delta):
        return frame(b"delta", _encode(one))
    if isinstance(one, SubRunCalls):
        return frame(b"requests", _encode(one))
    return frame(b"reset", _encode({"last": one.last})) if isinstance(one, Reset) else log_frame(one.seq, one.raw)


_READY = frame(b"ready", b"{}")


_PAGE_STREAM = (
    "`event: ready` once nothing will be missed; `event: run` with a `WorkerItem` whenever a row has changed; "
    "`event: gone` with the `run_ids` of runs that were deleted; "
    "of the runs asked for `event: log` with `run_id` and `event`, told briefly: one whose texts were cut has `cut`, "
    "how many bytes it has as a whole; `event: delta`, without an `id`, with `run_id` and a piece of a message that is "
    "being made, as in the stream of a run; `event: reset` with `run_id` and `last`; `event: end` with `run_id` when "
    "there will be no more, and with `error` where there is no such run. The `id` says where all of them are."
)


@operations("GET", "/api/stream", streams(_PAGE_STREAM), PageStreamParams)
async def stream_page(request: Request, asked: PageStreamParams) -> Response:
    """All that a page shows live, over one connection."""
    served = get_services(request)
    places = parse_followed_runs(asked.last_event_id or asked.runs)
    followed = [_page_log_frames(served, run_id, places) for run_id in tuple(places)]
    return event_stream(request, served, _row_frames(served.changes, served.logs), *followed)


async def _row_frames(changes: RowChanges, logs: LogReader) -> Frames:
    async with changes.subscribe() as subscribed, closing(subscribed) as batches:
        yield _READY
        async for batch in batches:
            frames = [
                frame(b"run", _encode(await build_worker_item(run, logs)))
                for run in batch
                if not isinstance(run, RunDeleted)
            ]
            if gone := [run.run_id for run in batch if isinstance(run, RunDeleted)]:
                frames.append(frame(b"gone", _encode(_RunsGone(gone))))
            yield b"".join(frames)


class _RunsGone(msgspec.Struct, frozen=True):
    run_ids: list[str]


class _LogEvent(msgspec.Struct, frozen=True):
    run_id: str
    event: msgspec.Raw


class _LogDelta(Delta, frozen=True, kw_only=True, omit_defaults=True):
    run_id: str


class _LogReset(msgspec.Struct, frozen=True):
    run_id: str
    last: int


class _LogEnd(msgspec.Struct, frozen=True):
    run_id: str
    error: Problem | None = None


async def _page_log_frames(served: Services, run_id: str, places: dict[str, int]) -> Frames:
    """The events of one run among those of others. Each carries where all of them are, to go on from after a cut."""
    error: Problem | None = None
    try:
        first = await served.logs.page(run_id, limit=1)
        # One that is queued has no log yet: it is waited for, as long as there is such a run.
        queued = first is None
        wait_for_writer = queued or can_resume_here(served, first or [])
        async with closing(
            _followed(served, run_id, places[run_id], wait_for_writer=wait_for_writer, queued=queued)
        ) as batches:
            async for batch in batches:
                # Cut first and framed then, at once: what a frame says of other runs' places was sent before it.
                short = await _shortened(batch)
                yield b"".join([_page_part(run_id, one, places) for one in short])
    except RunNotFound as missing:
        # One run that is gone is no reason to tell nothing of the others.
        error = Problem(missing.code, missing.message, missing.hint)
    yield frame(b"end", _encode(_LogEnd(run_id, error)))


async def _followed(
    served: Services, run_id: str, after: int, *, wait_for_writer: bool, queued: bool
) -> AsyncGenerator[list[Entry | Reset | Delta]]:
    """What comes of a run. Raises `RunNotFound` where there is none, or where it goes before it has begun."""
    looked_at = 0.0
    async with closing(
        served.logs.follow(run_id, after=after, deltas=True, wait_for_writer=wait_for_writer)
    ) as batches:
        async for batch in batches:
            queued = queued and not batch
            if queued and anyio.current_time() >= looked_at + QUEUED_CHECK_SECONDS:
                looked_at = anyio.current_time()
                if await served.store.get_run(run_id) is None:
                    raise RunNotFound(f"there is no run {run_id}")
            yield batch


async def _shortened(batch: list[Entry | Reset | Delta]) -> list[Entry | Reset | Delta]:
    size = sum(len(one.raw) for one in batch if isinstance(one, Entry))
    return _short(batch) if size < THREAD_OFFLOAD_BYTES else await anyio.to_thread.run_sync(_short, batch)


def _short(batch: list[Entry | Reset | Delta]) -> list[Entry | Reset | Delta]:
    return [Entry(one.seq, one.type, truncate_event(one.raw)) if isinstance(one, Entry) else one for one in batch]


def _page_part(run_id: str, one: Entry | Reset | Delta, places: dict[str, int]) -> bytes:
    if isinstance(one, Delta):
        fields = {name: getattr(one, name) for name in Delta.__struct_fields__}
        return frame(b"delta", _encode(_LogDelta(run_id=run_id, **fields)))
    if isinstance(one, Reset):
        places[run_id] = one.last
        return frame(b"reset", _encode(_LogReset(run_id, one.last)), _place(places))
    places[run_id] = one.seq
    return frame(b"log", _encode(_LogEvent(run_id, msgspec.Raw(one.raw))), _place(places))


def _place(places: dict[str, int]) -> bytes:
    return ",".join(f"{run_id}:{seq}" for run_id, seq in places.items()).encode()
