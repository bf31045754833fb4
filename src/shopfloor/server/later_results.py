"""Results of calls that are on a page of a log, but which appear later in the log."""

from __future__ import annotations

from collections.abc import Iterable

import anyio.to_thread
import msgspec

from shopfloor.decoding import json_decoder
from shopfloor.log import CallCompleted, CallStarted, Entry, ToolCall, ToolResult
from shopfloor.ports import LogReader
from shopfloor.server.limits import RESULT_LOOKAHEAD_EVENTS
from shopfloor.server.sse import closing

_STARTS = frozenset({ToolCall.event_type, CallStarted.event_type})
_RESULTS = frozenset({ToolResult.event_type, CallCompleted.event_type})
_Key = tuple[str, int, int, str]


class _KeyPayload(msgspec.Struct, frozen=True):
    call_id: str = ""
    try_: int = msgspec.field(default=0, name="try")


class _KeyEvent(msgspec.Struct, frozen=True):
    path: str
    iteration: int
    payload: _KeyPayload


_decode = json_decoder(_KeyEvent).decode


async def find_results_after_page(logs: LogReader, run_id: str, page: list[Entry]) -> list[Entry]:
    """Return results whose calls are on this page but which appear later in the log.

    Reads at most `RESULT_LOOKAHEAD_EVENTS` events after the page, and stops when no result is missing.
    """
    # In threads: decoding results of many megabytes would block the event loop.
    missing = await anyio.to_thread.run_sync(_calls_without_result, page)
    found: list[Entry] = []
    if not missing:
        return found
    left = RESULT_LOOKAHEAD_EVENTS
    async with closing(logs.batches(run_id, after=page[-1].seq)) as batches:
        async for batch in batches:
            found += await anyio.to_thread.run_sync(_take_results, missing, batch[:left])
            left -= len(batch)
            if not missing or left <= 0:
                break
    return found


def _take_results(missing: set[_Key | None], entries: Iterable[Entry]) -> list[Entry]:
    """Return the entries that are missing results, and remove them from `missing`."""
    found: list[Entry] = []
    for entry in entries:
        if entry.type in _RESULTS and (key := _key(entry)) in missing:
            missing.discard(key)
            found.append(entry)
    return found


def _calls_without_result(page: Iterable[Entry]) -> set[_Key | None]:
    found: set[_Key | None] = set()
    for entry in page:
        if entry.type in _STARTS:
            found.add(_key(entry))
        elif entry.type in _RESULTS:
            found.discard(_key(entry))
    return found - {None}


def _key(entry: Entry) -> _Key | None:
    """Return the key that a call and its result share: the call's id, or the step's position for a sub-run."""
    try:
        event = _decode(entry.raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    payload = event.payload
    return ("", 0, 0, payload.call_id) if payload.call_id else (event.path, event.iteration, payload.try_, "")
