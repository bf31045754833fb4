"""Events with their long texts truncated."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from tests.property.strategies import runs
from tests.property.test_views import events_of
from tests.sample_events import GOLDEN_FILES, RUN_ID

from shopfloor.limits import TRUNCATED_ENTRIES, TRUNCATED_EVENT_CHARS, TRUNCATED_MESSAGE_CHARS, TRUNCATED_TEXT_CHARS
from shopfloor.log import Line, encode
from shopfloor.views import truncate_event


def line(payload: Any, event_type: str = "tool.result") -> bytes:
    event = {"seq": 7, "run_id": RUN_ID, "type": event_type, "path": "s", "iteration": 0, "timestamp": "t"}
    return json.dumps({**event, "payload": payload}, separators=(",", ":"), ensure_ascii=False).encode()


def truncated(payload: Any, event_type: str = "tool.result") -> Any:
    return json.loads(truncate_event(line(payload, event_type)))


def message_of(text: str, kind: str = "text") -> dict[str, Any]:
    return {"role": "assistant", "blocks": [{"type": kind, "fidelity": "router", kind: text}]}


@pytest.mark.parametrize("path", GOLDEN_FILES, ids=lambda path: path.stem)
def test_short_events_are_unchanged(path: Any) -> None:
    for raw in path.read_bytes().splitlines():
        assert truncate_event(raw) is raw


def test_a_short_line_is_not_decoded() -> None:
    assert truncate_event(b"no JSON at all") == b"no JSON at all"


def test_a_long_text_is_truncated_and_the_event_has_its_full_size() -> None:
    whole = {"name": "Bash", "output": "é" * 10_000, "input": None}
    short = truncated(whole)
    assert short["payload"] == {"name": "Bash", "output": "é" * TRUNCATED_TEXT_CHARS, "input": None}
    assert short["cut"] == len(line(whole))
    assert {name: value for name, value in short.items() if name not in ("payload", "cut")} == {
        name: value for name, value in json.loads(line(whole)).items() if name != "payload"
    }


def test_nested_texts_are_truncated() -> None:
    whole = {"output": [{"a": {"b": ["x" * 5_000, 1, None, True]}}]}
    assert truncated(whole)["payload"] == {"output": [{"a": {"b": ["x" * TRUNCATED_TEXT_CHARS, 1, None, True]}}]}


def test_long_lists_and_objects_are_truncated() -> None:
    short = truncated({"output": list(range(5_000)), "input": {str(n): n for n in range(5_000)}})
    assert short["payload"]["output"] == list(range(TRUNCATED_ENTRIES))
    assert short["payload"]["input"] == {str(n): n for n in range(TRUNCATED_ENTRIES)}
    assert short["cut"] > 20_000


def test_a_long_event_without_long_values_is_unchanged() -> None:
    raw = line({"output": ["x" * 1_000] * 5})
    assert truncate_event(raw) is raw


@pytest.mark.parametrize("kind", ["text", "thinking"])
def test_prose_is_not_truncated(kind: str) -> None:
    text = "word " * 3_000
    raw = line(message_of(text, kind), "message.assistant")
    assert truncate_event(raw) is raw
    assert (
        truncated(message_of(text * 3, kind), "message.assistant")["payload"]["blocks"][0][kind]
        == (text * 3)[:TRUNCATED_MESSAGE_CHARS]
    )


def test_the_input_of_a_tool_is_no_prose_even_in_a_message() -> None:
    block = {"type": "tool_use", "tool_input": {"text": "x" * 5_000}}
    short = truncated({"role": "assistant", "blocks": [block]}, "message.assistant")
    assert short["payload"]["blocks"][0]["tool_input"]["text"] == "x" * TRUNCATED_TEXT_CHARS


def test_an_event_that_is_large_in_many_ways_is_small() -> None:
    raw = line({"output": [["x" * 1_900] * 100] * 50})
    short = truncate_event(raw)
    assert len(raw) > 9_000_000
    assert len(short) < 2 * TRUNCATED_EVENT_CHARS
    assert json.loads(short)["cut"] == len(raw)


def test_field_names_are_truncated_too() -> None:
    assert list(truncated({"output": {"k" * 10_000: 1}})["payload"]["output"]) == ["k" * TRUNCATED_TEXT_CHARS]


@pytest.mark.parametrize(
    "raw",
    [
        line({"output": "x" * 5_000}).replace(b"xxxx", b"\\udc00", 1),
        line({"output": "x" * 5_000}).replace(b"xx", b"\xff\xfe", 1),
        line({}).replace(b"{}", b"[" * 50_000 + b"]" * 50_000),
    ],
    ids=["a lone surrogate", "no UTF-8", "too deep"],
)
def test_a_payload_that_cannot_be_decoded_is_omitted(raw: bytes) -> None:
    short = truncate_event(raw)
    assert short == raw or json.loads(short) == {"seq": 7, "type": "tool.result", "payload": None, "cut": len(raw)}


def test_a_line_without_a_payload_is_no_reason_to_fail() -> None:
    raw = b'{"seq":1,"type":"x","more":"' + b"x" * 5_000 + b'"}'
    assert json.loads(truncate_event(raw)) == {"seq": 1, "type": "x", "payload": None, "cut": len(raw)}


@given(runs())
def test_any_event_can_be_truncated(run: Any) -> None:
    for event in events_of(run):
        raw = encode(Line(**{name: getattr(event, name) for name in Line.__struct_fields__}))
        short = truncate_event(raw, 50)
        assert json.loads(short)["seq"] == event.seq
        assert short == raw or json.loads(short)["cut"] == len(raw)
