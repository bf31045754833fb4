"""The contract of the port `Models`, for scripts and for providers' APIs over real HTTP."""

from __future__ import annotations

import json
from collections import defaultdict
from contextlib import aclosing
from pathlib import Path

import anyio
import pytest
from tests.model_server.model_client import ModelClient, assistant_message, user_message
from tests.model_server.script import Failure, Text, Thinking, Tokens, ToolUse, Turn
from tests.model_server.server import ModelServer

from shopfloor.adapters.models import ModelRouter
from shopfloor.errors import RateLimited, RequestRejected, UnknownModel
from shopfloor.log import Block, TextBlock, ThinkingBlock, ToolResultBlock, ToolUseBlock
from shopfloor.ports import Reply, ReplyDelta, ToolSpec

SEARCH = ToolSpec(
    "web-search",
    "Searches the web.",
    {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
)
CITY = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "people": {"type": "integer"}},
    "required": ["city", "people"],
    "additionalProperties": False,
}


@pytest.fixture(params=["script", "anthropic", "openai", "google", "compatible"])
def model_client(request: pytest.FixtureRequest, model_server: ModelServer, tmp_path: Path) -> ModelClient:
    return ModelClient(request.param, model_server, tmp_path)


def joined(deltas: list[ReplyDelta]) -> dict[int, str]:
    found: defaultdict[int, str] = defaultdict(str)
    for delta in deltas:
        found[delta.block] += delta.text
    return dict(found)


def block_content(block: Block) -> object:
    match block:
        case TextBlock():
            return block.text
        case ThinkingBlock():
            return block.thinking
        case ToolUseBlock():
            return block.tool_input
        case _:
            raise AssertionError(block)


def test_a_reply_is_the_text_of_the_model(model_client: ModelClient) -> None:
    model_client.set_turns(Turn(say=[Text(text="Grüße aus der Werkstatt, mit 🔧 und allem.")]))
    deltas, reply = model_client.ask(user_message("Hello"), system="Be kind.")
    assert reply.blocks == [
        TextBlock(text="Grüße aus der Werkstatt, mit 🔧 und allem.", fidelity="agent_emitted"),
    ]
    assert len(deltas) > 1
    assert {delta.kind for delta in deltas} == {"text"}


def test_the_reply_names_its_model_and_its_stop_reason(model_client: ModelClient) -> None:
    model_client.set_turns(Turn(say=[Text(text="Done.")]))
    _, reply = model_client.ask(user_message("Hello"))
    assert reply.model in {model_client.model, model_client.model.partition("/")[2]}
    ends = {"script": "end_turn", "anthropic": "end_turn", "openai": "completed", "google": "STOP"}
    assert reply.stop_reason == ends.get(model_client.provider, "stop")


def test_deltas_joined_by_block_are_the_reply(model_client: ModelClient) -> None:
    model_client.set_turns(
        Turn(
            say=[
                Thinking(thinking="First I look it up, and then I tell what I found."),
                Text(text="Let me search for that, it will not take long."),
                ToolUse(name="web-search", input={"query": "how to weld"}),
            ]
        )
    )
    deltas, reply = model_client.ask(user_message("How does one weld?"), tools=[SEARCH], thinking="low")
    texts = joined(deltas)
    assert [type(reply.blocks[index]) for index in sorted(texts)] == [ThinkingBlock, TextBlock, ToolUseBlock]
    for index, text in texts.items():
        content = block_content(reply.blocks[index])
        assert (text if isinstance(content, str) else json.loads(text)) == content
    input_deltas = [delta for delta in deltas if delta.kind == "tool_input"]
    call = reply.blocks[-1]
    assert isinstance(call, ToolUseBlock)
    assert {(delta.tool_name, delta.tool_id) for delta in input_deltas} == {("web-search", call.tool_id)}
    assert [delta.block for delta in deltas] == sorted(delta.block for delta in deltas)


def test_a_tool_call_goes_out_and_its_result_comes_back(model_client: ModelClient) -> None:
    model_client.set_turns(
        Turn(say=[ToolUse(name="web-search", input={"query": "welding"})]),
        Turn(say=[Text(text="Two plates and heat.")], replies_before=1),
    )
    question = user_message("How does one weld?")
    _, first = model_client.ask(question, tools=[SEARCH])
    call = first.blocks[-1]
    assert isinstance(call, ToolUseBlock)
    assert (call.tool_name, call.tool_input) == ("web-search", {"query": "welding"})
    tool_result = ToolResultBlock(tool_id=call.tool_id, tool_content={"hits": ["welding.example"]}, fidelity="router")
    result = user_message("")
    result = type(result)(role="user", blocks=[tool_result])
    _, second = model_client.ask(question, assistant_message(*first.blocks), result, tools=[SEARCH])
    assert second.blocks == [TextBlock(text="Two plates and heat.", fidelity="agent_emitted")]
    if not model_client.is_script:
        sent = json.dumps(model_client.server.requests()[-1].body)
        assert "welding.example" in sent
        assert call.tool_id in sent


def test_a_failed_call_is_sent_as_a_failure(model_client: ModelClient) -> None:
    model_client.set_turns(
        Turn(say=[ToolUse(name="web-search", input={"query": "welding"})]),
        Turn(say=[Text(text="Then I do not know.")]),
    )
    _, first = model_client.ask(user_message("How?"), tools=[SEARCH])
    call = first.blocks[-1]
    assert isinstance(call, ToolUseBlock)
    tool_result = ToolResultBlock(tool_id=call.tool_id, tool_content={"error": "no network"}, fidelity="router")
    result = type(user_message(""))(role="user", blocks=[tool_result])
    _, second = model_client.ask(user_message("How?"), assistant_message(*first.blocks), result, tools=[SEARCH])
    assert second.blocks == [TextBlock(text="Then I do not know.", fidelity="agent_emitted")]
    if model_client.is_script:
        return
    sent = model_client.server.requests()[-1].body
    assert "no network" in json.dumps(sent)
    if model_client.provider == "anthropic":
        assert sent["messages"][-1]["content"][0]["is_error"] is True
    else:
        assert "error" in json.dumps(sent)


def test_thinking_comes_first_and_is_sent_back_to_its_provider(model_client: ModelClient) -> None:
    model_client.set_turns(
        Turn(
            say=[
                Thinking(thinking="I should look.", signature="c2lnbmVk"),
                ToolUse(name="web-search", input={"query": "x"}, signature="c2lnbmVk"),
            ]
        ),
        Turn(say=[Text(text="Found.")]),
    )
    _, first = model_client.ask(user_message("Look"), tools=[SEARCH], thinking="high")
    thought, *_, call = first.blocks
    assert isinstance(thought, ThinkingBlock)
    assert thought.thinking == "I should look."
    assert isinstance(call, ToolUseBlock)
    tool_result = ToolResultBlock(tool_id=call.tool_id, tool_content="found", fidelity="router")
    result = type(user_message(""))(role="user", blocks=[tool_result])
    model_client.ask(user_message("Look"), assistant_message(*first.blocks), result, tools=[SEARCH], thinking="high")
    if model_client.provider in {"anthropic", "openai", "google"}:
        assert "c2lnbmVk" in json.dumps(model_client.server.requests()[-1].body)


def test_an_answer_with_a_schema_is_json_in_the_only_text_block(model_client: ModelClient) -> None:
    answer = {"city": "Essen", "people": 580_000}
    by_tool = model_client.provider == "compatible"
    text = Text(text=json.dumps(answer))
    model_client.set_turns(Turn(say=[ToolUse(name="answer", input=answer) if by_tool else text]))
    deltas, reply = model_client.ask(user_message("Name a city"), schema=CITY)
    (block,) = [block for block in reply.blocks if not isinstance(block, ThinkingBlock)]
    assert isinstance(block, TextBlock)
    if model_client.is_script:
        assert json.loads(block.text).keys() == answer.keys()
    else:
        assert json.loads(block.text) == answer
        assert "people" in json.dumps(model_client.server.requests()[0].body)
    assert {delta.kind for delta in deltas} == {"text"}
    assert "".join(delta.text for delta in deltas) == block.text


def test_usage_is_reported(model_client: ModelClient) -> None:
    model_client.set_turns(
        Turn(say=[Text(text="Done with it.")], usage=Tokens(input=1000, output=50, cache_read=300, reasoning=10))
    )
    _, reply = model_client.ask(user_message("one two three"), system="four five")
    assert reply.usage.input > 0
    assert reply.usage.output > 0
    if not model_client.is_script:
        assert (reply.usage.input, reply.usage.output, reply.usage.cache_read) == (700, 50, 300)
    if model_client.provider in {"openai", "google", "compatible"}:
        assert reply.usage.reasoning == 10


def test_a_cost_is_reported_if_the_price_is_known(model_client: ModelClient) -> None:
    model_client.set_turns(Turn(say=[Text(text="Done.")], usage=Tokens(input=1000, output=50)))
    _, reply = model_client.ask(user_message("Hello"))
    if model_client.provider in {"script", "compatible"}:
        assert reply.cost is None
    else:
        assert reply.cost is not None
        assert reply.cost.usd is not None
        assert 0 < reply.cost.usd < 1
        assert reply.cost.prices


def test_a_rate_limit_has_a_retry_time(model_client: ModelClient) -> None:
    slow_down = Failure(status=429, type="rate_limit_error", message="slow down, please", headers={"retry-after": "7"})
    model_client.set_turns(Turn(fail=slow_down, times=0))
    with pytest.raises(RateLimited, match="slow down, please") as raised:
        model_client.ask(user_message("Hello"))
    assert raised.value.retry_after == 7
    assert raised.value.retryable
    if not model_client.is_script:
        assert len(model_client.server.requests()) == 1


def test_a_rejected_request_is_not_retryable(model_client: ModelClient) -> None:
    model_client.set_turns(
        Turn(fail=Failure(status=400, type="invalid_request_error", message="too long a thread"), times=0)
    )
    with pytest.raises(RequestRejected, match="too long a thread") as raised:
        model_client.ask(user_message("Hello"))
    assert not raised.value.retryable


def test_closing_in_the_middle_closes_the_connection(model_client: ModelClient) -> None:
    model_client.set_turns(Turn(say=[Text(text="word " * 200)], pause=0.05, times=0))
    model_client.env["SHOPFLOOR_SCRIPT_DELAY_MS"] = "50"

    async def leave(models: ModelRouter) -> None:
        replies = models.reply(model_client.request(user_message("Hello")))
        async with aclosing(replies):  # pyright: ignore[reportArgumentType]
            async for piece in replies:
                assert isinstance(piece, ReplyDelta)
                break
        if not model_client.is_script:
            assert await anyio.to_thread.run_sync(model_client.server.wait_for_end) == "left"

    model_client.run(leave)


def test_a_cancel_during_silence_closes_the_connection(model_client: ModelClient) -> None:
    model_client.set_turns(Turn(say=[Text(text="word " * 200)], hang_after=2, pause=0.05))
    model_client.env["SHOPFLOOR_SCRIPT_DELAY_MS"] = "50"

    async def be_cancelled(models: ModelRouter) -> list[ReplyDelta | Reply]:
        got: list[ReplyDelta | Reply] = []
        with anyio.CancelScope() as scope:
            async for piece in models.reply(model_client.request(user_message("Hello"))):
                got.append(piece)
                scope.deadline = min(scope.deadline, anyio.current_time() + 0.2)
        assert scope.cancelled_caught
        if not model_client.is_script:
            assert await anyio.to_thread.run_sync(model_client.server.wait_for_end) == "left"
        return got

    model_client.run(be_cancelled)


def test_an_unknown_model_name_is_an_error(model_client: ModelClient) -> None:
    models = model_client.models()
    model_client.set_turns(Turn(say=[Text(text="Here.")]))
    models.check(model_client.model)
    for name in ("gpt", "nobody/model", "/model", "anthropic/", "script/nowhere", "script/../secret"):
        with pytest.raises(UnknownModel) as raised:
            models.check(name)
        assert raised.value.hint
