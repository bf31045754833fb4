"""A stream that ends anywhere, as when the agent was killed: all that it had typed by then is on record, once."""

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
"""How many cuts of a stream are tried where it has more lines than that."""


def typing(stream: Stream) -> bool:
    return any(isinstance(report, MessageDelta) for report in stream.normalizer().feed(stream.data))


TYPING = [stream for stream in streams() if typing(stream)]


def typed(reports: list[AgentReport]) -> list[str]:
    """The texts and thoughts as far as they were typed, by message and block."""
    texts: dict[tuple[str, str, int], list[str]] = defaultdict(list)
    for report in reports:
        if isinstance(report, MessageDelta) and report.kind != "tool_input":
            texts[report.agent, report.message_id, report.block].append(report.text)
    return ["".join(parts) for parts in texts.values()]


def recorded(stream: Stream, data: bytes) -> tuple[list[str], list[str]]:
    """The texts and thoughts of messages that are whole, and of those that were cut off."""
    lines = transcribe(stream.provider, stream.normalizer(), [data], prices=price, ended=KILLED, clock=lambda: CLOCK)
    texts: tuple[list[str], list[str]] = ([], [])
    for event in map(json.loads, lines):
        if event["type"] == "message.assistant":
            blocks = [block for block in event["payload"]["blocks"] if block["type"] in ("text", "thinking")]
            cut_off = event["payload"].get("stop_reason") == "interrupted"
            texts[cut_off].extend(block[block["type"]] for block in blocks)
    return texts


def test_some_streams_of_every_agent_that_types_are_tried() -> None:
    assert {stream.provider for stream in TYPING} >= {"claude-code", "copilot", "gemini"}


@pytest.mark.req("TR-56")
@pytest.mark.parametrize("stream", TYPING, ids=ids)
def test_what_was_typed_before_the_stream_broke_off_is_on_record(stream: Stream) -> None:
    lines = stream.data.splitlines(keepends=True)
    for cut in {*range(1, len(lines), max(1, len(lines) // CUTS)), len(lines)}:
        data = b"".join(lines[:cut])
        shown = typed(stream.normalizer().feed(data))
        whole, cut_off = recorded(stream, data)
        for text in shown:
            assert any(one.startswith(text) for one in [*whole, *cut_off]), (cut, text)
        for text in cut_off:
            assert shown.count(text) > sum(one.startswith(text) for one in whole), (cut, text)
