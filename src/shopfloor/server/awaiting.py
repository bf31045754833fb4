"""What a run waits for, from the end of its log."""

from __future__ import annotations

from shopfloor.errors import InvalidEvent
from shopfloor.log import Entry, Event, ToolCall, ToolResult, decode
from shopfloor.ports import LogReader, RunFilter, RunItem, Store
from shopfloor.server.limits import AWAITING_RUNS, EVENTS_MOST, NUMBER_MOST
from shopfloor.server.shapes import Awaited

_OF_CALLS = frozenset({ToolCall.event_type, ToolResult.event_type})


async def awaited(store: Store, logs: LogReader, run: RunItem) -> list[Awaited]:
    """What somebody has to answer so that the run goes on: calls of its own, then those of the runs below it."""
    found = await awaited_by(logs, run)
    for below in await _open_below(store, run):
        whole = await store.get_run(below.row.id) if below.row.awaits else None
        found += await awaited_by(logs, whole) if whole is not None else []
    return found


async def _open_below(store: Store, run: RunItem) -> list[RunItem]:
    """The runs that it has called and that have not ended, and those that they have called; callers first."""
    family = [run]
    for member in family:
        if len(family) > AWAITING_RUNS or not any(member.row.waits.steps.values()):
            continue
        called = RunFilter(parent_run_id=member.row.id, statuses=("running", "waiting"))
        page = await store.list_runs(called, limit=AWAITING_RUNS)
        family += reversed(page.items)
    return family[1 : AWAITING_RUNS + 1]


async def awaited_by(logs: LogReader, run: RunItem) -> list[Awaited]:
    """The calls that the run itself waits for, oldest first.

    The row knows which they are; the log what they ask. It is read from its end: a run that waits does little else.
    """
    wanted = set(run.row.awaits) if run.row.status == "waiting" else set[str]()
    found: list[Awaited] = []
    before = NUMBER_MOST
    while wanted:
        entries = await logs.page(run.row.id, before=before, limit=EVENTS_MOST)
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
