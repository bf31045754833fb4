"""The row of a run, with its status: what lists, pages and commands show of it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any, Final, Literal

import msgspec
from msgspec.structs import replace

from shopfloor.errors import error_class
from shopfloor.limits import PREVIEW_CHARS
from shopfloor.log import (
    AssistantMessage,
    BasedOn,
    CallCompleted,
    CallStarted,
    ClientInfo,
    Event,
    Requirements,
    RunCompleted,
    RunStarted,
    StepCompleted,
    StepStarted,
    ToolCall,
    ToolResult,
    UserMessage,
    is_message_chunk,
)
from shopfloor.views.activity import NO_ACTIVITY, Activity, activity_fold
from shopfloor.views.notes import NO_NOTES, Notes, notes_step
from shopfloor.views.progress import NO_PROGRESS, Progress, progress_step
from shopfloor.views.spending import Spending, spending_step
from shopfloor.views.truncation import as_text
from shopfloor.views.wait_state import NO_WAITS, WaitState, wait_state_step

RunState = Literal["queued", "running", "waiting", "completed", "failed", "cancelled"]
INTERRUPTED: Final = "interrupted"
"""Shown instead of `running` for a run without an active host. Not a stored status: the run can be resumed."""


def is_interrupted(status: str, *, has_active_host: bool) -> bool:
    """Return True if a run with this status was interrupted. A waiting run needs no host while it waits."""
    return status == "running" and not has_active_host


def display_status(status: str, *, has_active_host: bool) -> str:
    """Return the status to show: `interrupted` for a running run without an active host."""
    return INTERRUPTED if is_interrupted(status, has_active_host=has_active_host) else status


_MAX_STORABLE = 2**53
_FREE_PAYLOADS = frozenset({UserMessage, ToolCall, ToolResult})
"""Payloads that have no usage or cost of their own."""
_TYPES_WITHOUT_PROVIDER = ("builtin", "plugin", "command", None)


class RunRow(msgspec.Struct, frozen=True, kw_only=True):
    """The row, which is also the state of the fold. Bounded, because `Notes`, `WaitState` and `Spending` are."""

    id: str = ""
    parent_run_id: str | None = None
    root_run_id: str | None = None
    name: str = ""
    kind: str = ""
    worker_type: str = "builtin"
    agent_id: str | None = None
    channel_id: str | None = None
    channel_name: str | None = None
    client: ClientInfo | None = None
    """The program that dispatched the run, if it is known."""
    based_on: BasedOn | None = None
    """The earlier run that the run repeats, continues or forks."""
    task: str = ""
    result: str | None = None
    status: str = "running"
    error_code: str | None = None
    error_message: str | None = None
    error_hint: str | None = None
    provider: str | None = None
    """The provider of the newest session or model, or of the run itself if it was handed to a provider directly."""
    model: str | None = None
    """The model that wrote the newest message."""
    host: str | None = None
    attempt: int = 0
    interruptions: int = 0
    """The number of attempts that started because an earlier attempt was interrupted, not because of an answer."""
    priority: int = 0
    requires: Requirements | None = None
    """What its host must have; None if any host can execute the run."""
    queued_at: str | None = None
    started_at: str = ""
    completed_at: str | None = None
    duration_ms: int | None = None
    tool_calls: int = 0
    messages: int = 0
    spending: Spending = Spending()
    children: int = 0
    """The number of runs that this run has called."""
    notes: Notes = NO_NOTES
    progress: Progress = NO_PROGRESS
    activity: Activity = NO_ACTIVITY
    waits: WaitState = NO_WAITS
    outside: bool = False
    """True if the run waits and nothing can happen until a client or a person acts: it needs no host until then."""
    wake_at: str | None = None
    """When the first of its waits ends by itself; empty if that may be at any time."""
    last_seq: int = 0

    @property
    def title(self) -> str:
        """The start of the task, on one line."""
        return title_of_task(self.task)

    @property
    def awaits(self) -> tuple[str, ...]:
        """The ids of the calls that a client or a person has to answer."""
        return tuple(self.waits.calls)

    @property
    def waits_for(self) -> list[str] | None:
        """The kinds of what the run waits for; None if it does not wait."""
        return self.waits.waits_for if self.status == "waiting" else None

    @property
    def waiting_since(self) -> str | None:
        """Since when the run waits for a person, in any of its branches; None if it does not."""
        return self.waits.person_since if self.attempt and not self.is_ended else None

    @property
    def needs_person_since(self) -> str | None:
        """When the run failed for a reason that only a person can remove; None otherwise.

        The root of a tree stands for its sub-runs.
        """
        is_failed_root = self.status == "failed" and self.parent_run_id is None and self.error_code is not None
        return self.completed_at if is_failed_root and error_class(self.error_code or "").needs_person else None

    @property
    def is_ended(self) -> bool:
        """True if the run has an outcome."""
        return self.completed_at is not None


def row_fold(row: RunRow, events: Sequence[Event]) -> RunRow:
    """Return the row after the next events of its run."""
    row = _with_first_event(row, events)
    last_seq, messages, tool_calls, waits = row.last_seq, row.messages, row.tool_calls, row.waits
    model, notes, progress = row.model, row.notes, row.progress
    last: Event | None = None
    for event in events:
        last, last_seq = event, event.seq
        match event.payload:
            case AssistantMessage() as message:
                # A note of the agent's program has no blocks and is no message; a chunk is no message yet.
                messages += bool(message.blocks) and not is_message_chunk(message)
                model = model if message.model is None or message.synthetic else message.model
                row = _with_provider(row, message.provider)
            case UserMessage() as message:
                messages += bool(message.blocks)
            case ToolCall() as call:
                tool_calls += 1
                notes, progress = notes_step(notes, event), progress_step(progress, event)
                if call.awaits:
                    waits = wait_state_step(waits, event)
            case ToolResult() as result:
                if result.call_id in waits.calls:
                    waits = wait_state_step(waits, event)
            case StepStarted() | CallStarted() as step:
                waits = wait_state_step(waits, event)
                row = _with_step_started(row, step)
            case StepCompleted() | CallCompleted():
                waits, progress = wait_state_step(waits, event), progress_step(progress, event)
            case RunStarted() as started:
                progress = progress_step(progress, event)
                row = replace(row, **_run_started_fields(row, event, started, was_waiting=waits.is_waiting))
            case RunCompleted() as ended:
                progress = progress_step(progress, event)
                row = replace(row, **_run_completed_fields(event, ended))
            case _:
                pass
    waits = NO_WAITS if row.is_ended else waits
    # A run whose first line is damaged (attempt 0) can be neither answered nor resumed, so it is not `waiting`.
    is_waiting = waits.is_waiting and row.attempt > 0
    return replace(
        row,
        last_seq=last_seq,
        messages=messages,
        tool_calls=tool_calls,
        model=model,
        notes=notes,
        progress=progress,
        activity=NO_ACTIVITY if row.is_ended else activity_fold(row.activity, events),
        spending=reduce(
            spending_step, [event for event in events if type(event.payload) not in _FREE_PAYLOADS], row.spending
        ),
        waits=waits,
        status=row.status if row.is_ended else "waiting" if is_waiting else "running",
        outside=row.outside
        if last is None
        else is_waiting and (waits.awaits_definition or _needs_outside_action(last)),
        wake_at=waits.wake_at,
    )


def queued_row(run_id: str, started: RunStarted) -> RunRow:
    """Return the row of a run that has not started, from the event that will be its first."""
    parent = None if started.parent is None else started.parent["run_id"]
    row = RunRow(id=run_id, parent_run_id=parent, status="queued", started_at=started.queued_at or "")
    return replace(row, **_first_attempt_fields(row, started))


def title_of_task(task: str) -> str:
    """Return the start of a task on one line."""
    return " ".join(task[: 4 * PREVIEW_CHARS].split())[:PREVIEW_CHARS]


def provider_of_type(worker_type: str | None) -> str | None:
    """Return the provider that a run of this type is handed to; None if it has none or its worker decides."""
    return None if worker_type in _TYPES_WITHOUT_PROVIDER else worker_type


def _with_step_started(row: RunRow, step: StepStarted | CallStarted) -> RunRow:
    if isinstance(step, CallStarted):
        return replace(row, children=row.children + 1)
    # The session of a plugin is its job, and that of a model its conversation.
    is_agent = step.session is not None and step.kind == "agent"
    return replace(row, provider=step.session.provider) if step.session is not None and is_agent else row


def _with_provider(row: RunRow, provider: str | None) -> RunRow:
    return row if provider in (None, row.provider) else replace(row, provider=provider)


def _needs_outside_action(last: Event | None) -> bool:
    """Return True if nothing can happen until a client or a person acts, because the last event requests that.

    After any other event another branch may be between two steps, which the log does not show; so a host has to check.
    """
    return last is not None and isinstance(last.payload, ToolCall) and last.payload.awaits is not None


def _with_first_event(row: RunRow, events: Sequence[Event]) -> RunRow:
    """Return the row with the ids and the start time of the first event, whatever its type."""
    if row.started_at or not events:
        return row
    run_id = row.id or events[0].run_id
    parent, at = events[0].parent_run_id, events[0].timestamp
    return replace(row, id=run_id, parent_run_id=parent, root_run_id=run_id, started_at=at)


def _run_started_fields(row: RunRow, event: Event, started: RunStarted, *, was_waiting: bool) -> dict[str, Any]:
    change: dict[str, Any] = {"attempt": _clamp_storable(started.attempt), "host": started.host}
    if row.attempt:
        return change | {"interruptions": row.interruptions + (not was_waiting)}
    return change | _first_attempt_fields(row, started)


def _first_attempt_fields(row: RunRow, started: RunStarted) -> dict[str, Any]:
    return {
        "root_run_id": started.root_run_id or row.id,
        "name": started.name,
        "kind": started.kind,
        "worker_type": started.worker_type or "builtin",
        "provider": provider_of_type(started.worker_type),
        "agent_id": started.agent_id or started.name,
        "channel_id": started.channel_id,
        "channel_name": started.channel_name,
        "client": started.client,
        "based_on": started.based_on,
        "task": started.task or started.name,
        "priority": _clamp_storable(started.priority),
        "requires": started.requires,
        "queued_at": started.queued_at,
    }


def _run_completed_fields(event: Event, ended: RunCompleted) -> dict[str, Any]:
    return {
        "status": ended.status,
        "result": None if ended.result is None else as_text(ended.result),
        "error_code": ended.error and ended.error.code,
        "error_message": ended.error and ended.error.message,
        "error_hint": (ended.error.hint or None) if ended.error else None,
        "completed_at": event.timestamp,
        "duration_ms": ended.duration_ms if ended.duration_ms is None else _clamp_storable(ended.duration_ms),
    }


def _clamp_storable(number: int) -> int:
    """Return a number from a log, clamped to a range that every database can store."""
    return max(-_MAX_STORABLE, min(number, _MAX_STORABLE))
