"""How a run stands that has no outcome, by its log alone."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from shopfloor.cli.arguments import Notes
from shopfloor.cli.style import safe
from shopfloor.cli.waiting import waiting_lines
from shopfloor.log import RunStarted, ToolCall, ToolResult
from shopfloor.record import Problem, is_locked, read
from shopfloor.views import Waits, waits_step

_GONE = "no outcome was recorded, and the process that wrote this is gone"


class Standing(NamedTuple):
    status: str
    lines: list[str]
    """What else is to be said, and what can be done."""


def standing_of(path: Path) -> Standing:
    """Reads all of the log."""
    waits, calls, can_go_on = Waits(), dict[str, ToolCall](), False
    for event in Notes().decoded(read(path, report=_ignore)):
        waits = waits_step(waits, event)
        match event.payload:
            case RunStarted() as started:
                can_go_on = can_go_on or started.definition is not None
            case ToolCall(awaits=awaits) as call if awaits is not None:
                calls[call.call_id] = call
            case ToolResult() as result:
                calls.pop(result.call_id, None)
            case _:
                pass
    run = safe(path.stem)
    if waits.waiting and calls:
        return Standing("waiting", [*waiting_lines(run, [_told(call) for call in calls.values()])])
    if is_locked(path) and waits.waiting:
        return Standing("waiting", [f"waits for a run that it called; `shopfloor tree {run[:8]}` shows it"])
    if is_locked(path):
        return Standing("running", [f"still running; `shopfloor tail {run[:8]}` follows it"])
    return Standing("no outcome", [f"{_GONE}; `shopfloor up` goes on with it" if can_go_on else _GONE])


def _told(call: ToolCall) -> dict[str, object]:
    """As the API tells of it."""
    awaits = call.awaits
    return {
        "call_id": call.call_id,
        "name": call.name,
        "input": call.input,
        "kind": awaits.kind if awaits else "",
        "until": awaits.until if awaits else None,
    }


def _ignore(problem: Problem) -> None:
    """Said where the events themselves are shown."""
