"""Calls of a run and their results, found in its log.

`find_pending_calls` reads from the end of the log the calls that a run waits for. `find_results_after_page` finds
results whose calls are on a page of the log but which appear later.
"""

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

_TOOL_EVENTS = frozenset({ToolCall.event_type, ToolResult.event_type})


async def find_pending_calls(store: Store, logs: LogReader, run: RunItem) -> list[Awaited]:
    """Return the calls that must be answered before the run continues: its own, then those of its sub-runs."""
    found = await find_own_pending_calls(logs, run)
    for sub_run in await _open_sub_runs(store, run):
        item = await store.get_run(sub_run.row.id) if sub_run.row.awaits else None
        found += await find_own_pending_calls(logs, item) if item is not None else []
    return found


async def _open_sub_runs(store: Store, run: RunItem) -> list[RunItem]:
    """Return the open runs that the run called, and those that they called, callers first."""
    tree = [run]
    for member in tree:
        if len(tree) > PENDING_CALLS_RUNS_MAX or not any(member.row.waits.steps.values()):
            continue
        called = RunFilter(parent_run_id=member.row.id, statuses=("running", "waiting"))
        page = await store.list_runs(called, limit=PENDING_CALLS_RUNS_MAX)
        tree += reversed(page.items)
    return tree[1 : PENDING_CALLS_RUNS_MAX + 1]


async def find_own_pending_calls(logs: LogReader, run: RunItem) -> list[Awaited]:
    """Return the calls that the run itself waits for, oldest first.

    They may be pending in one branch while another works. The row has the ids of the calls, the log their inputs. The
    log is read from its end, since most runs write little after their pending calls.
    """
    # A run whose first line is damaged (attempt 0) cannot be answered.
    pending_ids = set(run.row.awaits) if run.row.attempt else set[str]()
    found: list[Awaited] = []
    before = MAX_SAFE_INTEGER
    while pending_ids:
        entries = await logs.page(run.row.id, before=before, limit=EVENTS_MAX)
        if not entries:
            break
        before = entries[0].seq
        for entry in reversed(entries):
            match _tool_payload(entry):
                case ToolResult(call_id=call_id):
                    # Answered meanwhile; the row does not show it yet.
                    pending_ids.discard(call_id)
                case ToolCall(awaits=awaits) as call if awaits is not None and call.call_id in pending_ids:
                    pending_ids.discard(call.call_id)
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


def _tool_payload(entry: Entry) -> object:
    if entry.type not in _TOOL_EVENTS:
        return None
    event: Event | None = None
    try:
        event = decode(entry.raw)
    except InvalidEvent:
        return None
    return event.payload


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
