"""The row of a run: what a list shows of it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any, Final, Literal

import msgspec
from msgspec.structs import replace

from shopfloor.log import (
    AssistantMessage,
    CallCompleted,
    CallStarted,
    Event,
    RunCompleted,
    RunStarted,
    StepCompleted,
    StepStarted,
    ToolCall,
    ToolResult,
    UserMessage,
    is_message_chunk,
)
from shopfloor.views.spending import Spending, spending_step
from shopfloor.views.truncation import as_text
from shopfloor.views.wait_state import NO_WAITS, WaitState, wait_state_step

RunState = Literal["queued", "running", "waiting", "completed", "failed", "cancelled"]
INTERRUPTED: Final = "interrupted"
"""Shown of a run that would be running, if a process worked on it. It is no status of its own: it can be resumed."""


def is_interrupted(status: str, *, has_active_host: bool) -> bool:
    """Whether a run with this status was cut off. A run that waits for somebody needs no process meanwhile."""
    return status == "running" and not has_active_host


def display_status(status: str, *, has_active_host: bool) -> str:
    return INTERRUPTED if is_interrupted(status, has_active_host=has_active_host) else status


_MOST = 2**53
_FREE = frozenset({UserMessage, ToolCall, ToolResult})
"""What costs nothing by itself."""
_NO_PROVIDERS = ("builtin", "plugin", "command", None)


class RunRow(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the fold and the row at once. Bounded, as what it waits for is."""

    id: str = ""
    parent_run_id: str | None = None
    root_run_id: str | None = None
    name: str = ""
    kind: str = ""
    worker_type: str = "builtin"
    agent_id: str | None = None
    channel_id: str | None = None
    channel_name: str | None = None
    task: str = ""
    result: str | None = None
    status: str = "running"
    error_code: str | None = None
    error_message: str | None = None
    error_hint: str | None = None
    provider: str | None = None
    """What powers it: of its newest session, or of the run itself where it is a bare one."""
    model: str | None = None
    """The model that wrote the newest message."""
    host: str | None = None
    attempt: int = 0
    interruptions: int = 0
    """How many attempts began because an earlier one was cut off. One that takes up an answer is not among them."""
    queued_at: str | None = None
    started_at: str = ""
    completed_at: str | None = None
    duration_ms: int | None = None
    tool_calls: int = 0
    messages: int = 0
    spending: Spending = Spending()
    children: int = 0
    """How many runs it has called."""
    waits: WaitState = NO_WAITS
    outside: bool = False
    """It waits, and nothing can happen until somebody outside acts: it needs no host until then."""
    wake_at: str | None = None
    """When the first of its waits ends by itself; empty where that may be at any time."""
    last_seq: int = 0

    @property
    def awaits(self) -> tuple[str, ...]:
        """The calls that somebody outside has to answer."""
        return tuple(self.waits.calls)

    @property
    def waits_for(self) -> list[str] | None:
        """The kinds of what it waits for, while it does."""
        return self.waits.waits_for if self.status == "waiting" else None

    @property
    def is_ended(self) -> bool:
        return self.completed_at is not None


def row_fold(row: RunRow, events: Sequence[Event]) -> RunRow:
    """The row after the events, the next of its run."""
    row = _opened(row, events)
    last_seq, messages, tool_calls, waits = row.last_seq, row.messages, row.tool_calls, row.waits
    model = row.model
    last: Event | None = None
    for event in events:
        last, last_seq = event, event.seq
        match event.payload:
            case AssistantMessage() as message:
                # What an agent's program notes by itself is no message of anybody's; a piece is no message yet.
                messages += bool(message.blocks) and not is_message_chunk(message)
                model = model if message.model is None or message.synthetic else message.model
            case UserMessage() as message:
                messages += bool(message.blocks)
            case ToolCall() as call:
                tool_calls += 1
                if call.awaits:
                    waits = wait_state_step(waits, event)
            case ToolResult() as result:
                if result.call_id in waits.calls:
                    waits = wait_state_step(waits, event)
            case StepStarted() | CallStarted() as step:
                waits = wait_state_step(waits, event)
                row = _begun(row, step)
            case StepCompleted() | CallCompleted():
                waits = wait_state_step(waits, event)
            case RunStarted() as started:
                row = replace(row, **_started(row, event, started, waited=waits.is_waiting))
            case RunCompleted() as ended:
                row = replace(row, **_completed(event, ended))
            case _:
                pass
    waits = NO_WAITS if row.is_ended else waits
    # Without its beginning, as where that line is damaged, nobody can answer it or go on with it.
    waiting = waits.is_waiting and row.attempt > 0
    return replace(
        row,
        last_seq=last_seq,
        messages=messages,
        tool_calls=tool_calls,
        model=model,
        spending=reduce(spending_step, [one for one in events if type(one.payload) not in _FREE], row.spending),
        waits=waits,
        status=row.status if row.is_ended else "waiting" if waiting else "running",
        outside=row.outside if last is None else waiting and (waits.awaits_definition or _rests(last)),
        wake_at=waits.wake_at,
    )


def queued_row(run_id: str, started: RunStarted) -> RunRow:
    """The row of a run that has not started, of the event that will be its first."""
    parent = None if started.parent is None else started.parent["run_id"]
    row = RunRow(id=run_id, parent_run_id=parent, status="queued", started_at=started.queued_at or "")
    return replace(row, **_first_facts(row, started))


def _provider_of(worker_type: str | None) -> str | None:
    """The provider that a run of this type is handed to as it is; None where there is none, or a worker decides."""
    return None if worker_type in _NO_PROVIDERS else worker_type


def _begun(row: RunRow, step: StepStarted | CallStarted) -> RunRow:
    if isinstance(step, CallStarted):
        return replace(row, children=row.children + 1)
    return row if step.session is None else replace(row, provider=step.session.provider)


def _rests(last: Event | None) -> bool:
    """Whether nothing can happen until somebody outside acts: the last that happened is that they were asked.

    After anything else another branch may be between two steps, which no log tells; so somebody has to look.
    """
    return last is not None and isinstance(last.payload, ToolCall) and last.payload.awaits is not None


def _opened(row: RunRow, events: Sequence[Event]) -> RunRow:
    """With what the first event tells of its run, also where it is none that we understand."""
    if row.started_at or not events:
        return row
    run_id = row.id or events[0].run_id
    parent, at = events[0].parent_run_id, events[0].timestamp
    return replace(row, id=run_id, parent_run_id=parent, root_run_id=run_id, started_at=at)


def _started(row: RunRow, event: Event, started: RunStarted, *, waited: bool) -> dict[str, Any]:
    change: dict[str, Any] = {"attempt": _storable(started.attempt), "host": started.host}
    if row.attempt:
        return change | {"interruptions": row.interruptions + (not waited)}
    return change | _first_facts(row, started)


def _first_facts(row: RunRow, started: RunStarted) -> dict[str, Any]:
    return {
        "root_run_id": started.root_run_id or row.id,
        "name": started.name,
        "kind": started.kind,
        "worker_type": started.worker_type or "builtin",
        "provider": _provider_of(started.worker_type),
        "agent_id": started.agent_id or started.name,
        "channel_id": started.channel_id,
        "channel_name": started.channel_name,
        "task": started.task or started.name,
        "queued_at": started.queued_at,
    }


def _completed(event: Event, ended: RunCompleted) -> dict[str, Any]:
    return {
        "status": ended.status,
        "result": None if ended.result is None else as_text(ended.result),
        "error_code": ended.error and ended.error.code,
        "error_message": ended.error and ended.error.message,
        "error_hint": (ended.error.hint or None) if ended.error else None,
        "completed_at": event.timestamp,
        "duration_ms": ended.duration_ms if ended.duration_ms is None else _storable(ended.duration_ms),
    }


def _storable(number: int) -> int:
    """A number from a file, of a size that any database takes."""
    return max(-_MOST, min(number, _MOST))
