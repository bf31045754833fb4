"""Normalize responses of model APIs: bodies as Anthropic and OpenAI send them, complete, interrupted and malformed."""

from __future__ import annotations

import json
import random
from pathlib import Path

import httpx
import msgspec
import pytest
from tests.model_server.script import Text, Thinking, Tokens, ToolUse, Turn
from tests.model_server.server import in_thread
from tests.timeouts import TIMEOUT_SECONDS

from shopfloor.adapters.providers.http import AnthropicNormalizer, OpenAINormalizer
from shopfloor.adapters.providers.jsonl import final_report
from shopfloor.log import (
    AssistantMessage,
    StreamBlock,
    TextBlock,
    ThinkingBlock,
    ToolCall,
    ToolResult,
    ToolUseBlock,
    Usage,
)
from shopfloor.ports import AgentExit, AgentReport, MessageDelta, Normalizer, SessionEnded, TranscriptItem, UsageDelta

FIXTURES = Path(__file__).parent / "fixtures"
APIS: dict[str, type[AnthropicNormalizer] | type[OpenAINormalizer]] = {
    "anthropic": AnthropicNormalizer,
    "openai": OpenAINormalizer,
}
BODIES = sorted(f"{api}/{path.name}" for api in APIS for path in (FIXTURES / api).iterdir())
CACHED = Usage(input=1200, output=45, cache_read=800, reasoning=12)
HELLO = "Hello ☃, second piece 😀 \u2028 end."


def body(name: str) -> bytes:
    return (FIXTURES / name).read_bytes()


def normalizer(name: str) -> Normalizer:
    return APIS[name.partition("/")[0]]()


def read(name: str, data: bytes, ended: AgentExit | None = None) -> list[AgentReport]:
    one = normalizer(name)
    return [*one.feed(data), *one.finish(ended)]


def answered(name: str) -> list[AgentReport]:
    return read(name, body(name))


def payloads(reports: list[AgentReport]) -> list:
    return [report.payload for report in reports if isinstance(report, TranscriptItem)]


def messages(reports: list[AgentReport]) -> list[AssistantMessage]:
    whole = [one for one in payloads(reports) if isinstance(one, AssistantMessage)]
    return [message for message in whole if message.message_id is not None]


def notes(reports: list[AgentReport]) -> list:
    return [one.note for one in payloads(reports) if isinstance(one, AssistantMessage) and one.note is not None]


def calls(reports: list[AgentReport]) -> list[ToolCall]:
    return [one for one in payloads(reports) if isinstance(one, ToolCall)]


def text(content: str) -> TextBlock:
    return TextBlock(text=content, fidelity="agent_emitted")


def thought(content: str, signature: str | None = None) -> ThinkingBlock:
    return ThinkingBlock(thinking=content, signature=signature, fidelity="agent_emitted")


def use(name: str, tool_id: str, tool_input: object) -> ToolUseBlock:
    return ToolUseBlock(tool_name=name, tool_id=tool_id, tool_input=tool_input, fidelity="agent_emitted")


# Properties of every body.


@pytest.mark.parametrize("name", BODIES)
def test_a_body_gives_the_same_reports_however_it_is_cut(name: str) -> None:
    data, one = body(name), normalizer(name)
    reports = [report for at in range(len(data)) for report in one.feed(data[at : at + 1])]
    assert [*reports, *one.finish(None)] == answered(name)


@pytest.mark.parametrize("name", BODIES)
def test_a_body_ends_once_and_its_usage_is_the_sum_of_its_deltas(name: str) -> None:
    reports = answered(name)
    ended = final_report(reports)
    assert [isinstance(report, SessionEnded) for report in reports].count(True) == 1
    spent = [report.usage for report in reports if isinstance(report, UsageDelta)]
    assert spent == ([] if ended.usage is None else [ended.usage])
    assert list(ended.models.values()) == spent


@pytest.mark.parametrize("name", BODIES)
def test_deltas_and_complete_blocks_have_the_same_text_and_index(name: str) -> None:
    reports = answered(name)
    typed: dict[tuple[str, int], str] = {}
    for report in reports:
        if isinstance(report, MessageDelta):
            key = (report.message_id, report.block)
            typed[key] = typed.get(key, "") + report.text
    whole = {
        (message.message_id, place): block
        for message in messages(reports)
        for place, block in enumerate(message.blocks)
    }
    for key, content in typed.items():
        match whole[key]:
            case TextBlock(text=reported) | ThinkingBlock(thinking=reported) | StreamBlock(chunk=reported):
                assert reported == content
            case ToolUseBlock(tool_input=reported):
                assert reported == content or reported == json.loads(content)
            case other:
                raise AssertionError(other)


@pytest.mark.parametrize("name", BODIES)
def test_a_body_that_stops_anywhere_never_raises_and_loses_no_text(name: str) -> None:
    data = body(name)
    for end in range(0, len(data), max(1, len(data) // 80)):
        reports = read(name, data[:end])
        typed = "".join(report.text for report in reports if isinstance(report, MessageDelta) and report.kind == "text")
        blocks = [block for message in messages(reports) for block in message.blocks]
        assert "".join(block.text for block in blocks if isinstance(block, TextBlock)) == typed
        assert final_report(reports).status in {"completed", "failed"}


@pytest.mark.parametrize("name", BODIES)
def test_malformed_records_never_raise(name: str) -> None:
    chance = random.Random(name)
    odd = ["null", "7", '"x"', "[]", "{}", "true", "-1", "1e9"]
    data = body(name).decode()
    for _ in range(40):
        words = data.split(":")
        at = chance.randrange(len(words))
        spoilt = ":".join([*words[:at], chance.choice(odd), *words[at + 1 :]])
        reports = read(name, spoilt.encode())
        assert final_report(reports).status in {"completed", "failed", "cancelled"}
        assert all(msgspec.json.encode(report.payload) for report in reports if isinstance(report, TranscriptItem))


@pytest.mark.parametrize("name", ["anthropic/broken.sse", "openai/chat_broken.sse", "openai/responses_broken.sse"])
def test_an_abandoned_response_is_cancelled(name: str) -> None:
    ended = final_report(read(name, body(name), AgentExit(cancelled=True)))
    assert ended.status == "cancelled"
    assert ended.error is not None
    assert ended.error.code == "cancelled"


# Answers.


@pytest.mark.parametrize(
    ("name", "message_id", "stop_reason", "usage"),
    [
        ("anthropic/text.sse", "msg_01", "end_turn", Usage(input=1200, output=15)),
        ("anthropic/text_crlf.sse", "msg_01", "end_turn", Usage(input=1200, output=15)),
        ("openai/chat_text.sse", "chatcmpl-1", "stop", CACHED),
        ("openai/responses_text.sse", "resp_1", "completed", CACHED),
    ],
)
def test_a_streamed_text_is_reported_in_deltas_and_then_complete(
    name: str, message_id: str, stop_reason: str, usage: Usage
) -> None:
    reports = answered(name)
    typed = [report for report in reports if isinstance(report, MessageDelta)]
    assert [(one.message_id, one.block, one.kind) for one in typed] == [(message_id, 0, "text")] * 2
    (message,) = messages(reports)
    assert message.blocks == [text(HELLO)]
    assert (message.message_id, message.stop_reason, message.usage) == (message_id, stop_reason, usage)
    assert message.model == ("claude-sonnet-4-6" if name.startswith("anthropic") else "gpt-5-mini")
    ended = final_report(reports)
    assert (ended.status, ended.text, ended.unparsed) == ("completed", HELLO, 0)


@pytest.mark.parametrize("name", ["anthropic/text.json", "openai/chat_text.json", "openai/responses_text.json"])
def test_a_complete_answer_is_reported_without_deltas(name: str) -> None:
    reports = answered(name)
    assert not [report for report in reports if isinstance(report, MessageDelta)]
    assert [message.blocks for message in messages(reports)] == [[text("The whole answer.")]]
    ended = final_report(reports)
    assert (ended.text, ended.usage) == ("The whole answer.", Usage(input=1200, output=9))


@pytest.mark.parametrize(
    ("name", "ids"),
    [
        ("anthropic/tools.sse", ["toolu_a", "toolu_b"]),
        ("openai/chat_tools.sse", ["call_a", "call_b"]),
        ("openai/responses_tools.sse", ["call_a", "call_b"]),
    ],
)
def test_parallel_calls_are_blocks_and_calls_each_with_its_own_input(name: str, ids: list[str]) -> None:
    reports = answered(name)
    (message,) = messages(reports)
    assert message.blocks[1:] == [use("get_weather", ids[0], {"city": "Paris"}), use("get_time", ids[1], {})]
    assert [(call.name, call.call_id, call.input, call.output) for call in calls(reports)] == [
        ("get_weather", ids[0], {"city": "Paris"}, None),
        ("get_time", ids[1], {}, None),
    ]
    typed = [report for report in reports if isinstance(report, MessageDelta) and report.kind == "tool_input"]
    assert {(one.block, one.tool_name, one.tool_id) for one in typed} <= {
        (1, "get_weather", ids[0]),
        (2, "get_time", ids[1]),
    }


def test_a_tool_that_takes_a_text_gets_it_as_it_is() -> None:
    assert [call.input for call in calls(answered("openai/chat_tools.json"))] == [{"city": "Paris"}, "print(1)"]


@pytest.mark.parametrize(
    ("name", "blocks"),
    [
        (
            "anthropic/thinking.sse",
            [thought("Let me see.", "EqQBCgIYAhIM"), thought("", "EmwKAhgBEgy3va3p"), text("So be it.")],
        ),
        (
            "anthropic/thinking.json",
            [thought("Let me see.", "EqQBCgIYAhIM"), text("So be it."), use("get_time", "toolu_c", {"zone": "UTC"})],
        ),
        ("openai/chat_reasoning.sse", [thought("Let me see."), text("So be it.")]),
        ("openai/responses_reasoning.sse", [thought("Let me see.\n\nIt snows.", "gAAAAABo"), text("So be it.")]),
    ],
)
def test_thinking_comes_before_its_message(name: str, blocks: list) -> None:
    reports = answered(name)
    assert [message.blocks for message in messages(reports)] == [blocks]
    assert final_report(reports).text == "So be it."


@pytest.mark.parametrize("name", ["anthropic/refusal.sse", "openai/chat_refusal.sse", "openai/responses_refusal.json"])
def test_a_refusal_is_a_text_with_its_reason(name: str) -> None:
    reports = answered(name)
    (message,) = messages(reports)
    assert (message.blocks, message.stop_reason) == ([text("I cannot help with that.")], "refusal")
    assert final_report(reports).status == "completed"


@pytest.mark.parametrize(
    ("name", "reason"),
    [("openai/chat_length.json", "length"), ("openai/responses_incomplete.sse", "max_output_tokens")],
)
def test_an_answer_that_is_cut_says_so(name: str, reason: str) -> None:
    reports = answered(name)
    assert [(message.blocks, message.stop_reason) for message in messages(reports)] == [
        ([text("A long answer that")], reason)
    ]
    assert final_report(reports).text == "A long answer that"


def test_a_call_that_is_cut_keeps_what_was_written_of_its_input() -> None:
    reports = answered("anthropic/max_tokens.sse")
    assert messages(reports)[0].stop_reason == "max_tokens"
    assert calls(reports)[0].input == '{"path": "a.txt", "text": "and so'


@pytest.mark.parametrize("name", ["anthropic/cached.json", "anthropic/cached.sse"])
def test_each_token_of_anthropics_is_in_one_class(name: str) -> None:
    assert final_report(answered(name)).usage == Usage(input=20, output=45, cache_read=800, cache_write=100)


def test_cached_tokens_of_openai_are_subtracted_from_its_input() -> None:
    for name in ("openai/chat_text.sse", "openai/responses_text.sse"):
        assert final_report(answered(name)).usage == CACHED


def test_tools_that_anthropic_runs_itself_have_their_results() -> None:
    reports = answered("anthropic/web_search.sse")
    (message,) = messages(reports)
    assert [type(block).__name__ for block in message.blocks] == [
        "TextBlock",
        "ToolUseBlock",
        "TextBlock",
        "StreamBlock",
    ]
    call, result = payloads(reports)[1:3]
    assert isinstance(call, ToolCall)
    assert isinstance(result, ToolResult)
    assert (call.name, call.input, result.name) == ("web_search", {"query": "snow"}, "web_search")
    assert result.call_id == call.call_id
    assert result.output[0]["title"] == "Snow"


def test_tools_that_openai_runs_itself_have_their_results() -> None:
    reports = answered("openai/responses_hosted.sse")
    assert [call.name for call in calls(reports)] == ["web_search_call", "read", "run_code"]
    outputs = {one.name: one.output for one in payloads(reports) if isinstance(one, ToolResult)}
    assert outputs == {"web_search_call": {"status": "completed"}, "read": "hello"}


def test_a_block_of_an_unknown_type_is_kept_in_order() -> None:
    for name in ("anthropic/web_search.sse", "openai/responses_hosted.sse"):
        reports = answered(name)
        last = messages(reports)[0].blocks[-1]
        assert isinstance(last, StreamBlock)
        assert last.unparsed
        assert json.loads(last.chunk)["shape"] == "cube"
    assert final_report(answered("anthropic/web_search.sse")).unparsed == 1


def test_a_delta_of_an_unknown_type_is_kept() -> None:
    odd = b'data: {"type": "content_block_delta", "index": 0, "delta": {"type": "smell_delta", "smell": "rose"}}\n\n'
    head, between, rest = body("anthropic/text.sse").partition(b"event: content_block_stop")
    reports = read("anthropic/", head + odd + between + rest)
    assert "rose" in payloads(reports)[0].blocks[0].chunk
    assert (final_report(reports).text, final_report(reports).unparsed) == (HELLO, 1)


def test_an_event_of_an_unknown_type_is_kept() -> None:
    reports = answered("openai/responses_hosted.sse")
    assert "response.hologram.flicker" in payloads(reports)[0].blocks[0].chunk
    assert final_report(reports).unparsed == 2


def test_a_stream_without_an_end_marker_completes_if_it_has_a_stop_reason() -> None:
    ended = final_report(answered("openai/chat_no_done.sse"))
    assert (ended.status, ended.text) == ("completed", "All of it.")


def test_several_answers_are_several_messages_and_the_first_counts() -> None:
    choices = [
        {"index": n, "message": {"content": content}, "finish_reason": "stop"}
        for n, content in enumerate(["One.", "Two."])
    ]
    whole = {
        "id": "c",
        "object": "chat.completion",
        "model": "m",
        "choices": choices,
        "usage": {"completion_tokens": 4},
    }
    reports = read("openai/", json.dumps(whole).encode())
    assert [(message.message_id, message.blocks) for message in messages(reports)] == [
        ("c", [text("One.")]),
        ("c.1", [text("Two.")]),
    ]
    ended = final_report(reports)
    assert (ended.text, ended.usage) == ("One.", Usage(output=4))
    assert len([report for report in reports if isinstance(report, UsageDelta)]) == 1


def test_a_call_without_an_id_gets_one() -> None:
    call = {"function": {"name": "look", "arguments": "{}"}}
    whole = {
        "id": "c",
        "choices": [{"message": {"content": None, "tool_calls": [call, call]}, "finish_reason": "stop"}],
    }
    made = [one.call_id for one in calls(read("openai/", json.dumps(whole).encode()))]
    assert len(set(made)) == 2


# Errors.


@pytest.mark.parametrize(
    ("name", "code", "retryable"),
    [
        ("anthropic/error_401.json", "authentication_error", False),
        ("anthropic/error_429.json", "rate_limit_error", True),
        ("anthropic/error_529.json", "provider_overloaded", True),
        ("openai/error_400.json", "invalid_request_error", False),
        ("openai/error_401.json", "authentication_error", False),
        ("openai/error_429.json", "rate_limit_error", True),
        ("openai/error_503.json", "provider_overloaded", True),
        ("openai/error_page.html", "provider_error", True),
    ],
)
def test_an_error_body_is_a_failure_with_our_word_for_it(name: str, code: str, retryable: bool) -> None:
    ended = final_report(answered(name))
    assert ended.status == "failed"
    assert ended.error is not None
    assert (ended.error.code, ended.error.retryable) == (code, retryable)
    assert (ended.text, ended.usage, ended.turns) == (None, None, None)


@pytest.mark.parametrize(
    ("content", "code"),
    [
        ({"error": {"message": "no", "code": 503}}, "provider_overloaded"),
        ({"error": {"message": "no", "code": "429"}}, "rate_limit_error"),
        ({"error": "no"}, "provider_error"),
        ({"detail": "no"}, "provider_error"),
        ({"object": "error", "message": "no", "type": "BadRequestError", "code": 400}, "invalid_request_error"),
        (
            {"error": {"message": "no", "type": "insufficient_quota", "code": "insufficient_quota"}},
            "invalid_request_error",
        ),
        ({"error": {"message": "Request timed out."}}, "provider_timeout"),
    ],
)
def test_errors_of_compatible_servers_are_understood(content: dict, code: str) -> None:
    reports = read("openai/", json.dumps(content).encode())
    ended = final_report(reports)
    assert ended.error is not None
    assert (ended.error.code, ended.unparsed) == (code, 0)
    assert [note.kind for note in notes(reports)] == ["error"]


@pytest.mark.parametrize(
    ("name", "had", "code"),
    [
        ("anthropic/overloaded.sse", [text("A whole block."), text("And half of")], "provider_overloaded"),
        ("openai/chat_error.sse", [text("Half of an")], "provider_error"),
        ("openai/responses_failed.sse", [text("Half of an")], "rate_limit_error"),
        ("openai/responses_error.sse", [text("Half of an")], "provider_overloaded"),
    ],
)
def test_an_error_in_the_middle_keeps_the_text_before_it(name: str, had: list, code: str) -> None:
    reports = answered(name)
    (message,) = messages(reports)
    assert message.blocks == had
    assert [(note.kind, note.code) for note in notes(reports)] == [("warning", None), ("error", code)]
    ended = final_report(reports)
    assert ended.status == "failed"
    assert ended.error is not None
    assert (ended.error.code, ended.text) == (code, None)


@pytest.mark.parametrize(
    ("name", "had"),
    [
        ("anthropic/broken.sse", [text("First I call."), use("get_time", "toolu_e", {"zone": "UTC"})]),
        ("openai/chat_broken.sse", [text("Half of an")]),
        (
            "openai/responses_broken.sse",
            [thought("Let me see."), text("First I call."), use("get_time", "call_c", {"zone": "UTC"})],
        ),
    ],
)
def test_an_interrupted_stream_fails_and_reports_what_it_had(name: str, had: list) -> None:
    reports = answered(name)
    (message,) = messages(reports)
    *whole, half = message.blocks
    assert whole == had
    assert isinstance(half, StreamBlock)
    assert (half.chunk.replace(" ", ""), half.unparsed) == ('{"city":"Par', False)
    assert [call.call_id for call in calls(reports)] == [one.tool_id for one in had if isinstance(one, ToolUseBlock)]
    ended = final_report(reports)
    assert ended.error is not None
    assert (ended.status, ended.error.code) == ("failed", "provider_error")
    assert ended.unparsed == 1


def test_a_cancelled_response_is_cancelled() -> None:
    response = {"id": "r", "object": "response", "status": "cancelled", "model": "m", "output": []}
    assert final_report(read("openai/", json.dumps(response).encode())).status == "cancelled"


# Unusual bodies.


@pytest.mark.parametrize("api", APIS)
def test_an_empty_body_is_a_failure(api: str) -> None:
    for nothing in (b"", b"\n\r\n ", b"\xef\xbb\xbf"):
        reports = read(f"{api}/", nothing)
        error = final_report(reports).error
        assert len(reports) == 1
        assert error is not None
        assert error.message == "the response is empty"


@pytest.mark.parametrize("api", APIS)
def test_a_body_that_is_not_a_response_is_kept(api: str) -> None:
    for nonsense in (
        b"upstream went away",
        b'{"hello": "world"}',
        b"[1, 2]",
        b"data: {half\n\n",
        b"\xff\xfe\x00",
        b"error: x\n",
    ):
        reports = read(f"{api}/", nonsense)
        ended = final_report(reports)
        assert (ended.status, ended.unparsed) == ("failed", 1)
        (block,) = [block for one in payloads(reports) for block in one.blocks]
        assert block.unparsed


def test_comments_and_fields_without_content_are_ignored() -> None:
    data = b": hello\n\nid: 7\nretry: 10\n\n" + body("anthropic/text.sse")
    assert read("anthropic/", data) == answered("anthropic/text.sse")


def test_data_on_several_lines_is_one_event() -> None:
    data = b'event: error\ndata: {"type": "error",\ndata: "error": {"type": "api_error", "message": "no"}}\n\n'
    error = final_report(read("anthropic/", data)).error
    assert error is not None
    assert (error.code, error.message) == ("provider_error", "no")


def test_records_after_the_end_are_kept() -> None:
    reports = read("anthropic/", body("anthropic/text.sse") + body("anthropic/tools.sse"))
    assert len(messages(reports)) == 1
    ended = final_report(reports)
    assert (ended.status, ended.text) == ("completed", HELLO)
    assert ended.unparsed > 0


def test_blocks_without_end_do_not_pile_up() -> None:
    one = AnthropicNormalizer()
    one.feed(body("anthropic/text.sse").partition(b"event: content_block_stop")[0])
    for number in range(1, 3_000):
        block = {"type": "content_block_start", "index": number, "content_block": {"type": "text", "text": ""}}
        one.feed(b"data: " + json.dumps(block).encode() + b"\n\n")
    assert 1_000 < one.unparsed < 3_000


# Against a server.


@pytest.mark.parametrize(
    ("api", "path"), [("anthropic", "/v1/messages"), ("openai", "/v1/chat/completions"), ("openai", "/v1/responses")]
)
@pytest.mark.parametrize("streamed", [True, False])
def test_the_bytes_of_a_server_are_understood(api: str, path: str, streamed: bool) -> None:
    content = [Thinking(thinking="Hm."), Text(text="Look: ☃"), ToolUse(name="look", input={"at": ["it"]}, id="call_1")]
    usage = Tokens(input=100, output=20, cache_read=30, reasoning=0)
    one = APIS[api]()
    with in_thread([Turn(say=list(content), usage=usage)]) as server:
        request = {"model": "m", "stream": streamed, "messages": [], "stream_options": {"include_usage": True}}
        with httpx.stream("POST", f"{server.url}{path}", json=request, timeout=TIMEOUT_SECONDS) as answer:
            reports = [report for piece in answer.iter_raw() for report in one.feed(piece)]
    reports += one.finish(None)
    (message,) = messages(reports)
    assert message.blocks[-2:] == [text("Look: ☃"), use("look", "call_1", {"at": ["it"]})]
    ended = final_report(reports)
    assert (ended.status, ended.unparsed) == ("completed", 0)
    assert ended.usage == Usage(input=70, output=20, cache_read=30)


# Long bodies.


def test_a_message_that_is_too_long_to_hold_is_reported_in_parts_with_one_id() -> None:
    one = AnthropicNormalizer()
    head, _, _ = body("anthropic/text.sse").partition(b"event: ping")
    delta = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "x" * 1_000_000}}
    reports = one.feed(head)
    for _ in range(40):
        reports += one.feed(b"data: " + json.dumps(delta).encode() + b"\n\n")
    reports += [*one.feed(b'data: {"type": "message_stop"}\n\n'), *one.finish(None)]
    reported = messages(reports)
    assert len(reported) == 2
    assert {message.message_id for message in reported} == {"msg_01"}
    blocks = [block for message in reported for block in message.blocks]
    assert sum(len(block.text) for block in blocks if isinstance(block, TextBlock)) == 40_000_000
    assert [message.usage is not None for message in reported] == [False, True]
    assert final_report(reports).status == "completed"


def test_a_document_that_is_too_long_to_be_read_is_kept_in_pieces() -> None:
    one, data = OpenAINormalizer(), b'{"text": "' + b"x" * 40_000_000
    reports = [report for at in range(0, len(data), 1_000_000) for report in one.feed(data[at : at + 1_000_000])]
    reports += one.finish(None)
    assert sum(len(block.chunk) for message in payloads(reports) for block in message.blocks) == len(data)
    assert (final_report(reports).status, final_report(reports).unparsed) == ("failed", 2)


def test_an_event_that_is_too_long_to_be_read_is_kept_in_pieces() -> None:
    one, data = OpenAINormalizer(), b"data: " + b"x" * 1_000_000 + b"\n"
    reports = [report for _ in range(40) for report in one.feed(data)]
    reports += one.finish(None)
    assert final_report(reports).unparsed == 2


# Peculiarities of some servers.


def test_an_error_without_an_event_in_a_stream_is_understood() -> None:
    data = body("openai/chat_error.sse").partition(b'data: {"error"')[0]
    reports = read("openai/", data + b'{"error": {"message": "no", "type": "server_error"}}\n')
    error = final_report(reports).error
    assert error is not None
    assert (error.code, error.message) == ("provider_error", "no")
    assert [message.blocks for message in messages(reports)] == [[text("Half of an")]]


def test_a_complete_response_inside_a_stream_is_understood() -> None:
    for name in ("anthropic/text.json", "openai/chat_text.json", "openai/responses_text.json"):
        whole = json.dumps(json.loads(body(name))).encode()
        assert final_report(read(name, b"data: " + whole + b"\n\ndata: [DONE]\n\n")).text == "The whole answer."


def test_a_function_call_of_old_is_a_call() -> None:
    content = {"content": None, "function_call": {"name": "look", "arguments": '{"at": "it"}'}}
    whole = {"id": "c", "choices": [{"index": 0, "message": content, "finish_reason": "function_call"}]}
    (call,) = calls(read("openai/", json.dumps(whole).encode()))
    assert (call.name, call.input) == ("look", {"at": "it"})


def test_content_in_parts_is_one_text() -> None:
    content = {"content": [{"type": "text", "text": "One "}, {"type": "text", "text": "two."}]}
    whole = {"id": "c", "choices": [{"index": 0, "message": content, "finish_reason": "stop"}]}
    assert final_report(read("openai/", json.dumps(whole).encode())).text == "One two."


def test_a_custom_tool_has_its_arguments_as_input() -> None:
    shell = {
        "type": "local_shell_call",
        "id": "i",
        "call_id": "c",
        "action": {"command": ["ls"]},
        "status": "completed",
    }
    hidden = {"type": "reasoning", "id": "r", "summary": []}
    odd = {"type": "message", "id": "m", "content": [{"type": "hologram"}]}
    response = {"id": "r", "object": "response", "status": "completed", "output": [hidden, shell, odd]}
    reports = read("openai/", json.dumps(response).encode())
    assert [(call.name, call.call_id, call.input) for call in calls(reports)] == [
        ("local_shell_call", "c", {"action": {"command": ["ls"]}})
    ]
    assert final_report(reports).unparsed == 1
