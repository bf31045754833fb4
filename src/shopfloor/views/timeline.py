"""The timeline of a run: a compact list of its steps, calls and errors, for a live view."""

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
from shopfloor.views.approvals import describe_approval
from shopfloor.views.notes import UPDATE_SUMMARY
from shopfloor.views.truncation import as_text, ms_between, truncate_bytes
from shopfloor.views.wait_state import APPROVAL, NO_WAITS, WaitState, wait_state_step

TimelineType = Literal["status", "tool_started", "tool_completed", "error"]
# The input fields that describe a call best, in this order.
_PREVIEW_FIELDS = (
    *("command", "file_path", "path", "url", "query", "pattern", "prompt", "description"),
    *("decision", "question"),
)


class TimelineRow(msgspec.Struct, frozen=True, gc=False):
    """A row of the timeline. `seq` is the event it comes from, `n` its index among that event's rows."""

    seq: int
    n: int
    event_type: TimelineType
    data: dict[str, Any]
    created_at: str


class Timeline(msgspec.Struct, frozen=True):
    """The state of the fold: the open calls, and the last error that has a row."""

    open_calls: dict[str, tuple[str, int]] = {}
    """The start time and the `seq` of each call."""
    last_error: str | None = msgspec.field(default=None, name="told")


def timeline_fold(
    state: Timeline, events: Sequence[Event], waits: WaitState = NO_WAITS
) -> tuple[Timeline, list[TimelineRow]]:
    """Return the state after the next events of a run, and the rows that they add to the timeline.

    `waits` is the wait state of the run before these events.
    """
    open_calls, last_error = state.open_calls.copy(), state.last_error
    rows: list[TimelineRow] = []
    folded = 0
    """The number of events that `waits` includes."""
    for index, event in enumerate(events):
        match event.payload:
            case ToolCall() as call:
                open_calls[call.call_id] = (event.timestamp, event.seq)
                if len(open_calls) > TIMELINE_OPEN_CALLS:
                    del open_calls[next(iter(open_calls))]
                rows.append(_call(event, call))
            case ToolResult() as result:
                started = open_calls.pop(result.call_id, None)
                if result.name != UPDATE_SUMMARY:
                    rows.append(_result(event, result, started))
            case StepStarted() | CallStarted() as step:
                rows.append(_row(event, "status", {"status": step.name}))
            case StepCompleted() | CallCompleted() as step if step.error:
                last_error = _truncate(step.error)
                rows.append(_row(event, "error", {"message": last_error, "step": event.path}))
            case RunStarted() as run:
                status = "starting" if run.attempt == 1 else f"starting, attempt {run.attempt}"
                waits, folded = reduce(wait_state_step, events[folded:index], waits), index
                status = "resumed" if waits.is_waiting else status
                rows.append(_row(event, "status", {"status": status}))
            case RunCompleted() as run:
                rows += _outcome(event, run, last_error)
            case _:
                pass
    return Timeline(open_calls, last_error), rows


def _row(event: Event, kind: TimelineType, data: dict[str, Any], n: int = 0) -> TimelineRow:
    return TimelineRow(event.seq, n, kind, data, event.timestamp)


def _outcome(event: Event, run: RunCompleted, last_error: str | None) -> list[TimelineRow]:
    status = {"status": run.status}
    if run.error is None or _truncate(run.error.message) == last_error:
        return [_row(event, "status", status)]
    error = {"message": _truncate(run.error.message), "code": run.error.code}
    return [_row(event, "error", error), _row(event, "status", status, 1)]


def _call(event: Event, call: ToolCall) -> TimelineRow:
    arguments: Any = call.input
    if call.name == UPDATE_SUMMARY and isinstance(arguments, dict):
        return _row(event, "status", {"status": _truncate(str(cast("dict[str, Any]", arguments).get("summary")))})
    is_approval = call.awaits is not None and call.awaits.kind == APPROVAL
    shown = preview(describe_approval(arguments).removeprefix("approval of ") if is_approval else arguments)
    return _row(event, "tool_started", {"tool_name": call.name, "preview": shown})


def _result(event: Event, result: ToolResult, started: tuple[str, int] | None) -> TimelineRow:
    duration_ms = result.duration_ms
    if duration_ms is None and started is not None:
        duration_ms = ms_between(started[0], event.timestamp)
    data: dict[str, Any] = {"tool_name": result.name, "duration_ms": duration_ms}
    if started is not None:
        data["call_seq"] = started[1]
    if result.error is not None:
        data["error"] = result.error[:PREVIEW_CHARS]
    return _row(event, "tool_completed", data)


def _truncate(text: str) -> str:
    """Return the text truncated: the log has the full text."""
    return truncate_bytes(text, ARCHIVE_ARGS_BYTES)


def preview(value: Any) -> str:
    """Return the most descriptive part of a tool's input, on one line of at most 200 characters."""
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        for name in _PREVIEW_FIELDS:
            if isinstance(field := fields.get(name), str):
                value = field
                break
    value = as_text(value)
    line = " ".join(value[: PREVIEW_CHARS * 4].split())
    return line if len(line) <= PREVIEW_CHARS else f"{line[: PREVIEW_CHARS - 1]}…"
