"""Logs that are there before the server is: the recorded ones of agents, and such as nobody records in a test's time."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from typing import Any

from tests.sample_events import GOLDEN, RUN_ID

from shopfloor.log import (
    AssistantMessage,
    Block,
    Cost,
    Line,
    Payload,
    RunCompleted,
    RunStarted,
    StepCompleted,
    StepStarted,
    TextBlock,
    ToolCall,
    ToolResult,
    Usage,
    UserMessage,
    Verifier,
    encode,
    format_timestamp,
    new_run_id,
)
from shopfloor.record import Storage

STEP = "agent"
HOUR_MS = 3_600_000
USAGE = Usage(input=12_000, output=340, cache_read=9_000)
COST = Cost(usd=0.0421, source="agent")


def write_log(storage: Storage, payloads: Iterable[Payload], *, step_ms: int = 100, **envelope: Any) -> str:
    """A run that is over: what it says, so many milliseconds apart, an hour ago. `child_run_id` goes to calls."""
    run_id = envelope.pop("run_id", None) or new_run_id()
    child = envelope.pop("child_run_id", None)
    began = int(time.time() * 1000) - HOUR_MS
    storage.transcripts.mkdir(parents=True, exist_ok=True)
    with storage.log_path(run_id).open("wb") as file:
        for seq, payload in enumerate(payloads, 1):
            kind = payload.event_type
            called = {"child_run_id": child} if child and kind.startswith("step.call_workflow") else {}
            line = Line(
                seq=seq,
                run_id=run_id,
                type=kind,
                path="" if kind.startswith("run.") else f"{STEP}.call" if called else STEP,
                iteration=0,
                timestamp=format_timestamp(began + seq * step_ms),
                payload=payload,
                **called,
                **envelope,
            )
            file.write(encode(line) + b"\n")
    return run_id


def agent_run(
    task: str, *said: Payload, result: Any = "It is done.", owner: str = "agent", **ended: Any
) -> Iterator[Payload]:
    """A whole run of an agent around what it says and does."""
    yield RunStarted(
        name="claude-code",
        kind="agent",
        attempt=1,
        host="local-written",
        task=task,
        worker_type="claude-code",
        agent_id=owner,
        channel_id="discord:1:2",
        channel_name="#general",
    )
    yield StepStarted(name=STEP, kind="agent", try_=1)
    yield UserMessage(blocks=[TextBlock(fidelity="router", text=task)])
    yield from said
    yield StepCompleted(name=STEP, kind="agent", try_=1, usage=USAGE, cost=COST)
    outcome = {"status": "completed", "result": result, "usage": USAGE, "cost": COST, **ended}
    yield RunCompleted(name="claude-code", kind="agent", **outcome)


FIRST_OWN_SEQ = 4
"""The `seq` of the first event of `agent_run` that is its own."""


def assistant_message(*blocks: Block) -> AssistantMessage:
    return AssistantMessage(message_id="m", model="claude-test-1", blocks=list(blocks))


def text(words: str) -> AssistantMessage:
    return assistant_message(TextBlock(fidelity="agent_emitted", text=words))


def call(name: str, call_id: str, **given: Any) -> ToolCall:
    return ToolCall(name=name, call_id=call_id, input=given, output=None, fidelity="agent_emitted")


def tool_result(name: str, call_id: str, output: Any, **more: Any) -> ToolResult:
    more = {"duration_ms": 420, **more}
    return ToolResult(name=name, call_id=call_id, input=None, output=output, fidelity="agent_emitted", **more)


def write_golden_log(storage: Storage, name: str) -> str:
    """A recorded log and those of its sub-runs, each in a file of its own; the id of the first."""
    whole = (GOLDEN / f"{name}.jsonl").read_text(encoding="utf-8").replace(RUN_ID, new_run_id())
    runs: dict[str, list[str]] = {}
    for line in whole.splitlines(keepends=True):
        runs.setdefault(json.loads(line)["run_id"], []).append(line)
    storage.transcripts.mkdir(parents=True, exist_ok=True)
    for run_id, lines in runs.items():
        storage.log_path(run_id).write_text("".join(lines), encoding="utf-8")
    return next(iter(runs))


def problems_of(storage: Storage, run_id: str) -> list[Any]:
    """What the rules of the format have against a log."""
    verifier = Verifier(run_id)
    lines = storage.log_path(run_id).read_bytes().splitlines(keepends=True)
    return [problem for line in lines for problem in verifier.line(line)]
