"""How a run stands that has no outcome, by its log alone."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import NamedTuple

from shopfloor.cli.arguments import Notes
from shopfloor.cli.style import safe
from shopfloor.cli.waiting import answered_calls, waiting_lines
from shopfloor.log import RunStarted, ToolCall, ToolResult
from shopfloor.record import Problem, is_attended, read
from shopfloor.views import Waits, shown_status, waits_step

_GONE = "no outcome was recorded, and the process that wrote this is gone"


class Standing(NamedTuple):
    status: str
    lines: list[str]
    """What else is to be said, and what can be done."""


def standing_of(args: Namespace, path: Path) -> Standing:
    """Read all of the log, and which of its calls have an answer that the run has not taken up yet."""
    waits, calls, can_go_on = Waits(), dict[str, ToolCall](), False
    host: str | None = None
    for event in Notes().decoded(read(path, report=_ignore)):
        waits = waits_step(waits, event)
        match event.payload:
            case RunStarted() as started:
                can_go_on = can_go_on or started.definition is not None
                host = started.host
            case ToolCall(awaits=awaits) as call if awaits is not None:
                calls[call.call_id] = call
            case ToolResult() as result:
                calls.pop(result.call_id, None)
            case _:
                pass
    run = safe(path.stem)
    status = shown_status("waiting" if waits.waiting else "running", is_attended=is_attended(path, host))
    match status:
        case "waiting" if calls:
            answered = answered_calls(args, path)
            awaited = [_told(call, is_answered=(path.stem, call_id) in answered) for call_id, call in calls.items()]
            lines = [*waiting_lines(run, awaited)]
        case "waiting":
            lines = [f"waits for a run that it called; `shopfloor tree {run[:8]}` shows it"]
        case "running":
            lines = [f"still running; `shopfloor tail {run[:8]}` follows it"]
        case _:
            lines = [f"{_GONE}; `shopfloor up` goes on with it" if can_go_on else _GONE]
    return Standing(status, lines)


def _told(call: ToolCall, *, is_answered: bool) -> dict[str, object]:
    """As the API tells of it."""
    awaits = call.awaits
    return {
        "call_id": call.call_id,
        "name": call.name,
        "input": call.input,
        "kind": awaits.kind if awaits else "",
        "until": awaits.until if awaits else None,
        "answered": is_answered,
    }


def _ignore(problem: Problem) -> None:
    """Said where the events themselves are shown."""
