"""The results that a page of a log lacks: its calls stand on it, and they stand further down."""

from __future__ import annotations

from collections.abc import Iterable

import anyio.to_thread
import msgspec

from shopfloor.decoding import json_decoder
from shopfloor.log import CallCompleted, CallStarted, Entry, ToolCall, ToolResult
from shopfloor.ports import LogReader
from shopfloor.server.limits import LATER_EVENTS
from shopfloor.server.sse import closing

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


async def later_results(logs: LogReader, run_id: str, page: list[Entry]) -> list[Entry]:
    """Looked for in the events that follow, no further than some of them, and no longer than any is missing."""
    # Looking into results of many megabytes is not for the loop that everybody waits on.
    missing = await anyio.to_thread.run_sync(_open, page)
    found: list[Entry] = []
    if not missing:
        return found
    left = LATER_EVENTS
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
