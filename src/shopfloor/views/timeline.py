"""The timeline of a run: a compact list of what happened, for a live view."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any, Literal, cast

import msgspec

from shopfloor.limits import ARCHIVE_ARGS_BYTES, PREVIEW_CHARS, TIMELINE_OPEN_CALLS
from shopfloor.log import (
    CallCompleted,
    CallStarted,
    Event,
    RunCompleted,
    RunStarted,
    StepCompleted,
    StepStarted,
    ToolCall,
    ToolResult,
)
from shopfloor.views.archive import cut

TimelineType = Literal["status", "tool_started", "tool_completed", "error"]
_SUMMARY_TOOL = "update_summary"
# What says the most about a call, where its input has it.
_TELLING = ("command", "file_path", "path", "url", "query", "pattern", "prompt", "description")


class TimelineRow(msgspec.Struct, frozen=True):
    """`seq` and `n` say which event it comes from, and which of its rows it is."""

    seq: int
    n: int
    event_type: TimelineType
    data: dict[str, Any]
    created_at: str


class Timeline(msgspec.Struct, frozen=True):
    """The state of the fold: when the calls that are open began, and the last error that was told."""

    open_calls: dict[str, str] = {}
    told: str | None = None


def timeline_step(state: Timeline, event: Event) -> tuple[Timeline, list[TimelineRow]]:
    said: list[tuple[TimelineType, dict[str, Any]]] = []
    match event.payload:
        case RunStarted() as run:
            said = [("status", {"status": "starting" if run.attempt == 1 else f"starting, attempt {run.attempt}"})]
        case RunCompleted() as run:
            if run.error and _cut(run.error.message) != state.told:
                said.append(("error", {"message": _cut(run.error.message), "code": run.error.code}))
            said.append(("status", {"status": run.status}))
        case StepStarted() | CallStarted() as step:
            said = [("status", {"status": step.name})]
        case StepCompleted() | CallCompleted() as step:
            if step.error:
                said = [("error", {"message": _cut(step.error), "step": event.path})]
                state = msgspec.structs.replace(state, told=_cut(step.error))
        case ToolCall() as call:
            state, said = _call(state, event, call)
        case ToolResult() as result:
            state, said = _result(state, event, result)
        case _:
            pass
    rows = [TimelineRow(event.seq, n, kind, data, event.timestamp) for n, (kind, data) in enumerate(said)]
    return state, rows


def _call(state: Timeline, event: Event, call: ToolCall) -> tuple[Timeline, list[tuple[TimelineType, dict[str, Any]]]]:
    open_calls = {**state.open_calls, call.call_id: event.timestamp}
    if len(open_calls) > TIMELINE_OPEN_CALLS:
        del open_calls[next(iter(open_calls))]
    state = msgspec.structs.replace(state, open_calls=open_calls)
    given: Any = call.input
    if call.name == _SUMMARY_TOOL and call.fidelity == "router" and isinstance(given, dict):
        return state, [("status", {"status": _cut(str(cast("dict[str, Any]", given).get("summary")))})]
    return state, [("tool_started", {"tool_name": call.name, "preview": preview(call.input)})]


def _result(
    state: Timeline, event: Event, result: ToolResult
) -> tuple[Timeline, list[tuple[TimelineType, dict[str, Any]]]]:
    began = state.open_calls.get(result.call_id)
    rest = {call_id: at for call_id, at in state.open_calls.items() if call_id != result.call_id}
    state = msgspec.structs.replace(state, open_calls=rest)
    if result.name == _SUMMARY_TOOL and result.fidelity == "router":
        return state, []
    took = result.duration_ms
    if took is None and began is not None:
        took = _ms_between(began, event.timestamp)
    data: dict[str, Any] = {"tool_name": result.name, "duration_ms": took}
    if result.error is not None:
        data["error"] = result.error[:PREVIEW_CHARS]
    return state, [("tool_completed", data)]


def _cut(text: str) -> str:
    """A timeline is a list to look over; the log has it whole."""
    return cut(text, ARCHIVE_ARGS_BYTES)


def _ms_between(began: str, ended: str) -> int | None:
    try:
        took = datetime.fromisoformat(ended) - datetime.fromisoformat(began)
    except ValueError:
        return None
    return max(0, round(took.total_seconds() * 1000))


def preview(value: Any) -> str:
    """The most telling part of a tool's input, on one line, at most 200 characters."""
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        telling = next((fields[name] for name in _TELLING if isinstance(fields.get(name), str)), None)
        value = telling if telling is not None else json.dumps(fields, ensure_ascii=False)
    elif not isinstance(value, str):
        value = json.dumps(value, ensure_ascii=False)
    line = " ".join(value[: PREVIEW_CHARS * 4].split())
    return line if len(line) <= PREVIEW_CHARS else f"{line[: PREVIEW_CHARS - 1]}…"
