"""The event that is measured: an agent's message before a tool call. Its log line has about 604 bytes."""

from __future__ import annotations

import os
from pathlib import Path

from shopfloor.log import (
    AssistantMessage,
    Line,
    RunStarted,
    TextBlock,
    ToolUseBlock,
    encode,
    new_run_id,
)
from shopfloor.record import Recorder

LINE_BYTES = 604
STEP = "build.implement"
_PROSE = (
    'I looked at the failing test first. `test_resume` expects "seq" to go on after a crash,\n'
    "but the recorder starts again at 1 because the tail is read before it is repaired. "
)
_CHUNK_LINES = 10_000


def started() -> RunStarted:
    return RunStarted(name="bench", kind="agent", attempt=1, host="bench", format=1)


def message(text: str) -> AssistantMessage:
    return AssistantMessage(
        message_id="msg_01XFDUDYJgAACzvnptvVoYEL",
        model="sample-model-1",
        blocks=[
            TextBlock(fidelity="agent_emitted", text=text),
            ToolUseBlock(
                fidelity="agent_emitted",
                tool_name="edit",
                tool_id="toolu_01A09q90qw90lq917835lq9",
                tool_input={"file": "src/recorder.py", "line": 118},
            ),
        ],
    )


def event() -> AssistantMessage:
    """Return the event, with a text that makes its line `LINE_BYTES` long."""
    text = ""
    while (missing := LINE_BYTES - len(line(new_run_id(), message(text)))) > 0:
        text = (_PROSE * 9)[: len(text) + max(1, missing - 4)]
    return message(text)


def line(run_id: str, payload: AssistantMessage, seq: int = 100_000) -> bytes:
    """Return the event as a log line, with its line feed."""
    return (
        encode(
            Line(
                seq=seq,
                run_id=run_id,
                type=payload.event_type,
                path=STEP,
                iteration=0,
                timestamp="2026-01-31T12:00:00.000Z",
                payload=payload,
            )
        )
        + b"\n"
    )


def write_log(path: Path, run_id: str, events: int) -> None:
    """Write a log of `events` events without the recorder: the same lines, thousands per write."""
    with Recorder(path, run_id, new=True) as recorder:
        recorder.append(started())
    rest = line(run_id, event(), seq=1).removeprefix(b'{"seq":1')
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND)
    try:
        for first in range(2, events + 1, _CHUNK_LINES):
            last = min(events, first + _CHUNK_LINES - 1)
            chunk = memoryview(b"".join(b'{"seq":%d%b' % (seq, rest) for seq in range(first, last + 1)))
            while chunk:
                chunk = chunk[os.write(descriptor, chunk) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
