"""Logs that are written before the server starts: recorded logs of agents, and generated ones that would take too long to record."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from typing import Any

from tests.sample_events import GOLDEN, RUN_ID

from shopfloor.log import (
    AssistantMessage,
    Block,
    ClientInfo,
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
    """Write the log of an ended run that started an hour ago, with events `step_ms` apart. Calls get `child_run_id`."""
    run_id = envelope.pop("run_id", None) or new_run_id()
    child = envelope.pop("child_run_id", None)
    started_ms = int(time.time() * 1000) - HOUR_MS
    storage.transcripts.mkdir(parents=True, exist_ok=True)
    with storage.log_path(run_id).open("wb") as file:
        for seq, payload in enumerate(payloads, 1):
            kind = payload.event_type
            call_fields = {"child_run_id": child} if child and kind.startswith("step.call_workflow") else {}
            line = Line(
                seq=seq,
                run_id=run_id,
                type=kind,
                path="" if kind.startswith("run.") else f"{STEP}.call" if call_fields else STEP,
                iteration=0,
                timestamp=format_timestamp(started_ms + seq * step_ms),
                payload=payload,
                **call_fields,
                **envelope,
            )
            file.write(encode(line) + b"\n")
    return run_id


def agent_run(
    task: str, *payloads: Payload, result: Any = "It is done.", owner: str = "agent", **outcome_fields: Any
) -> Iterator[Payload]:
    """Yield the payloads of a complete agent run around its own events."""
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
        client=ClientInfo(name="gemini-cli", version="0.61.0", session_id="s1"),
    )
    yield StepStarted(name=STEP, kind="agent", try_=1)
    yield UserMessage(blocks=[TextBlock(fidelity="router", text=task)])
    yield from payloads
    yield StepCompleted(name=STEP, kind="agent", try_=1, usage=USAGE, cost=COST)
    outcome = {"status": "completed", "result": result, "usage": USAGE, "cost": COST, **outcome_fields}
    yield RunCompleted(name="claude-code", kind="agent", **outcome)


FIRST_OWN_SEQ = 4
"""The `seq` of the first payload that is passed to `agent_run`."""


def assistant_message(*blocks: Block) -> AssistantMessage:
    return AssistantMessage(message_id="m", model="claude-test-1", blocks=list(blocks))


def text(content: str) -> AssistantMessage:
    return assistant_message(TextBlock(fidelity="agent_emitted", text=content))


def call(name: str, call_id: str, **arguments: Any) -> ToolCall:
    return ToolCall(name=name, call_id=call_id, input=arguments, output=None, fidelity="agent_emitted")


def tool_result(name: str, call_id: str, output: Any, **fields: Any) -> ToolResult:
    fields = {"duration_ms": 420, **fields}
    return ToolResult(name=name, call_id=call_id, input=None, output=output, fidelity="agent_emitted", **fields)


def write_golden_log(storage: Storage, name: str) -> str:
    """Write a recorded log and the logs of its sub-runs, and return the id of the first run."""
    log = (GOLDEN / f"{name}.jsonl").read_text(encoding="utf-8").replace(RUN_ID, new_run_id())
    runs: dict[str, list[str]] = {}
    for line in log.splitlines(keepends=True):
        runs.setdefault(json.loads(line)["run_id"], []).append(line)
    storage.transcripts.mkdir(parents=True, exist_ok=True)
    for run_id, lines in runs.items():
        storage.log_path(run_id).write_text("".join(lines), encoding="utf-8")
    return next(iter(runs))


def problems_of(storage: Storage, run_id: str) -> list[Any]:
    """Return the violations of the log format that the verifier finds."""
    verifier = Verifier(run_id)
    lines = storage.log_path(run_id).read_bytes().splitlines(keepends=True)
    return [problem for line in lines for problem in verifier.line(line)]
