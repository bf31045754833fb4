"""Every version of the TypeScript SDK that has workers accepts every event that the server can send."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.providers.streams import PROGRAMS, Stream, ids, streams
from tests.providers.test_http_normalizers import BODIES, body
from tests.providers.test_http_normalizers import normalizer as http_normalizer
from tests.sample_events import GOLDEN, PAYLOADS, line_of
from tests.sdk.rules import checked, folded, inputs_of
from tests.sdk.vocabulary import ERROR_TYPES, EVENTS, VOCABULARY, event_faults, http_message, shape_faults

from shopfloor.errors import ShopfloorError, all_error_types
from shopfloor.log import (
    AssistantMessage,
    Awaits,
    Delta,
    Event,
    Payload,
    RunCompleted,
    RunError,
    RunStarted,
    StepStarted,
    ToolCall,
    ToolUseBlock,
    decode,
    encode,
)
from shopfloor.ports import AgentExit, MessageDelta, Normalizer, TranscriptItem
from shopfloor.views import StreamEvent, decode_event, encode_event, error_event, finish, to_error_event

CLASSES: tuple[type[msgspec.Struct], ...] = get_args(StreamEvent)


def sent(event: StreamEvent) -> dict[str, Any]:
    return msgspec.json.decode(encode_event(event))


def sample(kind: Any) -> Any:
    """Return a value of a type, with every field set."""
    match kind:
        case msgspec.inspect.StructType():
            return kind.cls(**{field.name: sample(field.type) for field in kind.fields})
        case msgspec.inspect.UnionType():
            return sample(next(item for item in kind.types if not isinstance(item, msgspec.inspect.NoneType)))
        case msgspec.inspect.LiteralType():
            return kind.values[0]
        case msgspec.inspect.ListType():
            return [sample(kind.item_type)]
        case msgspec.inspect.BoolType():
            return True
        case msgspec.inspect.IntType():
            return 3
        case msgspec.inspect.FloatType():
            return 2.5
        case msgspec.inspect.StrType():
            return "text"
        case msgspec.inspect.AnyType():
            return {"a": [1, None]}
        case _:
            raise AssertionError(f"there is no sample of {kind}")


# The check itself


@pytest.mark.parametrize(
    "event",
    [
        {"type": "block-start", "blockId": "a", "blockName": "A", "blockType": "command"},
        {"type": "block-start", "blockId": "a", "blockName": "A", "blockType": "command", "display": "title"},
        {"type": "error", "errorType": "execution_error", "message": "no", "retryable": False},
        {"type": "error", "errorType": "run_failed", "message": "no", "retryable": False, "source": "platform"},
        {"type": "finish", "finishReason": "question"},
        {"type": "finish", "finishReason": "cancelled"},
        {"type": "worker-result", "workerId": "a", "error": None},
        {"type": "tool-request", "toolCalls": [{"toolCallId": "c", "toolName": "t", "args": "text"}]},
        {"type": "usage", "inputTokens": 1},
        {"type": "question", "question": "Why?"},
        {"delta": "no type"},
    ],
    ids=lambda event: json.dumps(event)[:60],
)
def test_events_that_a_client_would_drop_are_found(event: dict[str, Any]) -> None:
    assert len(event_faults(event)) == 1


def test_the_body_of_an_error_is_read_as_the_client_reads_it() -> None:
    assert http_message({"error": "no", "code": "x", "hint": None}) == "no"
    assert http_message({"message": "no"}) == "no"
    assert http_message({"error": {"code": "x", "message": "no"}}) is None
    assert http_message([]) is None


# Every event


@pytest.mark.req("SDK-42")
@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_every_event_fits_and_comes_back_as_it_was(kind: type[msgspec.Struct]) -> None:
    shape = msgspec.inspect.type_info(kind)
    assert isinstance(shape, msgspec.inspect.StructType)
    full: Any = sample(shape)
    minimal: Any = kind(**{field.name: sample(field.type) for field in shape.fields if field.required})
    for event in (full, minimal):
        assert event_faults(sent(event)) == []
        assert decode_event(encode_event(event)) == event


def test_our_own_events_use_only_fields_that_the_client_passes_on() -> None:
    types = {sent(sample(msgspec.inspect.type_info(kind)))["type"] for kind in CLASSES}
    assert types <= EVENTS.keys()
    assert not types & VOCABULARY["later"].keys()
    # The client strips unknown fields, but keeps all of a `value`.
    assert EVENTS["resource-update"]["value"] == "any"


@pytest.mark.req("SDK-42")
@pytest.mark.parametrize("reason", ["stop", "tool-calls", "question", "waiting", "error", "cancelled"])
def test_every_finish_has_a_reason_that_the_client_knows_and_ours_beside_it(reason: Any) -> None:
    event = sent(finish(reason))
    assert event_faults(event) == []
    assert event["reason"] == reason


@pytest.mark.req("SDK-43")
@pytest.mark.parametrize("kind", all_error_types(), ids=lambda kind: kind.code)
def test_every_error_has_a_type_that_the_client_knows_and_our_code_beside_it(kind: type[ShopfloorError]) -> None:
    sent_events = sent(to_error_event(kind("what happened", hint="what to do")))
    assert event_faults(sent_events) == []
    assert (sent_events["code"], sent_events["message"], sent_events["hint"]) == (
        kind.code,
        "what happened",
        "what to do",
    )
    if kind.code in ERROR_TYPES:
        assert sent_events["errorType"] == kind.code
    failed = RunCompleted(name="x", kind="worker", status="failed", error=RunError(code=kind.code, message="no"))
    assert checked(folded([event(1, failed)]))[0]["errorType"] == sent_events["errorType"]


@pytest.mark.req("SDK-43")
@pytest.mark.parametrize("code", ["", "command_failed", "ENOENT", "my worker's own"])
def test_an_unknown_code_is_a_failure_of_the_worker(code: str) -> None:
    sent_events = sent(error_event("no", code))
    assert (sent_events["errorType"], sent_events["source"], sent_events["code"]) == (
        "execution_error",
        "platform",
        code,
    )


# Every log


def event(seq: int, payload: Payload, path: str = "step", child: str | None = None) -> Event:
    return decode(encode(line_of(payload, seq, path=path, child_run_id=child)))


@pytest.mark.req("SDK-42")
@pytest.mark.parametrize("name", PAYLOADS)
def test_the_stream_of_events_with_every_field_fits(name: str) -> None:
    checked(folded([decode(encode(line_of(PAYLOADS[name])))]))


@pytest.mark.parametrize("given", [None, {}, {"q": 1}, [1], "text", 0])
def test_the_arguments_of_a_requested_call_are_an_object(given: Any) -> None:
    awaits = Awaits(kind="client_tool")
    call = ToolCall(name="t", call_id="c", input=given, output=None, fidelity="router", awaits=awaits)
    steps = [
        RunStarted(name="w", kind="worker", attempt=1, host="h"),
        StepStarted(name="s", kind="command", try_=1),
        call,
    ]
    sent_events = checked(folded(event(seq, payload) for seq, payload in enumerate(steps, 1)))
    (requested,) = next(item["toolCalls"] for item in sent_events if item["type"] == "tool-request")
    assert requested["args"] == ({} if given is None else given if isinstance(given, dict) else {"input": given})


def logs(path: Path) -> Iterator[list[Event]]:
    """Return the events in a file, by run."""
    runs: dict[str, list[Event]] = {}
    for line in path.read_bytes().splitlines():
        item = decode(line)
        runs.setdefault(item.run_id, []).append(item)
    yield from runs.values()


@pytest.mark.req("SDK-42", "SDK-44", "SDK-45")
@pytest.mark.parametrize("folder", [".", *(f"providers/{name}" for name in PROGRAMS)])
def test_every_stored_transcript_streams_by_the_rules(folder: str) -> None:
    sent_events = 0
    for path in sorted((GOLDEN / folder).glob("*.jsonl")):
        for run in logs(path):
            sent_events += len(checked(folded(run)))
    assert sent_events


# Every provider, live


def live(normalizer: Normalizer, data: bytes, ended: AgentExit | None) -> list[Event | Delta]:
    """Return the events and deltas that the engine makes from the output of a program."""
    items: list[Event | Delta] = []
    typed: dict[tuple[str, int], int] = {}
    seq = 0
    for report in [*normalizer.feed(data), *normalizer.finish(ended)]:
        if isinstance(report, MessageDelta) and report.agent == "":
            key = (report.message_id, report.block)
            offset = typed.get(key, 0)
            typed[key] = offset + len(report.text)
            items.append(
                Delta(
                    after=seq,
                    path="step",
                    message_id=report.message_id,
                    block=report.block,
                    kind=report.kind,
                    offset=offset,
                    text=report.text,
                    tool_name=report.tool_name,
                    tool_id=report.tool_id,
                )
            )
        elif isinstance(report, TranscriptItem) and report.agent == "":
            seq += 1
            items.append(event(seq, report.payload))
    return items


def without_every_third_piece(items: list[Event | Delta]) -> list[Event | Delta]:
    return [item for index, item in enumerate(items) if isinstance(item, Event) or index % 3]


def without_the_last_pieces(items: list[Event | Delta]) -> list[Event | Delta]:
    """Drop the last deltas, as if the message was written before its last delta was sent."""
    return [
        item
        for item, after in zip(items, [*items, None][1:], strict=True)
        if isinstance(item, Event) or isinstance(after, Delta)
    ]


def check_live(items: list[Event | Delta]) -> None:
    whole = checked(folded(item for item in items if isinstance(item, Event)))
    for some in (items, without_every_third_piece(items), without_the_last_pieces(items)):
        sent_events = checked(folded(some))
        calls = {item["toolCallId"]: item["input"] for item in whole if item["type"] == "tool-input-available"}
        assert {
            item["toolCallId"]: item["input"] for item in sent_events if item["type"] == "tool-input-available"
        } == calls


@pytest.mark.req("SDK-44", "SDK-45")
@pytest.mark.parametrize("stream", streams(), ids=ids)
def test_the_output_of_agents_streams_by_the_rules(stream: Stream) -> None:
    check_live(live(stream.normalizer(), stream.data, stream.ended))


@pytest.mark.req("SDK-44", "SDK-45")
@pytest.mark.parametrize("name", BODIES)
def test_the_responses_of_model_apis_stream_by_the_rules(name: str) -> None:
    check_live(live(http_normalizer(name), body(name), None))


def test_some_of_these_stream_the_inputs_of_calls() -> None:
    """Otherwise the rule about streamed inputs would be vacuous."""
    typing = {
        stream.provider
        for stream in streams()
        if any(
            isinstance(item, Delta) and item.kind == "tool_input"
            for item in live(stream.normalizer(), stream.data, None)
        )
    }
    assert typing >= {"claude-code", "copilot"}


# Any input


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
LAYOUTS: list[dict[str, Any]] = [
    {},
    {"ensure_ascii": False},
    {"indent": 2},
    {"separators": (",", ":")},
    {"separators": (" ,\t", " :\n"), "ensure_ascii": False},
]


@pytest.mark.req("SDK-44")
@given(value=JSON, layout=st.sampled_from(LAYOUTS), data=st.data())
def test_the_deltas_of_an_input_add_up_to_the_input(value: Any, layout: Any, data: st.DataObject) -> None:
    text = json.dumps(value, **layout)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    lost = data.draw(st.integers(0, 7))
    pieces: list[Event | Delta] = [
        Delta(
            after=1,
            path="step",
            message_id="m",
            block=0,
            kind="tool_input",
            offset=begin,
            text=text[begin:end],
            tool_name="t",
            tool_id="c",
        )
        for number, (begin, end) in enumerate(zip([0, *cuts], [*cuts, len(text)], strict=True))
        if number != lost
    ]
    use = ToolUseBlock(tool_name="t", tool_id="c", tool_input=value, fidelity="agent_emitted")
    started, message = (
        event(1, StepStarted(name="s", kind="next-message", try_=1)),
        AssistantMessage(message_id="m", blocks=[use]),
    )
    sent_events = checked(folded([started, *pieces, event(2, message)]))
    assert json.loads(inputs_of(sent_events)["c"]) == value
    assert [item["type"] for item in sent_events].count("tool-input-start") == 1


def test_an_input_that_changes_starts_over() -> None:
    piece = Delta(
        after=1,
        path="step",
        message_id="m",
        block=0,
        kind="tool_input",
        offset=0,
        text='{"a":',
        tool_name="t",
        tool_id="c",
    )
    use = ToolUseBlock(tool_name="t", tool_id="c", tool_input={"b": 1}, fidelity="agent_emitted")
    started, message = (
        event(1, StepStarted(name="s", kind="next-message", try_=1)),
        AssistantMessage(message_id="m", blocks=[use]),
    )
    sent_events = checked(folded([started, piece, event(2, message)]))
    assert [item["type"] for item in sent_events[1:]] == [
        "tool-input-start",
        "tool-input-delta",
        "tool-input-start",
        "tool-input-delta",
        "tool-input-available",
    ]


def test_the_schemas_of_results_and_files_are_listed() -> None:
    result = {"toolCallId": "c", "files": [{"id": "f", "mediaType": "image/png", "url": "u"}], "blockIndex": 0}
    assert shape_faults(result, "tool_result") == []
    assert shape_faults({**result, "files": [{"id": "f"}]}, "tool_result") != []
