"""What a run waits for, from the end of its log."""

from __future__ import annotations

from shopfloor.errors import InvalidEvent
from shopfloor.log import Entry, Event, ToolCall, ToolResult, decode
from shopfloor.ports import LogReader, RunItem
from shopfloor.server.limits import EVENTS_MOST, NUMBER_MOST
from shopfloor.server.shapes import Awaited

_OF_CALLS = frozenset({ToolCall.event_type, ToolResult.event_type})


async def awaited(logs: LogReader, run: RunItem) -> list[Awaited]:
    """The calls that the run waits for somebody to answer, oldest first.

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
                            call_id=call.call_id,
                            kind=awaits.kind,
                            name=call.name,
                            input=call.input,
                            until=awaits.until,
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
