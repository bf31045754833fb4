"""Properties of any event, and of any bytes that may be an event."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from tests.property.strategies import PAYLOADS, json_of, lines, payloads_of, text, text_with_surrogates
from tests.sample_events import line_from_event, line_of, tool_call

from shopfloor.errors import InvalidEvent
from shopfloor.log import (
    PAYLOAD_TYPES,
    Line,
    UnknownPayload,
    Verifier,
    check,
    decode,
    encode,
    event_schema,
)

SCHEMA = Draft202012Validator(event_schema())
TORN = payloads_of(text_with_surrogates)


@pytest.mark.req("TR-9")
@pytest.mark.parametrize("name", PAYLOAD_TYPES)
@given(st.data())
def test_any_event_is_read_as_it_was_written(name: str, data: st.DataObject) -> None:
    line = data.draw(lines(PAYLOADS[name]))
    raw = encode(line)
    event = decode(raw)
    assert event.problems == ()
    assert line_from_event(event) == line
    assert encode(line_from_event(event)) == raw


@pytest.mark.req("TR-4")
@given(lines())
def test_any_event_is_one_line_that_every_json_parser_reads_alike(line: Line) -> None:
    raw = encode(line)
    assert b"\n" not in raw
    assert b"\r" not in raw
    assert json.loads(raw.decode()) == msgspec.to_builtins(line)


@given(lines())
def test_any_event_that_may_be_written_fits_the_schema(line: Line) -> None:
    check(line.payload, line.path, line.iteration, line.child_run_id)
    assert [error.message for error in SCHEMA.iter_errors(json.loads(encode(line)))] == []


@given(st.one_of(*(lines(torn, text_with_surrogates) for torn in TORN.values())))
def test_a_written_text_with_lone_surrogates_does_not_change(line: Line) -> None:
    raw = encode(line)
    event = decode(raw)
    assert event.problems == ()
    assert "\\ud" not in raw.decode()
    assert encode(line_from_event(event)) == raw


@given(text_with_surrogates)
def test_of_a_text_only_the_lone_surrogates_are_replaced(torn: str) -> None:
    written = json.loads(encode(line_of(tool_call(torn))))["payload"]["input"]
    joined = torn.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    assert written == joined
    assert len(written) == len(torn) or any("\ud800" <= character <= "\udbff" for character in torn)


def understood(raw: bytes) -> bool | None:
    """Return True if the bytes are an event without problems, None if they are no event."""
    try:
        return not decode(raw).problems
    except InvalidEvent:
        return None


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A line with some bytes changed, removed or inserted."""
    raw = bytearray(encode(draw(lines())))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(raw)))
        raw[at : at + draw(st.integers(0, 5))] = draw(st.binary(max_size=5))
    return bytes(raw)


@st.composite
def disguised(draw: st.DrawFn) -> bytes:
    """A JSON object with the keys of an envelope and any values."""
    fields: dict[str, Any] = msgspec.json.decode(encode(draw(lines())))
    for name in draw(st.lists(st.sampled_from([*fields, "child_run_id", "later"]), max_size=3)):
        fields[name] = draw(json_of(text))
    if draw(st.booleans()):
        fields["payload"] = draw(st.dictionaries(st.sampled_from(["blocks", "role", "name"]), json_of(text)))
    return json.dumps(fields, ensure_ascii=draw(st.booleans())).encode()


anything = st.binary(max_size=200) | damaged() | disguised()


@given(anything)
@example(encode(line_of(tool_call("x"))).replace(b"tool.call", b"tool.cast").replace(b'"x"', b'"\xff"'))
def test_any_bytes_are_an_event_or_are_rejected(raw: bytes) -> None:
    assert understood(raw) in {True, False, None}
    if understood(raw) is not None:
        event = decode(raw)
        known = event.type in PAYLOAD_TYPES and not isinstance(event.payload, UnknownPayload)
        assert known or event.problems


@given(st.lists(anything, max_size=4), st.sampled_from([b"", b"\n", b"\r\n"]))
@example([encode(line_of(tool_call("x"))).replace(b"tool.call", b"tool.cast").replace(b'"x"', b'"\xff"')], b"\n")
def test_the_verifier_has_an_answer_to_any_bytes(raws: list[bytes], end: bytes) -> None:
    verifier = Verifier()
    for number, raw in enumerate(raws, 1):
        assert all(broken.line == number and broken.message for broken in verifier.line(raw + end))
    assert verifier.lines == len(raws)


@given(disguised())
def test_a_log_that_the_verifier_accepts_is_read_without_problems(raw: bytes) -> None:
    rules = {broken.rule for broken in Verifier().line(raw + b"\n")}
    if not rules & {"json-object", "utf-8", "envelope", "type", "payload"}:
        assert understood(raw)
    elif rules & {"json-object", "utf-8", "type", "payload"}:
        assert not understood(raw)
