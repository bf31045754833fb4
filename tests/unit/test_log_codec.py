"""Events to bytes and back."""

import json
import math
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.sample_events import (
    BLOCKS,
    CHILD_ID,
    GOLDEN_FILES,
    PARENT_ID,
    PAYLOADS,
    RUN_ID,
    assistant_message,
    fields_of,
    line_from_event,
    line_of,
    started,
    tool_call,
)

from shopfloor.errors import InvalidEvent, InvalidRunId
from shopfloor.limits import LOG_LINE_BYTES
from shopfloor.log import (
    BLOCK_TYPES,
    PAYLOAD_TYPES,
    AssistantMessage,
    TextBlock,
    ThinkingBlock,
    ToolCall,
    UnknownBlock,
    UnknownPayload,
    Verifier,
    decode,
    encode,
    format_timestamp,
    is_run_id,
    new_run_id,
    validate_run_id,
)

TEN_TYPES = [
    "run.started",
    "run.completed",
    "step.started",
    "step.completed",
    "step.call_workflow.started",
    "step.call_workflow.completed",
    "message.user",
    "message.assistant",
    "tool.call",
    "tool.result",
]


def raw_of(fields: dict[str, Any]) -> bytes:
    return json.dumps(fields).encode()


def input_written(value: Any) -> Any:
    """Return a tool's input in the log, as any JSON parser reads it."""
    return json.loads(encode(line_of(tool_call(value))))["payload"]["input"]


@pytest.mark.req("TR-9")
def test_there_are_ten_event_types_and_each_decides_the_class_of_its_payload() -> None:
    assert list(PAYLOAD_TYPES) == TEN_TYPES
    assert {name: type(decode(encode(line_of(payload))).payload) for name, payload in PAYLOADS.items()} == PAYLOAD_TYPES


@pytest.mark.parametrize("name", PAYLOAD_TYPES)
def test_an_event_is_read_as_it_was_written(name: str) -> None:
    line = line_of(PAYLOADS[name], 7, iteration=3, parent_run_id=PARENT_ID)
    event = decode(encode(line))
    assert line_from_event(event) == line
    assert event.problems == ()


@pytest.mark.parametrize("name", PAYLOAD_TYPES)
def test_the_samples_leave_no_field_of_a_payload_out(name: str) -> None:
    written = json.loads(encode(line_of(PAYLOADS[name])))["payload"]
    known = {field.encode_name for field in msgspec.structs.fields(PAYLOAD_TYPES[name])}
    assert written.keys() - {"role"} == known


@pytest.mark.req("TR-18", "TR-19", "TR-20", "TR-21", "TR-22", "TR-23", "TR-24")
def test_each_of_the_six_blocks_has_its_fields_and_its_fidelity() -> None:
    written = json.loads(encode(line_of(AssistantMessage(blocks=list(BLOCKS.values())))))["payload"]["blocks"]
    assert written == [
        {"type": "text", "fidelity": "router", "text": "out\n", "stream": "stdout", "raw": "b3V0Cg=="},
        {"type": "thinking", "fidelity": "agent_emitted", "thinking": "hm"},
        {
            "type": "tool_use",
            "fidelity": "agent_emitted",
            "tool_name": "Bash",
            "tool_id": "t1",
            "tool_input": {"command": "ls"},
        },
        {"type": "tool_result", "fidelity": "agent_emitted", "tool_id": "t1", "tool_content": [{"text": "a"}]},
        {
            "type": "command",
            "fidelity": "router",
            "command": 'make "${VALUE_NAME}"',
            "variables": {"VALUE_NAME": "all"},
        },
        {"type": "stream", "fidelity": "agent_emitted", "chunk": "{oops", "unparsed": True, "raw": "e29vcHM="},
    ]
    assert [block["type"] for block in written] == list(BLOCK_TYPES)


@pytest.mark.parametrize("block", BLOCKS.values(), ids=BLOCKS)
def test_a_block_is_read_as_it_was_written(block: Any) -> None:
    payload = decode(encode(line_of(AssistantMessage(blocks=[block])))).payload
    assert payload == AssistantMessage(blocks=[block])


@pytest.mark.parametrize("path", GOLDEN_FILES, ids=lambda path: path.name)
def test_a_golden_file_is_understood_and_written_again_byte_for_byte(path: Path) -> None:
    lines = path.read_bytes().splitlines()
    events = [decode(raw) for raw in lines]
    assert [event.problems for event in events] == [()] * len(lines)
    assert [encode(line_from_event(event)) for event in events] == lines


def test_there_are_three_golden_files() -> None:
    assert [path.name for path in GOLDEN_FILES] == ["claude-code.jsonl", "command.jsonl", "parent.jsonl"]


@pytest.mark.req("TR-6")
@pytest.mark.parametrize("name", PAYLOAD_TYPES)
def test_every_line_has_the_whole_envelope_in_a_fixed_order(name: str) -> None:
    line = json.loads(encode(line_of(PAYLOADS[name], parent_run_id=PARENT_ID, child_run_id=CHILD_ID)))
    assert list(line) == [
        "seq",
        "run_id",
        "parent_run_id",
        "child_run_id",
        "type",
        "path",
        "iteration",
        "timestamp",
        "payload",
    ]


def test_only_the_two_links_are_omitted_from_the_envelope_when_empty() -> None:
    line = json.loads(encode(line_of(started(), path="", parent_run_id=None, child_run_id=None)))
    assert list(line) == ["seq", "run_id", "type", "path", "iteration", "timestamp", "payload"]
    assert (line["path"], line["iteration"]) == ("", 0)


def test_optional_fields_without_a_value_are_omitted_from_a_payload() -> None:
    payload = json.loads(encode(line_of(started())))["payload"]
    assert payload == {"name": "build", "kind": "worker", "attempt": 1, "host": "local-1"}


def test_a_tool_payload_has_its_input_and_its_output_even_if_they_are_null() -> None:
    payload = json.loads(encode(line_of(tool_call(None))))["payload"]
    assert payload == {"name": "t", "call_id": "c", "input": None, "output": None, "fidelity": "router"}


@pytest.mark.req("TR-12")
@pytest.mark.parametrize(
    "kind",
    [
        "agent",
        "command",
        "operation",
        "terminal",
        "parallel",
        "for_each",
        "while",
        "call_workflow",
        "next-message",
    ],
)
def test_the_kind_of_a_step_is_kept_as_given(kind: str) -> None:
    step = msgspec.structs.replace(PAYLOADS["step.started"], kind=kind)
    assert decode(encode(line_of(step))).payload == step


@pytest.mark.req("TR-17")
def test_an_unknown_event_type_is_passed_on_with_its_type_and_payload_intact() -> None:
    fields = fields_of(started()) | {"type": "run.paused", "payload": {"why": ["x", 1]}, "path": "a.b", "iteration": 4}
    event = decode(raw_of(fields))
    assert (event.type, event.payload) == ("run.paused", UnknownPayload({"why": ["x", 1]}))
    assert (event.seq, event.run_id, event.path, event.iteration) == (1, RUN_ID, "a.b", 4)
    assert event.problems == ("unknown event type 'run.paused'",)


@pytest.mark.parametrize("payload", [None, 1, "text", [1], {}])
def test_an_unknown_event_type_may_carry_any_json(payload: Any) -> None:
    event = decode(raw_of(fields_of(started()) | {"type": "x", "payload": payload}))
    assert event.payload == UnknownPayload(payload)


def test_an_unknown_block_is_passed_on_among_the_known_ones_and_reported() -> None:
    fields = fields_of(assistant_message("before"))
    image = {"type": "image", "fidelity": "agent_emitted", "data": "…"}
    fields["payload"]["blocks"] += [image, {"type": "thinking", "fidelity": "agent_emitted", "thinking": "hm"}]
    event = decode(raw_of(fields))
    assert event.payload == AssistantMessage(
        blocks=[
            TextBlock(fidelity="router", text="before"),
            UnknownBlock("image", image),  # pyright: ignore[reportArgumentType]
            ThinkingBlock(fidelity="agent_emitted", thinking="hm"),
        ]
    )
    assert event.problems == ("unknown block type 'image'",)


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        ({"type": "text", "fidelity": "router"}, UnknownBlock("text", {"type": "text", "fidelity": "router"})),
        (
            {"type": "text", "fidelity": "maybe", "text": "a"},
            UnknownBlock("text", {"type": "text", "fidelity": "maybe", "text": "a"}),
        ),
        ({"text": "a"}, UnknownBlock("None", {"text": "a"})),
        ({"type": ["text"]}, UnknownBlock("['text']", {"type": ["text"]})),
        ("bare", UnknownBlock("None", {"value": "bare"})),
    ],
    ids=["field missing", "fidelity unknown", "type missing", "type no string", "no object"],
)
def test_a_malformed_block_is_passed_on_and_reported(block: Any, expected: UnknownBlock) -> None:
    fields = fields_of(assistant_message("before"))
    fields["payload"]["blocks"].append(block)
    event = decode(raw_of(fields))
    assert isinstance(event.payload, AssistantMessage)
    assert event.payload.blocks == [TextBlock(fidelity="router", text="before"), expected]
    assert len(event.problems) == 1


@pytest.mark.parametrize("name", PAYLOAD_TYPES)
def test_a_payload_that_lacks_a_field_is_passed_on_as_it_is_and_reported(name: str) -> None:
    fields = fields_of(PAYLOADS[name])
    lost = next(field.encode_name for field in msgspec.structs.fields(PAYLOAD_TYPES[name]) if field.required)
    del fields["payload"][lost]
    event = decode(raw_of(fields))
    assert event.payload == UnknownPayload(fields["payload"])
    assert event.type == name
    assert len(event.problems) == 1
    assert f"`{lost}`" in event.problems[0]


@pytest.mark.parametrize("payload", [None, 1, "text", [], [1], {}])
@pytest.mark.parametrize("name", PAYLOAD_TYPES)
def test_a_payload_of_another_shape_is_passed_on_as_it_is_and_reported(name: str, payload: Any) -> None:
    event = decode(raw_of(fields_of(PAYLOADS[name]) | {"payload": payload}))
    assert event.payload == UnknownPayload(payload)
    assert len(event.problems) == 1


@pytest.mark.parametrize("blocks", [None, "text", {"type": "text"}, 1])
def test_a_message_whose_blocks_are_no_list_is_passed_on_as_it_is_and_reported(blocks: Any) -> None:
    fields = fields_of(assistant_message("x"))
    fields["payload"]["blocks"] = blocks
    event = decode(raw_of(fields))
    assert event.payload == UnknownPayload({"role": "assistant", "blocks": blocks})
    assert len(event.problems) == 1


def test_a_message_whose_role_does_not_match_its_type_is_passed_on_and_reported() -> None:
    fields = fields_of(assistant_message("x"))
    fields["payload"]["role"] = "user"
    event = decode(raw_of(fields))
    assert event.payload == UnknownPayload(fields["payload"])
    assert event.problems


@pytest.mark.parametrize("name", PAYLOAD_TYPES)
def test_fields_of_a_later_version_are_no_problem(name: str) -> None:
    fields = fields_of(PAYLOADS[name])
    fields["later"] = 1
    fields["payload"]["later"] = {"a": 1}
    event = decode(raw_of(fields))
    assert event.payload == PAYLOADS[name]
    assert event.problems == ()


@pytest.mark.parametrize(
    ("given", "written"),
    [
        ("a\ud800b", "a\ufffdb"),
        ("\udfff", "\ufffd"),
        ("\ud83d\ude00", "😀"),
        ("\ude00\ud83d", "\ufffd\ufffd"),
        ({"k\ud800": ["\ud800", {"x": "\udc00"}]}, {"k\ufffd": ["\ufffd", {"x": "\ufffd"}]}),
        (("\ud800",), ["\ufffd"]),
    ],
    ids=["alone", "low alone", "pair", "pair turned round", "nested", "in a tuple"],
)
def test_a_lone_surrogate_is_written_as_the_replacement_character(given: Any, written: Any) -> None:
    assert input_written(given) == written


def test_a_lone_surrogate_in_a_path_is_written_as_the_replacement_character() -> None:
    assert decode(encode(line_of(assistant_message("x"), path="a.\ud800"))).path == "a.\ufffd"


def test_a_lone_surrogate_changes_nothing_else_of_its_line() -> None:
    plain = line_of(PAYLOADS["message.assistant"], parent_run_id=PARENT_ID, path="a")
    torn = msgspec.structs.replace(plain, path="\ud800")
    assert encode(torn) == encode(plain).replace(b'"path":"a"', '"path":"\ufffd"'.encode())


@pytest.mark.parametrize("text", ["\0", "\u2028\u2029", "\x85", "\r\n", "\x1b[31m", "\ufeff", '"\\', "😀", "\u007f"])
def test_awkward_characters_are_kept_and_never_break_the_line(text: str) -> None:
    raw = encode(line_of(tool_call(text)))
    assert b"\n" not in raw
    assert b"\r" not in raw
    assert json.loads(raw)["payload"]["input"] == text


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_number_that_json_does_not_have_is_written_as_null(value: float) -> None:
    assert input_written([value, {"a": value}]) == [None, {"a": None}]


@pytest.mark.parametrize("value", [0, -1, 2**53 + 1, 2**64, -(2**70), 0.1, 1e308, 5e-324, -0.0])
def test_a_number_is_written_exactly(value: float) -> None:
    assert input_written(value) == value


def ring() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


@pytest.mark.parametrize(
    "value",
    [object(), {"a": object()}, {None: 1}, 1 + 2j, ring(), ["\ud800", object()], {"\ud800": 1, "b": {(1, 2): 3}}],
    ids=["object", "nested", "null key", "complex", "ring", "after a surrogate", "key after a surrogate"],
)
def test_a_line_that_is_not_json_is_rejected(value: Any) -> None:
    with pytest.raises(InvalidEvent, match=r"^a tool\.call event cannot be written as JSON"):
        encode(line_of(tool_call(value)))


def test_a_line_may_be_as_long_as_the_limit_and_no_longer() -> None:
    room = LOG_LINE_BYTES - len(encode(line_of(assistant_message("")))) - len(b"\n")
    raw = encode(line_of(assistant_message("x" * room)))
    assert len(raw + b"\n") == LOG_LINE_BYTES
    assert "line-size" not in {broken.rule for broken in Verifier().line(raw + b"\n")}
    with pytest.raises(InvalidEvent, match="over the limit of 67,108,864") as refused:
        encode(line_of(assistant_message("x" * (room + 1))))
    assert refused.value.hint


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\n",
        b"null",
        b"1",
        b"[]",
        b'"text"',
        b"{}",
        b"{",
        b"\0\0\0\0",
        b"\xff\xfe",
        b'{"seq":1}',
        b"[" * 100_000,
        encode(line_of(assistant_message("x")))[:-1],
        encode(line_of(assistant_message("x"))) + b"x",
        encode(line_of(assistant_message("x"))).replace(b'"seq":1', b'"seq":"1"'),
        encode(line_of(assistant_message("x"))).replace(b'"seq":1', b'"seq":1.5'),
        encode(line_of(assistant_message("x"))).replace(b'"path":"build"', b'"path":null'),
        encode(line_of(assistant_message("x"))).replace(b'"x"', b'"\xff"'),
        encode(line_of(assistant_message("x"))).replace(b'"x"', b'"\xed\xa0\x80"'),
        encode(line_of(assistant_message("x"))).replace(b'"x"', b'"\0"'),
        encode(line_of(assistant_message("x"))).replace(b'"x"', b"NaN"),
    ],
)
def test_a_line_without_an_envelope_or_json_is_no_event(raw: bytes) -> None:
    with pytest.raises(InvalidEvent, match=r"^not an event: "):
        decode(raw)


@pytest.mark.parametrize("garbage", [b'"\xff"', b'{"a":"\xed\xa0\x80"}', b"[" * 2_000 + b"]" * 2_000])
@pytest.mark.parametrize("name", ["tool.call", "run.paused"])
def test_a_line_with_an_undecodable_payload_is_no_event_of_any_type(name: str, garbage: bytes) -> None:
    raw = raw_of(fields_of(tool_call(None)) | {"type": name, "payload": "here"}).replace(b'"here"', garbage)
    with pytest.raises(InvalidEvent, match=r"^not an event: "):
        decode(raw)


def test_a_value_that_is_nested_too_deeply_is_refused_by_the_writer() -> None:
    value: list[Any] = []
    for _ in range(100_000):
        value = [value]
    with pytest.raises(InvalidEvent):
        encode(line_of(ToolCall(name="t", call_id="c", input=value, output=None, fidelity="router")))


@pytest.mark.req("TR-7")
def test_a_new_run_id_is_a_uuid_of_version_4() -> None:
    ids = {new_run_id() for _ in range(1_000)}
    assert len(ids) == 1_000
    assert all(is_run_id(run_id) and validate_run_id(run_id) == run_id for run_id in ids)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "last",
        "../x",
        RUN_ID.upper(),
        RUN_ID + "\n",
        RUN_ID[:-1],
        RUN_ID.replace("-", ""),
        "{" + RUN_ID + "}",
        "5f3a1c9e-6d0b-1c55-9a6e-2f8d1b7c4e10",
        "5f3a1c9e-6d0b-4c55-ca6e-2f8d1b7c4e10",
        "../" + RUN_ID,
    ],
)
def test_nothing_but_a_uuid_of_version_4_in_lower_case_is_a_run_id(text: str) -> None:
    assert not is_run_id(text)
    with pytest.raises(InvalidRunId):
        validate_run_id(text)


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (1, "1970-01-01T00:00:00.001Z"),
        (951_782_400_999, "2000-02-29T00:00:00.999Z"),
        (1_794_738_600_050, "2026-11-15T10:30:00.050Z"),
    ],
)
def test_a_timestamp_is_rfc_3339_in_utc_with_milliseconds(ms: int, text: str) -> None:
    assert format_timestamp(ms) == text
