"""Streams of logs as server-sent events: the log of one run, and everything that a page shows over one connection."""

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
from shopfloor.ports import RunDeleted
from shopfloor.server.client_tracker import get_client_tracker
from shopfloor.server.limits import QUEUED_CHECK_SECONDS, SHARED_EVENTS, THREAD_OFFLOAD_BYTES
from shopfloor.server.openapi import Operations
from shopfloor.server.parameters import PageStreamParams, RunStreamParams, parse_followed_runs
from shopfloor.server.queue import build_worker_items
from shopfloor.server.response_models import Problem
from shopfloor.server.responses import describe_stream, get_services
from shopfloor.server.run_tree import TreeUpdate, follow_tree
from shopfloor.server.services import Services
from shopfloor.server.sse import HEARTBEAT, EventStream, Frames, closing, frame, log_frame
from shopfloor.views import SubRunCalls, truncate_event

_END = frame(b"end", b"{}")
_encode = msgspec.json.Encoder().encode

_RUN_STREAM = (
    "Each event of the log as `data`, with its `seq` as `id`. `event: reset` when the log was truncated after a crash: "
    "the events after `last` are no longer valid. `event: delta`, without an `id`: new text of the message "
    "`message_id` that is being generated, after the event `after`; deltas may be missing, and `offset` is the number "
    "of characters of the block before this text. `event: requests` when the run and all its sub-runs wait: "
    "`toolCalls` are the client tools that sub-runs wait for; without any, `waits` is true. `event: end` when the "
    "stream is complete."
)

operations = Operations()


@operations("GET", "/api/runs/{run_id}/stream", describe_stream(_RUN_STREAM), RunStreamParams)
async def stream_run(request: Request, params: RunStreamParams) -> Response:
    """Stream a run's log as server-sent events: first the events it has, then new ones as they are written."""
    services = get_services(request)
    frames = await _open_run_stream(services, params.run_id, params.last_seq)
    return event_stream(request, services, frames)


@operations("POST", "/api/runs/{run_id}/attach", describe_stream(_RUN_STREAM), RunStreamParams)
async def attach_to_run(request: Request, params: RunStreamParams) -> Response:
    """Stream a run's log to the client that executes the run, after its connection of `execute` was lost.

    Closing this connection cancels the run, as closing `execute` does, unless the run waits for an answer.
    """
    services = get_services(request)
    frames = await _open_run_stream(services, params.run_id, params.last_seq)
    return event_stream(request, services, frames, context=get_client_tracker(request).track_client(params.run_id))


async def _open_run_stream(services: Services, run_id: str, after: int) -> Frames:
    # Check before the stream starts, while the response can still be an error.
    first = await services.logs.page(run_id, limit=1)
    if first is None:
        raise RunNotFound(f"run {run_id} has no log")
    will_start = not first and await _is_queued(services, run_id)
    return _run_frames(services, run_id, after, wait_for_writer=will_start or can_resume_here(services, first))


async def _is_queued(services: Services, run_id: str) -> bool:
    """Return whether a run has not started and this server will start it."""
    run = await services.store.get_run(run_id) if services.run_service is not None else None
    return run is not None and run.row.status == "queued"


def event_stream(
    request: Request,
    services: Services,
    *sources: Frames,
    context: AbstractAsyncContextManager[object] | None = None,
    heartbeat: bytes = HEARTBEAT,
) -> EventStream:
    """Return a streaming response with the settings of this server."""
    shutdown_event: anyio.Event = request.app.state.shutdown_event
    return EventStream(
        *sources,
        heartbeat_seconds=services.heartbeat_seconds,
        shutdown_event=shutdown_event,
        context=context,
        heartbeat=heartbeat,
    )


def can_resume_here(services: Services, first: list[Entry]) -> bool:
    """Return whether this server resumes the run after its writer has died, so that a stream should wait for it.

    `first` has the first entry of the run's log, if there is one.
    """
    if services.run_service is None or not first:
        return False
    try:
        payload = decode(first[0].raw).payload
    except InvalidEvent:
        return False
    return isinstance(payload, RunStarted) and payload.definition is not None


async def _run_frames(services: Services, run_id: str, after: int, *, wait_for_writer: bool) -> Frames:
    # If the run is deleted meanwhile, the stream ends.
    with suppress(RunNotFound):
        async with closing(
            follow_tree(services.store, services.logs, run_id, after=after, wait_for_writer=wait_for_writer)
        ) as batches:
            async for batch in batches:
                yield _encode_batch(batch)
    yield _END


_shared_frames: OrderedDict[int, tuple[list[TreeUpdate], bytes]] = OrderedDict()
_newest_frame: tuple[TreeUpdate | None, bytes] = (None, b"")
"""The update that was encoded last and its frame, for the other streams that get the same update."""


def _encode_batch(batch: list[TreeUpdate]) -> bytes:
    """Encode a batch as frames.

    Many streams often get a long batch at the same time, as the same list. Such a batch is encoded once.
    """
    if len(batch) == 1:
        return _encode_shared(batch[0])
    if len(batch) < SHARED_EVENTS:
        return b"".join([_encode_update(update) for update in batch])
    # The cache keeps the list alive, so that no other list can get its id.
    known = _shared_frames.get(id(batch))
    if known is not None and known[0] is batch:
        return known[1]
    frames = b"".join([_encode_update(update) for update in batch])
    if len(frames) > 2 * SHARED_CHUNK_BYTES:
        return frames
    _shared_frames[id(batch)] = (batch, frames)
    if len(_shared_frames) > SHARED_CHUNKS:
        _shared_frames.popitem(last=False)
    return frames


def _encode_shared(update: TreeUpdate) -> bytes:
    global _newest_frame  # noqa: PLW0603 - a hundred clients get the same event, one after the other
    if _newest_frame[0] is not update:
        _newest_frame = (update, _encode_update(update))
    return _newest_frame[1]


def _encode_update(update: TreeUpdate) -> bytes:
    if isinstance(update, Delta):
        return frame(b"delta", _encode(update))
    if isinstance(update, SubRunCalls):
        # The name of the event is part of the API.
        return frame(b"requests", _encode(update))
    if isinstance(update, Reset):
        return frame(b"reset", _encode({"last": update.last}))
    return log_frame(update.seq, update.raw)


_READY = frame(b"ready", b"{}")
_PAGE_HEARTBEAT = frame(b"heartbeat", b"{}")
"""An event, because scripts of a page do not see comments, and the page has to tell silence from a lost connection."""


_PAGE_STREAM = (
    "`event: ready` once every later change will be sent. `event: heartbeat` after 15 s of silence. `event: run` with "
    "a `WorkerItem` whenever a run has changed. "
    "`event: gone` with the `run_ids` of deleted runs. For the runs in `runs`: `event: log` with `run_id` and `event`, "
    "with long texts truncated (`cut` is then the size of the complete event in bytes); `event: delta`, without an "
    "`id`, with `run_id` and new text of a message that is being generated, as in the stream of a run; `event: reset` "
    "with `run_id` and `last`; `event: end` with `run_id` when the run's log is complete, and with `error` if there is "
    "no such run. The `id` has the position in all of these logs."
)


@operations("GET", "/api/stream", describe_stream(_PAGE_STREAM), PageStreamParams)
async def stream_page(request: Request, params: PageStreamParams) -> Response:
    """Stream all live updates that a page shows, over one connection: changed runs, and the logs of some runs."""
    services = get_services(request)
    cursors = parse_followed_runs(params.last_event_id or params.runs)
    logs = [_page_log_frames(services, run_id, cursors) for run_id in tuple(cursors)]
    return event_stream(request, services, _row_frames(services), *logs, heartbeat=_PAGE_HEARTBEAT)


async def _row_frames(services: Services) -> Frames:
    async with services.changes.subscribe() as subscribed, closing(subscribed) as batches:
        yield _READY
        async for batch in batches:
            runs = [run for run in batch if not isinstance(run, RunDeleted)]
            frames = [frame(b"run", _encode(item)) for item in await build_worker_items(services, runs)]
            if deleted := [run.run_id for run in batch if isinstance(run, RunDeleted)]:
                # The name of the event is part of the API.
                frames.append(frame(b"gone", _encode(_RunsDeleted(deleted))))
            yield b"".join(frames)


class _RunsDeleted(msgspec.Struct, frozen=True):
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


async def _page_log_frames(services: Services, run_id: str, cursors: dict[str, int]) -> Frames:
    """Stream the events of one of several runs.

    `cursors` has the position in each run's log and is shared by all of them: the id of each frame contains all
    positions, so that a client can reconnect with the last id it received.
    """
    error: Problem | None = None
    try:
        first = await services.logs.page(run_id, limit=1)
        # A queued run has no log yet: wait for it, as long as the run exists.
        is_queued = first is None
        wait_for_writer = is_queued or can_resume_here(services, first or [])
        async with closing(
            _follow(services, run_id, cursors[run_id], wait_for_writer=wait_for_writer, is_queued=is_queued)
        ) as batches:
            async for batch in batches:
                # Shorten first, then encode without waiting: the positions of other runs in the id of a frame must
                # be positions that were sent before this frame.
                short = await _shorten(batch)
                yield b"".join([_encode_page_update(run_id, update, cursors) for update in short])
    except RunNotFound as missing:
        # A deleted run must not end the streams of the others.
        error = Problem(missing.code, missing.message, missing.hint)
    yield frame(b"end", _encode(_LogEnd(run_id, error)))


async def _follow(
    services: Services, run_id: str, after: int, *, wait_for_writer: bool, is_queued: bool
) -> AsyncGenerator[list[Entry | Reset | Delta]]:
    """Follow a run's log. Raises `RunNotFound` if there is no such run, or if it is deleted before it starts."""
    checked_at = 0.0
    async with closing(
        services.logs.follow(run_id, after=after, deltas=True, wait_for_writer=wait_for_writer)
    ) as batches:
        async for batch in batches:
            is_queued = is_queued and not batch
            if is_queued and anyio.current_time() >= checked_at + QUEUED_CHECK_SECONDS:
                checked_at = anyio.current_time()
                if await services.store.get_run(run_id) is None:
                    raise RunNotFound(f"there is no run {run_id}")
            yield batch


async def _shorten(batch: list[Entry | Reset | Delta]) -> list[Entry | Reset | Delta]:
    size = sum(len(item.raw) for item in batch if isinstance(item, Entry))
    return _shorten_now(batch) if size < THREAD_OFFLOAD_BYTES else await anyio.to_thread.run_sync(_shorten_now, batch)


def _shorten_now(batch: list[Entry | Reset | Delta]) -> list[Entry | Reset | Delta]:
    return [Entry(item.seq, item.type, truncate_event(item.raw)) if isinstance(item, Entry) else item for item in batch]


def _encode_page_update(run_id: str, update: Entry | Reset | Delta, cursors: dict[str, int]) -> bytes:
    if isinstance(update, Delta):
        fields = {name: getattr(update, name) for name in Delta.__struct_fields__}
        return frame(b"delta", _encode(_LogDelta(run_id=run_id, **fields)))
    if isinstance(update, Reset):
        cursors[run_id] = update.last
        return frame(b"reset", _encode(_LogReset(run_id, update.last)), _event_id(cursors))
    cursors[run_id] = update.seq
    return frame(b"log", _encode(_LogEvent(run_id, msgspec.Raw(update.raw))), _event_id(cursors))


def _event_id(cursors: dict[str, int]) -> bytes:
    return ",".join(f"{run_id}:{seq}" for run_id, seq in cursors.items()).encode()
