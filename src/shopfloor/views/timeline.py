"""The timeline of a run: a compact list of what happened, for a live view."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
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
from shopfloor.views.truncation import as_text, ms_between, truncate_bytes
from shopfloor.views.wait_state import NO_WAITS, WaitState, wait_state_step

TimelineType = Literal["status", "tool_started", "tool_completed", "error"]
_SUMMARY_TOOL = "update_summary"
# What says the most about a call, where its input has it.
_TELLING = ("command", "file_path", "path", "url", "query", "pattern", "prompt", "description")


class TimelineRow(msgspec.Struct, frozen=True, gc=False):
    """`seq` and `n` say which event it comes from, and which of its rows it is."""

    seq: int
    n: int
    event_type: TimelineType
    data: dict[str, Any]
    created_at: str


class Timeline(msgspec.Struct, frozen=True):
    """The state of the fold: the calls that are open, and the last error that was told."""

    open_calls: dict[str, tuple[str, int]] = {}
    """When each began, and with which event."""
    told: str | None = None


def timeline_fold(
    state: Timeline, events: Sequence[Event], waits: WaitState = NO_WAITS
) -> tuple[Timeline, list[TimelineRow]]:
    """The state after the events, the next of its run, and what they add to the timeline.

    `waits` is what the run waited for before these events.
    """
    open_calls, told = state.open_calls.copy(), state.told
    rows: list[TimelineRow] = []
    folded = 0
    """How many of the events `waits` has."""
    for place, event in enumerate(events):
        match event.payload:
            case ToolCall() as call:
                open_calls[call.call_id] = (event.timestamp, event.seq)
                if len(open_calls) > TIMELINE_OPEN_CALLS:
                    del open_calls[next(iter(open_calls))]
                rows.append(_call(event, call))
            case ToolResult() as result:
                began = open_calls.pop(result.call_id, None)
                if result.name != _SUMMARY_TOOL or result.fidelity != "router":
                    rows.append(_result(event, result, began))
            case StepStarted() | CallStarted() as step:
                rows.append(_row(event, "status", {"status": step.name}))
            case StepCompleted() | CallCompleted() as step if step.error:
                told = _cut(step.error)
                rows.append(_row(event, "error", {"message": told, "step": event.path}))
            case RunStarted() as run:
                status = "starting" if run.attempt == 1 else f"starting, attempt {run.attempt}"
                waits, folded = reduce(wait_state_step, events[folded:place], waits), place
                status = "going on" if waits.is_waiting else status
                rows.append(_row(event, "status", {"status": status}))
            case RunCompleted() as run:
                rows += _outcome(event, run, told)
            case _:
                pass
    return Timeline(open_calls, told), rows


def _row(event: Event, kind: TimelineType, data: dict[str, Any], n: int = 0) -> TimelineRow:
    return TimelineRow(event.seq, n, kind, data, event.timestamp)


def _outcome(event: Event, run: RunCompleted, told: str | None) -> list[TimelineRow]:
    status = {"status": run.status}
    if run.error is None or _cut(run.error.message) == told:
        return [_row(event, "status", status)]
    error = {"message": _cut(run.error.message), "code": run.error.code}
    return [_row(event, "error", error), _row(event, "status", status, 1)]


def _call(event: Event, call: ToolCall) -> TimelineRow:
    given: Any = call.input
    if call.name == _SUMMARY_TOOL and call.fidelity == "router" and isinstance(given, dict):
        return _row(event, "status", {"status": _cut(str(cast("dict[str, Any]", given).get("summary")))})
    return _row(event, "tool_started", {"tool_name": call.name, "preview": preview(given)})


def _result(event: Event, result: ToolResult, began: tuple[str, int] | None) -> TimelineRow:
    took = result.duration_ms
    if took is None and began is not None:
        took = ms_between(began[0], event.timestamp)
    data: dict[str, Any] = {"tool_name": result.name, "duration_ms": took}
    if began is not None:
        data["call_seq"] = began[1]
    if result.error is not None:
        data["error"] = result.error[:PREVIEW_CHARS]
    return _row(event, "tool_completed", data)


def _cut(text: str) -> str:
    """A timeline is a list to look over; the log has it whole."""
    return truncate_bytes(text, ARCHIVE_ARGS_BYTES)


def preview(value: Any) -> str:
    """The most telling part of a tool's input, on one line, at most 200 characters."""
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        for name in _TELLING:
            if isinstance(told := fields.get(name), str):
                value = told
                break
    value = as_text(value)
    line = " ".join(value[: PREVIEW_CHARS * 4].split())
    return line if len(line) <= PREVIEW_CHARS else f"{line[: PREVIEW_CHARS - 1]}…"
