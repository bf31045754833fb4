"""The stream of a page: everything that it shows live, over one connection."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import anyio
import anyio.to_thread
import msgspec
from starlette.requests import Request
from starlette.responses import Response

from shopfloor.errors import RunNotFound
from shopfloor.log import Delta, Entry, Reset
from shopfloor.ports import Changes, Gone, LogReader
from shopfloor.server.answers import services_of, streams
from shopfloor.server.limits import LOOP_BYTES, QUEUED_CHECK_SECONDS
from shopfloor.server.operations import Operations
from shopfloor.server.parameters import PageStreamParams, followed_runs
from shopfloor.server.services import Services
from shopfloor.server.shapes import Problem, item_of
from shopfloor.server.sse import Frames, closing, frame
from shopfloor.server.streams import can_go_on, event_stream
from shopfloor.views import brief

_READY = frame(b"ready", b"{}")
_encode = msgspec.json.Encoder().encode

_PAGE_STREAM = (
    "`event: ready` once nothing will be missed; `event: run` with a `WorkerItem` whenever a row has changed; "
    "`event: gone` with the `run_ids` of runs that were deleted; "
    "of the runs asked for `event: log` with `run_id` and `event`, told briefly: one whose texts were cut has `cut`, "
    "how many bytes it has as a whole; `event: delta`, without an `id`, with `run_id` and a piece of a message that is "
    "being made, as in the stream of a run; `event: reset` with `run_id` and `last`; `event: end` with `run_id` when "
    "there will be no more, and with `error` where there is no such run. The `id` says where all of them are."
)

operations = Operations()


@operations("GET", "/api/stream", streams(_PAGE_STREAM), PageStreamParams)
async def stream_page(request: Request, asked: PageStreamParams) -> Response:
    """All that a page shows live, over one connection."""
    served = services_of(request)
    places = followed_runs(asked.last_event_id or asked.runs)
    followed = [_page_log_frames(served, run_id, places) for run_id in tuple(places)]
    return event_stream(request, served, _row_frames(served.changes, served.logs), *followed)


async def _row_frames(changes: Changes, logs: LogReader) -> Frames:
    async with changes.subscribe() as subscribed, closing(subscribed) as batches:
        yield _READY
        async for batch in batches:
            frames = [frame(b"run", _encode(await item_of(run, logs))) for run in batch if not isinstance(run, Gone)]
            if gone := [run.run_id for run in batch if isinstance(run, Gone)]:
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
        patient = queued or can_go_on(served, first or [])
        async with closing(_followed(served, run_id, places[run_id], patient=patient, queued=queued)) as batches:
            async for batch in batches:
                # Cut first and framed then, at once: what a frame says of other runs' places was sent before it.
                short = await _shortened(batch)
                yield b"".join([_page_part(run_id, one, places) for one in short])
    except RunNotFound as missing:
        # One run that is gone is no reason to tell nothing of the others.
        error = Problem(missing.code, missing.message, missing.hint)
    yield frame(b"end", _encode(_LogEnd(run_id, error)))


async def _followed(
    served: Services, run_id: str, after: int, *, patient: bool, queued: bool
) -> AsyncGenerator[list[Entry | Reset | Delta]]:
    """What comes of a run. Raises `RunNotFound` where there is none, or where it goes before it has begun."""
    looked_at = 0.0
    async with closing(served.logs.follow(run_id, after=after, deltas=True, patient=patient)) as batches:
        async for batch in batches:
            queued = queued and not batch
            if queued and anyio.current_time() >= looked_at + QUEUED_CHECK_SECONDS:
                looked_at = anyio.current_time()
                if await served.store.get_run(run_id) is None:
                    raise RunNotFound(f"there is no run {run_id}")
            yield batch


async def _shortened(batch: list[Entry | Reset | Delta]) -> list[Entry | Reset | Delta]:
    size = sum(len(one.raw) for one in batch if isinstance(one, Entry))
    return _short(batch) if size < LOOP_BYTES else await anyio.to_thread.run_sync(_short, batch)


def _short(batch: list[Entry | Reset | Delta]) -> list[Entry | Reset | Delta]:
    return [Entry(one.seq, one.type, brief(one.raw)) if isinstance(one, Entry) else one for one in batch]


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
