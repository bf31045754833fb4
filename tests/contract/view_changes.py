"""Runs as events, and what their views make of them: the changes that a store is given."""

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
from shopfloor.views import RunRow, SearchState, Timeline, archive, row_fold, search_fold, timeline_fold

DAY_MS = 24 * 3600 * 1000


def at(second: int) -> str:
    """A moment that all runs here agree on: that many seconds into the first day."""
    return format_timestamp(DAY_MS + second * 1000)


def golden(name: str) -> list[Event]:
    """A run of the golden files, under an id of its own."""
    lines = (GOLDEN / f"{name}.jsonl").read_bytes().splitlines()
    run_id = new_run_id()
    return [msgspec.structs.replace(decode(line), run_id=run_id) for line in lines]


def assistant_message(text: str) -> AssistantMessage:
    return AssistantMessage(blocks=[TextBlock(fidelity="router", text=text)])


def user_message(text: str) -> UserMessage:
    return UserMessage(blocks=[TextBlock(fidelity="router", text=text)])


def tool_call(call_id: str, given: Any, **more: Any) -> ToolCall:
    return ToolCall(name="Bash", call_id=call_id, input=given, output=None, fidelity="agent_emitted", **more)


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
    """A run that begins at that second, with an event every millisecond; without a status it goes on."""
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
    """Events with a row each in the timeline, and with nothing to archive."""
    return [StepStarted(name=f"step {number}", kind="command", try_=1) for number in range(count)]


class Fold:
    """The views of one run, carried on as its events come."""

    def __init__(self, row: RunRow | None = None, state: bytes = b"") -> None:
        self.row = row or RunRow()
        known = (
            msgspec.msgpack.decode(state, type=tuple[Timeline, SearchState]) if state else (Timeline(), SearchState())
        )
        self.state, self.search = known
        self._events: list[Event] = []

    def take(self, events: Sequence[Event]) -> ViewUpdate:
        """What these events, the next of the run, do to its views. At the outcome it has seen all of them."""
        self.state, rows = timeline_fold(self.state, events, self.row.waits)
        self.row = row_fold(self.row, events)
        self.search, found = search_fold(self.search, self.row, events)
        self._events += events
        entries = archive(self._events) if self.row.is_ended else []
        return ViewUpdate(
            row=self.row,
            state=msgspec.msgpack.encode((self.state, self.search)),
            timeline=rows,
            archive=gzip.compress(msgspec.json.encode(entries), mtime=0) if entries else None,
            search=found,
            search_stopped_at=self.search.stopped_at,
        )


def single_change(events: Sequence[Event]) -> ViewUpdate:
    """All of the run at once."""
    return Fold().take(events)


def batched_changes(events: Sequence[Event], size: int = 1) -> list[ViewUpdate]:
    """The run as it comes in, so many events at a time."""
    fold = Fold()
    return [fold.take(events[start : start + size]) for start in range(0, len(events), size)]
