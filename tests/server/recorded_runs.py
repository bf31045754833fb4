"""Recorded runs of every kind, for servers to read."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from shopfloor.log import (
    AssistantMessage,
    Awaits,
    CallCompleted,
    CallStarted,
    Cost,
    Payload,
    RunCompleted,
    RunError,
    RunStarted,
    StepCompleted,
    StepStarted,
    TextBlock,
    ToolCall,
    ToolResult,
    Usage,
    UserMessage,
    new_run_id,
)
from shopfloor.record import Recorder, Storage

CHANNEL = "discord:123:456"
USAGE = Usage(input=100, output=20, cache_read=3)


class RecordedRuns(msgspec.Struct, kw_only=True):
    """The ids of recorded runs by kind, oldest first. The logs of `live` are still open."""

    done: str
    failed: str
    silent: str
    cancelled: str
    parent: str
    child: str
    waiting: str
    running: str
    live: list[Recorder]

    def newest_first(self) -> list[str]:
        names = ("done", "failed", "silent", "cancelled", "parent", "child", "waiting", "running")
        return [getattr(self, name) for name in reversed(names)]

    def close(self) -> None:
        for recorder in self.live:
            recorder.close()


def user(text: str) -> UserMessage:
    return UserMessage(blocks=[TextBlock(fidelity="router", text=text)])


def assistant(text: str) -> AssistantMessage:
    return AssistantMessage(blocks=[TextBlock(fidelity="agent_emitted", text=text)])


def run_started(name: str = "tester", task: str = "run the test suite", **fields: object) -> RunStarted:
    return RunStarted(name=name, kind="worker", attempt=1, host="local-1", task=task, **fields)  # type: ignore[arg-type]


def run_completed(status: str = "completed", **fields: object) -> RunCompleted:
    return RunCompleted(name="tester", kind="worker", status=status, duration_ms=1234, **fields)  # type: ignore[arg-type]


def open_announced_log(storage: Storage, run_id: str, *, parent: str | None = None) -> Recorder:
    """Create the log of a new run, announce the run to the server, and return the open log."""
    storage.announce(run_id)
    return Recorder(storage.log_path(run_id), run_id, parent_run_id=parent)


@contextmanager
def open_recorder(storage: Storage, run_id: str | None = None) -> Iterator[Recorder]:
    recorder = open_announced_log(storage, run_id or new_run_id())
    try:
        yield recorder
    finally:
        recorder.close()


def write(recorder: Recorder, *payloads: Payload) -> None:
    for payload in payloads:
        run_level = isinstance(payload, RunStarted | RunCompleted)
        recorder.append(payload, path="" if run_level else "test")


def record(storage: Storage, *payloads: Payload, parent: str | None = None) -> str:
    """Record a run with these events and return its id."""
    with open_announced_log(storage, new_run_id(), parent=parent) as recorder:
        write(recorder, *payloads)
    # The next run starts at a later millisecond, so that the order of runs is unique.
    time.sleep(0.002)
    return recorder.run_id


def record_runs(storage: Storage) -> RecordedRuns:
    done = record(
        storage,
        run_started(worker_type="claude-code", agent_id="ada", channel_id=CHANNEL, channel_name="#general"),
        StepStarted(name="test", kind="agent", try_=1),
        user("Run the test suite in ~/app"),
        ToolCall(name="shell", call_id="shell:0", input={"command": "pytest"}, output=None, fidelity="agent_emitted"),
        ToolResult(
            name="shell",
            call_id="shell:0",
            input=None,
            output="12 passed, 0 failed",
            fidelity="agent_emitted",
            duration_ms=4200,
        ),
        assistant("All 12 tests passed, says the <b>zebra</b>."),
        StepCompleted(name="test", kind="agent", try_=1, usage=USAGE, cost=Cost(usd=0.25, source="agent")),
        run_completed(result="12 passed, 0 failed"),
    )
    failed = record(
        storage,
        run_started(task="check the deployment", agent_id="bob", channel_id="cli", channel_name="cli"),
        user("Check it"),
        run_completed("failed", error=RunError(code="command_failed", message="exit code 1", retryable=False)),
    )
    silent = record(storage, run_started("indexer", "index", agent_id="ada", channel_id=CHANNEL), run_completed())
    cancelled = record(storage, run_started(agent_id="bob"), user("Never mind"), run_completed("cancelled"))
    child = new_run_id()
    parent = _with_child(storage, child)
    waiting = open_announced_log(storage, new_run_id())
    question = ToolCall(
        name="ask", call_id="q", input={"q": "?"}, output=None, fidelity="router", awaits=Awaits(kind="question")
    )
    write(waiting, run_started(task="ask first", agent_id="bob"), user("Ask"), question)
    time.sleep(0.002)
    running = open_announced_log(storage, new_run_id())
    write(running, run_started(task="still at it", agent_id="ada"), user("Go on"), assistant("I do"))
    return RecordedRuns(
        done=done,
        failed=failed,
        silent=silent,
        cancelled=cancelled,
        parent=parent,
        child=child,
        waiting=waiting.run_id,
        running=running.run_id,
        live=[waiting, running],
    )


def _with_child(storage: Storage, child: str) -> str:
    with open_announced_log(storage, new_run_id()) as recorder:
        write(recorder, run_started("planner", "plan", agent_id="bob"))
        time.sleep(0.002)
        call: dict[str, Any] = {"path": "call", "child_run_id": child}
        recorder.append(CallStarted(name="call", kind="call_workflow", try_=1, worker="tester"), **call)
        with open_announced_log(storage, child, parent=recorder.run_id) as sub:
            write(sub, run_started(agent_id="bob", root_run_id=recorder.run_id), user("Sub"), run_completed())
        recorder.append(CallCompleted(name="call", kind="call_workflow", try_=1), **call)
        write(recorder, run_completed())
    time.sleep(0.002)
    return recorder.run_id
