"""Runs as events, and the view updates that they result in."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from typing import Any

import msgspec
from tests.sample_events import GOLDEN

from shopfloor.log import (
    AssistantMessage,
    Event,
    Payload,
    RunCompleted,
    RunError,
    RunStarted,
    Status,
    StepStarted,
    TextBlock,
    ToolCall,
    ToolResult,
    UserMessage,
    decode,
    format_timestamp,
    new_run_id,
)
from shopfloor.ports import ViewUpdate
from shopfloor.views import (
    RunRow,
    SearchState,
    StatsState,
    Timeline,
    archive,
    row_fold,
    search_fold,
    stats_fold,
    timeline_fold,
)

DAY_MS = 24 * 3600 * 1000


def at(second: int) -> str:
    """Return the timestamp that many seconds into the first day."""
    return format_timestamp(DAY_MS + second * 1000)


def golden(name: str) -> list[Event]:
    """Return the events of a golden file, with a new run id."""
    lines = (GOLDEN / f"{name}.jsonl").read_bytes().splitlines()
    run_id = new_run_id()
    return [msgspec.structs.replace(decode(line), run_id=run_id) for line in lines]


def assistant_message(text: str) -> AssistantMessage:
    return AssistantMessage(blocks=[TextBlock(fidelity="router", text=text)])


def user_message(text: str) -> UserMessage:
    return UserMessage(blocks=[TextBlock(fidelity="router", text=text)])


def tool_call(call_id: str, tool_input: Any, **more: Any) -> ToolCall:
    return ToolCall(name="Bash", call_id=call_id, input=tool_input, output=None, fidelity="agent_emitted", **more)


def tool_result(call_id: str, output: Any) -> ToolResult:
    return ToolResult(name="Bash", call_id=call_id, input=None, output=output, fidelity="agent_emitted")


def run(
    task: str = "build it",
    *inside: Payload,
    status: Status | None = "completed",
    result: Any = None,
    error: RunError | None = None,
    second: int = 0,
    run_id: str | None = None,
    parent: str | None = None,
    name: str = "build",
    **more: Any,
) -> list[Event]:
    """Return a run that starts at that second, with an event every millisecond; without a status it stays open."""
    payloads: list[Payload] = [
        RunStarted(name=name, kind="worker", attempt=1, host="local-1", task=task, **more),
        *inside,
    ]
    if status is not None:
        payloads.append(RunCompleted(name=name, kind="worker", status=status, result=result, error=error))
    run_id = run_id or new_run_id()
    return [
        Event(
            seq=seq,
            run_id=run_id,
            parent_run_id=parent,
            type=payload.event_type,
            path="" if payload.event_type.startswith("run.") else "s",
            iteration=0,
            timestamp=format_timestamp(DAY_MS + second * 1000 + seq - 1),
            payload=payload,
        )
        for seq, payload in enumerate(payloads, 1)
    ]


def steps(count: int) -> list[StepStarted]:
    """Return events with one timeline item each, and with nothing to archive."""
    return [StepStarted(name=f"step {number}", kind="command", try_=1) for number in range(count)]


class ViewBuilder:
    """The views of one run, updated by its events."""

    def __init__(self, row: RunRow | None = None, state: bytes = b"") -> None:
        self.row = row or RunRow()
        new = (Timeline(), SearchState(), StatsState())
        known = msgspec.msgpack.decode(state, type=tuple[Timeline, SearchState, StatsState]) if state else new
        self.state, self.search, self.stats = known
        self._events: list[Event] = []

    def take(self, events: Sequence[Event]) -> ViewUpdate:
        """Return the update for the next events of the run. At the outcome, all events have been passed."""
        self.state, rows = timeline_fold(self.state, events, self.row.waits)
        self.row = row_fold(self.row, events)
        self.search, found = search_fold(self.search, self.row, events)
        self.stats, stats = stats_fold(self.stats, events)
        self._events += events
        entries = archive(self._events) if self.row.is_ended else []
        return ViewUpdate(
            row=self.row,
            state=msgspec.msgpack.encode((self.state, self.search, self.stats)),
            timeline=rows,
            archive=gzip.compress(msgspec.json.encode(entries), mtime=0) if entries else None,
            search=found,
            search_stopped_at=self.search.stopped_at,
            stats=stats,
        )


def single_change(events: Sequence[Event]) -> ViewUpdate:
    """Return one update for the whole run."""
    return ViewBuilder().take(events)


def batched_changes(events: Sequence[Event], size: int = 1) -> list[ViewUpdate]:
    """Return the updates of a run for batches of `size` events."""
    builder = ViewBuilder()
    return [builder.take(events[start : start + size]) for start in range(0, len(events), size)]
