"""Streams that end anywhere, as if the agent was killed: all text that was streamed by then is on record, once."""

from __future__ import annotations

import json
from collections import defaultdict

import pytest
from tests.providers.streams import CLOCK, Stream, ids, streams

from shopfloor.adapters.providers.usage import price
from shopfloor.engine import transcribe
from shopfloor.ports import AgentExit, AgentReport, MessageDelta

KILLED = AgentExit(signal="SIGKILL")
CUTS = 40
"""The number of positions to cut a stream at, if it has more lines than that."""


def has_deltas(stream: Stream) -> bool:
    return any(isinstance(report, MessageDelta) for report in stream.normalizer().feed(stream.data))


STREAMS_WITH_DELTAS = [stream for stream in streams() if has_deltas(stream)]


def streamed_texts(reports: list[AgentReport]) -> list[str]:
    """Return the streamed text and thinking of each block."""
    texts: dict[tuple[str, str, int], list[str]] = defaultdict(list)
    for report in reports:
        if isinstance(report, MessageDelta) and report.kind != "tool_input":
            texts[report.agent, report.message_id, report.block].append(report.text)
    return ["".join(parts) for parts in texts.values()]


def recorded(stream: Stream, data: bytes) -> tuple[list[str], list[str]]:
    """Return the text and thinking of complete messages, and of interrupted ones."""
    lines = transcribe(stream.provider, stream.normalizer(), [data], prices=price, ended=KILLED, clock=lambda: CLOCK)
    texts: tuple[list[str], list[str]] = ([], [])
    for event in map(json.loads, lines):
        if event["type"] == "message.assistant":
            blocks = [block for block in event["payload"]["blocks"] if block["type"] in ("text", "thinking")]
            interrupted = event["payload"].get("stop_reason") == "interrupted"
            texts[interrupted].extend(block[block["type"]] for block in blocks)
    return texts


def test_every_agent_with_deltas_has_a_stream() -> None:
    assert {stream.provider for stream in STREAMS_WITH_DELTAS} >= {"claude-code", "copilot", "gemini"}


@pytest.mark.req("TR-56")
@pytest.mark.parametrize("stream", STREAMS_WITH_DELTAS, ids=ids)
def test_text_that_was_streamed_before_an_interruption_is_on_record(stream: Stream) -> None:
    lines = stream.data.splitlines(keepends=True)
    for cut in {*range(1, len(lines), max(1, len(lines) // CUTS)), len(lines)}:
        data = b"".join(lines[:cut])
        streamed = streamed_texts(stream.normalizer().feed(data))
        complete, interrupted = recorded(stream, data)
        for text in streamed:
            assert any(one.startswith(text) for one in [*complete, *interrupted]), (cut, text)
        for text in interrupted:
            assert streamed.count(text) > sum(one.startswith(text) for one in complete), (cut, text)
