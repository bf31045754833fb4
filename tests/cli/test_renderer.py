"""Live rendering of a run: which stream gets what, and lines that do not mix."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

from shopfloor.cli.renderer import RenderOptions, RunRenderer
from shopfloor.cli.style import Style, escape_controls
from shopfloor.client import (
    BlockEnd,
    BlockStart,
    StreamEvent,
    TextDelta,
    TextEnd,
    TextStart,
    ToolInputAvailable,
    ToolOutputError,
    UnknownEvent,
    UsageEvent,
    WorkerResult,
)


def written(live: RunRenderer, events: Iterable[StreamEvent | UnknownEvent]) -> dict[str, str]:
    streams = {"stdout": "", "stderr": ""}
    for event in events:
        for piece in live.render_event(event):
            streams[piece.stream] += piece.data.decode()
    return streams


def text(name: str, *pieces: str) -> list[StreamEvent]:
    return [TextStart(id=name), *(TextDelta(id=name, delta=piece) for piece in pieces), TextEnd(id=name)]


def test_texts_streamed_at_the_same_time_are_printed_one_after_another() -> None:
    events: list[StreamEvent] = [
        TextStart(id="a:0"),
        TextDelta(id="a:0", delta="one "),
        TextStart(id="b:0"),
        TextDelta(id="b:0", delta="other"),
        TextEnd(id="b:0"),
        TextDelta(id="a:0", delta="two"),
        TextStart(id="c:0"),
        TextDelta(id="c:0", delta="third "),
        TextEnd(id="a:0"),
        TextDelta(id="c:0", delta="text\n"),
        TextEnd(id="c:0"),
    ]
    assert written(RunRenderer(RenderOptions()), events)["stdout"] == "one two\nother\nthird text\n"


def test_the_output_is_not_printed_twice() -> None:
    result = WorkerResult(worker_id="x", output="hello")
    assert written(RunRenderer(RenderOptions()), [*text("a:0", "hel", "lo"), result])["stdout"] == "hello\n"
    assert written(RunRenderer(RenderOptions()), [*text("a:0", "other"), result])["stdout"] == "other\nhello\n"
    assert (
        written(RunRenderer(RenderOptions()), [WorkerResult(worker_id="x", output={"a": 1})])["stdout"]
        == '{\n  "a": 1\n}\n'
    )
    assert written(RunRenderer(RenderOptions()), [WorkerResult(worker_id="x")])["stdout"] == ""


def test_the_output_of_a_workers_command_goes_to_stderr() -> None:
    events = text("seq-4:0", "building\n")
    assert written(RunRenderer(RenderOptions()), events) == {"stdout": "", "stderr": "building\n"}
    assert written(RunRenderer(RenderOptions(quiet=True)), events) == {"stdout": "", "stderr": ""}


def test_steps_and_tools_are_lines_that_are_indented_as_they_are_nested() -> None:
    live = RunRenderer(RenderOptions())
    written(live, [BlockStart(block_id="each", block_name="Each", block_type="for_each")])
    written(live, [BlockStart(block_id="each.0.build", block_name="Build", block_type="command")])
    build = BlockEnd(
        block_id="each.0.build", block_name="Build", block_type="command", error="exit code 3", duration_ms=1250
    )
    events: list[StreamEvent] = [
        ToolInputAvailable(tool_call_id="1", tool_name="search", input={"query": "tea\n"}),
        ToolOutputError(tool_call_id="1", tool_name="search", error="no network"),
        build,
    ]
    assert written(live, events)["stderr"].splitlines() == [
        '→ search {"query": "tea\\n"}',
        "✗ search no network",
        "    ✗ Build · exit code 3 · 1.2 s",
    ]


def test_on_a_terminal_control_characters_are_escaped_and_lines_do_not_mix() -> None:
    live = RunRenderer(RenderOptions(stdout_is_terminal=True, progress=True, style=Style(enabled=False)))
    drawn = b"".join(piece.data for piece in live.tick()).decode()
    assert drawn.startswith("\r\x1b[K⠙ 0 ")
    begun = [*live.render_event(TextStart(id="a:0")), *live.render_event(TextDelta(id="a:0", delta="half \x1b[2J"))]
    assert [(piece.stream, piece.data.decode()) for piece in begun] == [("stderr", "\r\x1b[K"), ("stdout", "half ␛[2J")]
    assert live.tick() == []
    lines = [(piece.stream, piece.data) for piece in live.note("a note")]
    assert lines == [("stdout", b"\n"), ("stderr", b"a note\n")]


def test_piped_text_is_unchanged() -> None:
    assert written(RunRenderer(RenderOptions()), text("a:0", "red \x1b[31m"))["stdout"] == "red \x1b[31m\n"


def test_json_prints_events_unchanged_including_those_of_later_versions() -> None:
    live = RunRenderer(RenderOptions(as_json=True))
    events: list[StreamEvent | UnknownEvent] = [
        UnknownEvent("hologram", {"type": "hologram", "size": 3}),
        UsageEvent(input_tokens=3, output_tokens=4, cost_usd=0.5),
        UsageEvent(input_tokens=1, cost_usd=0.25),
    ]
    lines = written(live, events)["stdout"].splitlines()
    assert lines[0] == '{"type":"hologram","size":3}'
    assert (live.input_tokens, live.output_tokens, live.cost) == (4, 4, 0.75)
    assert live.note("a note") == []


def test_what_a_character_does_to_the_direction_of_text_is_escaped() -> None:
    directions = {chr(code) for code in range(0x2100) if unicodedata.bidirectional(chr(code)) in _DIRECTIONS}
    marks = {"\u200e", "\u200f", "\u061c"}
    assert len(directions | marks) == 12
    assert set(escape_controls("".join(directions | marks))) == {"\ufffd"}
    assert escape_controls("ü שלום 日本\t\n") == "ü שלום 日本\t\n"


_DIRECTIONS = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
"""The classes of characters that set the direction of those after them."""
