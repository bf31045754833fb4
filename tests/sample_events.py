"""Sample events, and helpers for logs that many tests use."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from shopfloor.log import (
    AssistantMessage,
    Awaits,
    BasedOn,
    Block,
    CallCompleted,
    CallStarted,
    ClientInfo,
    CommandBlock,
    Cost,
    EndedProcess,
    Event,
    FailureDecision,
    FileChange,
    Initialization,
    Limit,
    Line,
    Note,
    Payload,
    Process,
    Requirements,
    RuleViolation,
    RunCompleted,
    RunError,
    RunStarted,
    Session,
    Status,
    StepCompleted,
    StepStarted,
    StreamBlock,
    TextBlock,
    ThinkingBlock,
    ToolCall,
    ToolResult,
    ToolResultBlock,
    ToolUseBlock,
    Usage,
    UserMessage,
    Verifier,
    encode,
)

ROOT = Path(__file__).parent.parent
GOLDEN = ROOT / "tests" / "golden"
GOLDEN_FILES = sorted(GOLDEN.glob("*.jsonl"))

RUN_ID = "5f3a1c9e-6d0b-4c55-9a6e-2f8d1b7c4e10"
PARENT_ID = "9c2d7a41-3b5e-4f60-8d17-6a0e4c9b2f58"
CHILD_ID = "0b7e55d2-91c4-4a34-8f0e-7d2a6c1e9b33"
TIMESTAMP = "2026-11-15T10:30:00.000Z"

BLOCKS: dict[str, Block] = {
    "text": TextBlock(fidelity="router", text="out\n", stream="stdout", raw="b3V0Cg=="),
    "thinking": ThinkingBlock(fidelity="agent_emitted", thinking="hm"),
    "tool_use": ToolUseBlock(fidelity="agent_emitted", tool_name="Bash", tool_id="t1", tool_input={"command": "ls"}),
    "tool_result": ToolResultBlock(fidelity="agent_emitted", tool_id="t1", tool_content=[{"text": "a"}]),
    "command": CommandBlock(fidelity="router", command='make "${VALUE_NAME}"', variables={"VALUE_NAME": "all"}),
    "stream": StreamBlock(fidelity="agent_emitted", chunk="{oops", unparsed=True, raw="e29vcHM="),
}
"""One of each block, with every field filled."""

_PROCESS = Process(pid=7, command="/bin/sh", args=["-c", "make"], cwd="/tmp")
_USAGE = Usage(input=1, output=2, cache_read=3, cache_write=4, reasoning=5)
_SESSION = Session(
    provider="codex",
    access_mode="api",
    session_id="s",
    process=_PROCESS,
    capabilities={"resume": True},
    resumed=True,
    usage=_USAGE,
)
_COST = Cost(usd=0.5, source="prices", prices="2026-11")
_LIMIT = Limit(kind="tokens", status="warning", current=0.8, max=1.0, reset_at=TIMESTAMP, window="five_hour")
_READY = Initialization(
    session_id="s",
    model="opus",
    version="2.1",
    cwd="/tmp",
    tools=["Bash"],
    permission_mode="default",
    context_tokens=9,
    context_follows=True,
)
_NOTE = Note(
    kind="retry",
    message="later",
    code="rate_limit_error",
    status=429,
    try_=1,
    tries=5,
    retry_after=1.5,
    limit=_LIMIT,
    ready=_READY,
)
_FILE = FileChange(path="/tmp/a", action="modify", lines_added=1, lines_removed=2, diff="@@")
_STEP: dict[str, Any] = {"name": "build", "kind": "command", "clock": "reader", "try_": 1}
_ENDED: dict[str, Any] = _STEP | {
    "error": "exit code 1",
    "error_code": "execution_error",
    "error_hint": "try again",
    "traceback": "ValueError: no",
    "retryable": True,
    "decision": FailureDecision(action="retry", try_=2, delay_seconds=1.5, provider="codex"),
    "result": {"exit_code": 1},
    "usage": _USAGE,
    "cost": _COST,
    "sub_usage": _USAGE,
    "sub_cost": _COST,
    "covers": "own_and_sub_agents",
    "session": _SESSION,
    "rate_limits": [_LIMIT],
    "ended_processes": [EndedProcess(pid=8, command="sleep", args=["60"], signal="SIGKILL")],
    "duration_ms": 9,
}

PAYLOADS: dict[str, Payload] = {
    "run.started": RunStarted(
        name="build",
        kind="worker",
        clock="reader",
        attempt=1,
        host="local-1",
        task="build it",
        input={"a": [1, 2.5, None, True, "x"]},
        worker_type="builtin",
        agent_id="build",
        channel_id="cli",
        channel_name="cli",
        client=ClientInfo(name="claude-code", version="2.1.0", session_id="s1"),
        root_run_id=RUN_ID,
        queued_at=TIMESTAMP,
        parent={"run_id": PARENT_ID},
        definition={"steps": []},
        definition_hash="sha256:00",
        idempotency_key="k",
        origin="/tmp/workers/build",
        cwd="/tmp",
        client_wait_seconds=60.0,
        approve=["Bash(git push*)"],
        approve_timeout=60.0,
        based_on=BasedOn(run_id=CHILD_ID, kind="fork", seq=4, events=3),
        priority=5,
        requires=Requirements(labels={"gpu": "yes"}, providers=["codex"]),
        labels={"gpu": "yes"},
        executor="caller",
        masked=True,
        import_source={"path": "x"},
        format=1,
    ),
    "run.completed": RunCompleted(
        name="build",
        kind="worker",
        status="failed",
        error=RunError(
            code="command_failed",
            message="exit code 1",
            retryable=True,
            retry_after=2.5,
            hint="look at it",
            traceback="ValueError: no",
        ),
        result="out",
        usage=_USAGE,
        cost=_COST,
        sub_usage=_USAGE,
        sub_cost=_COST,
        covers="own",
        clock="reader",
        duration_ms=10,
    ),
    "step.started": StepStarted(**_STEP, process=_PROCESS, session=_SESSION, branches=["left", "right"]),
    "step.completed": StepCompleted(**_ENDED),
    "step.call_workflow.started": CallStarted(
        name="titles", kind="call_workflow", clock="reader", try_=2, worker="hello", input={"name": "Ada"}
    ),
    "step.call_workflow.completed": CallCompleted(**_ENDED | {"name": "titles", "kind": "call_workflow", "try_": 2}),
    "message.user": UserMessage(
        system_prompt="be kind",
        synthetic=True,
        session=_SESSION,
        clock="reader",
        truncated=True,
        blocks=list(BLOCKS.values()),
    ),
    "message.assistant": AssistantMessage(
        message_id="m",
        session_id="s",
        model="opus",
        provider="anthropic",
        usage=_USAGE,
        cost=_COST,
        stop_reason="end_turn",
        synthetic=True,
        note=_NOTE,
        clock="reader",
        truncated=True,
        blocks=list(BLOCKS.values()),
    ),
    "tool.call": ToolCall(
        name="ask",
        call_id="c",
        input={"q": "?"},
        output=None,
        fidelity="router",
        awaits=Awaits(kind="question", until=TIMESTAMP, cancels=True),
        clock="reader",
        truncated=True,
    ),
    "tool.result": ToolResult(
        name="ask",
        call_id="c",
        input=None,
        output="42",
        error="late",
        duration_ms=3,
        exit_code=1,
        files=[_FILE],
        clock="reader",
        truncated=True,
        fidelity="agent_emitted",
    ),
}
"""One of each event's payload, with every field filled."""


def started(attempt: int = 1) -> RunStarted:
    return RunStarted(name="build", kind="worker", attempt=attempt, host="local-1")


def assistant_message(text: str) -> AssistantMessage:
    return AssistantMessage(blocks=[TextBlock(fidelity="router", text=text)])


def tool_call(value: Any) -> ToolCall:
    """Return a call with any value as its input."""
    return ToolCall(name="t", call_id="c", input=value, output=None, fidelity="router")


def completed(status: Status = "completed") -> RunCompleted:
    return RunCompleted(name="build", kind="worker", status=status)


def location_of(payload: Payload) -> dict[str, Any]:
    """Return the path of such an event, and its sub-run if it has one."""
    if isinstance(payload, RunStarted | RunCompleted):
        return {"path": ""}
    if isinstance(payload, CallStarted | CallCompleted):
        return {"path": "build", "child_run_id": CHILD_ID}
    return {"path": "build"}


def line_of(payload: Payload, seq: int = 1, **envelope: Any) -> Line:
    given = {"run_id": RUN_ID, "iteration": 0, "timestamp": TIMESTAMP} | location_of(payload) | envelope
    return Line(seq=seq, type=payload.event_type, payload=payload, **given)


def line_from_event(event: Event) -> Line:
    """Return an event that was read as a line to write."""
    envelope = {name: getattr(event, name) for name in Line.__struct_fields__}
    return Line(**envelope)


def fields_of(payload: Payload, seq: int = 1, **envelope: Any) -> dict[str, Any]:
    """Return an event as plain data, for tests that make it invalid."""
    return msgspec.json.decode(encode(line_of(payload, seq, **envelope)))


def raw_log(texts: Iterable[str]) -> list[bytes]:
    """Return the lines of a log with these messages: seq 1 is `run.started`, seq 2 the first text."""
    payloads: list[Payload] = [started(), *(assistant_message(text) for text in texts)]
    return [encode(line_of(payload, seq)) + b"\n" for seq, payload in enumerate(payloads, 1)]


def rule_violations(path: Path) -> list[RuleViolation]:
    """Return the rule violations that the verifier finds in a file."""
    verifier = Verifier(path.stem)
    lines = path.read_bytes().split(b"\n")
    rest = lines.pop()
    raw = [line + b"\n" for line in lines] + ([rest] if rest else [])
    return [broken for line in raw for broken in verifier.line(line)]


def run_python(code: str, *args: object, traced: bool = True) -> str:
    """Run code in another Python process and return its output."""
    command = [sys.executable, "-c", code, *map(str, args)]
    env = {name: value for name, value in os.environ.items() if traced or not name.startswith("COVERAGE")}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=ROOT, env=env)
    assert done.returncode == 0, done.stderr
    return done.stdout
