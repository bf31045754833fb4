"""The calls that a run waits for, found in its log."""

from __future__ import annotations

from shopfloor.errors import InvalidEvent
from shopfloor.log import Entry, Event, ToolCall, ToolResult, decode
from shopfloor.ports import LogReader, RunFilter, RunItem, Store
from shopfloor.server.limits import EVENTS_MAX, MAX_SAFE_INTEGER, PENDING_CALLS_RUNS_MAX
from shopfloor.server.response_models import Awaited

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
