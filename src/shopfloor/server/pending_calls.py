"""What a run waits for, from the end of its log."""

from __future__ import annotations

from collections.abc import Iterable

import anyio.to_thread
import msgspec

from shopfloor.decoding import json_decoder
from shopfloor.errors import InvalidEvent
from shopfloor.log import CallCompleted, CallStarted, Entry, Event, ToolCall, ToolResult, decode
from shopfloor.ports import LogReader, RunFilter, RunItem, Store
from shopfloor.server.limits import EVENTS_MAX, MAX_SAFE_INTEGER, PENDING_CALLS_RUNS_MAX, RESULT_LOOKAHEAD_EVENTS
from shopfloor.server.response_models import Awaited
from shopfloor.server.sse import closing

_OF_CALLS = frozenset({ToolCall.event_type, ToolResult.event_type})


async def find_pending_calls(store: Store, logs: LogReader, run: RunItem) -> list[Awaited]:
    """What somebody has to answer so that the run goes on: calls of its own, then those of the runs below it."""
    found = await find_own_pending_calls(logs, run)
    for below in await _open_below(store, run):
        whole = await store.get_run(below.row.id) if below.row.awaits else None
        found += await find_own_pending_calls(logs, whole) if whole is not None else []
    return found


async def _open_below(store: Store, run: RunItem) -> list[RunItem]:
    """The runs that it has called and that have not ended, and those that they have called; callers first."""
    family = [run]
    for member in family:
        if len(family) > PENDING_CALLS_RUNS_MAX or not any(member.row.waits.steps.values()):
            continue
        called = RunFilter(parent_run_id=member.row.id, statuses=("running", "waiting"))
        page = await store.list_runs(called, limit=PENDING_CALLS_RUNS_MAX)
        family += reversed(page.items)
    return family[1 : PENDING_CALLS_RUNS_MAX + 1]


async def find_own_pending_calls(logs: LogReader, run: RunItem) -> list[Awaited]:
    """The calls that the run itself waits for, oldest first.

    The row knows which they are; the log what they ask. It is read from its end: a run that waits does little else.
    """
    wanted = set(run.row.awaits) if run.row.status == "waiting" else set[str]()
    found: list[Awaited] = []
    before = MAX_SAFE_INTEGER
    while wanted:
        entries = await logs.page(run.row.id, before=before, limit=EVENTS_MAX)
        if not entries:
            break
        before = entries[0].seq
        for entry in reversed(entries):
            match _call(entry):
                case ToolResult(call_id=call_id):
                    # Answered meanwhile: the row is not yet there.
                    wanted.discard(call_id)
                case ToolCall(awaits=awaits) as call if awaits is not None and call.call_id in wanted:
                    wanted.discard(call.call_id)
                    found.append(
                        Awaited(
                            run_id=run.row.id,
                            call_id=call.call_id,
                            kind=awaits.kind,
                            name=call.name,
                            input=call.input,
                            until=awaits.until,
                            answered=call.call_id in run.answered,
                        )
                    )
                case _:
                    pass
    return found[::-1]


def _call(entry: Entry) -> object:
    if entry.type not in _OF_CALLS:
        return None
    event: Event | None = None
    try:
        event = decode(entry.raw)
    except InvalidEvent:
        return None
    return event.payload


_BEGIN = frozenset({ToolCall.event_type, CallStarted.event_type})
_END = frozenset({ToolResult.event_type, CallCompleted.event_type})
_Key = tuple[str, int, int, str]


class _Told(msgspec.Struct, frozen=True):
    call_id: str = ""
    try_: int = msgspec.field(default=0, name="try")


class _Place(msgspec.Struct, frozen=True):
    path: str
    iteration: int
    payload: _Told


_decode = json_decoder(_Place).decode


async def find_results_after_page(logs: LogReader, run_id: str, page: list[Entry]) -> list[Entry]:
    """Looked for in the events that follow, no further than some of them, and no longer than any is missing."""
    # Looking into results of many megabytes is not for the loop that everybody waits on.
    missing = await anyio.to_thread.run_sync(_open, page)
    found: list[Entry] = []
    if not missing:
        return found
    left = RESULT_LOOKAHEAD_EVENTS
    async with closing(logs.batches(run_id, after=page[-1].seq)) as batches:
        async for batch in batches:
            found += await anyio.to_thread.run_sync(_taken, missing, batch[:left])
            left -= len(batch)
            if not missing or left <= 0:
                break
    return found


def _taken(missing: set[_Key | None], entries: Iterable[Entry]) -> list[Entry]:
    """The results among these that are missing; they are missing no more."""
    found: list[Entry] = []
    for entry in entries:
        if entry.type in _END and (key := _key(entry)) in missing:
            missing.discard(key)
            found.append(entry)
    return found


def _open(page: Iterable[Entry]) -> set[_Key | None]:
    found: set[_Key | None] = set()
    for entry in page:
        if entry.type in _BEGIN:
            found.add(_key(entry))
        elif entry.type in _END:
            found.discard(_key(entry))
    return found - {None}


def _key(entry: Entry) -> _Key | None:
    """What joins a call and its result: the id of the call, or the place of the step that is a sub-run."""
    try:
        place = _decode(entry.raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    told = place.payload
    return ("", 0, 0, told.call_id) if told.call_id else (place.path, place.iteration, told.try_, "")
