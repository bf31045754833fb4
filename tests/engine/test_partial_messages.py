"""Incomplete messages of a model over real HTTP: what is recorded, however they end."""

from __future__ import annotations

import json

import pytest
from tests.engine.harness import EngineHarness, RunningEngine
from tests.model_server.script import Text, Thinking, ToolUse, Turn
from tests.model_server.server import ModelServer

from shopfloor.log import AssistantMessage, StreamBlock, TextBlock, ThinkingBlock, chunk_blocks, is_message_chunk

pytestmark = pytest.mark.anyio

ASKS = """
    steps:
      Start: {block: start-thread, model: anthropic/claude-sonnet-4-6}
      Say: {block: add-message, text: hello}
      Answer: {block: next-message, output: SAID, retry: {limit: 1, delay: 0.01}}
    output: SAID
"""
THINKING, SHOWN, UNSENT = "Where do I begin?", "This was shown, ", "and this was never said."
STALLS = Turn(say=[Text(text=SHOWN + UNSENT)], chunk=len(SHOWN), hang_after=1)
CUT_OFF = [TextBlock(fidelity="agent_emitted", text=SHOWN)]


@pytest.fixture(autouse=True)
def provider(model_server: ModelServer, monkeypatch: pytest.MonkeyPatch, harness: EngineHarness) -> ModelServer:
    """Let every provider be the scripted server."""
    for name, value in model_server.env.items():
        monkeypatch.setenv(name, value)
    harness.add_worker("asks", ASKS)
    return model_server


def messages(harness: EngineHarness, run_id: str) -> list[AssistantMessage]:
    return [event.payload for event in harness.events(run_id) if isinstance(event.payload, AssistantMessage)]


def complete_messages(harness: EngineHarness, run_id: str) -> list[AssistantMessage]:
    return [message for message in messages(harness, run_id) if not is_message_chunk(message)]


async def wait_for_text(engine: RunningEngine, harness: EngineHarness, run_id: str, text: str) -> None:
    def is_written() -> bool:
        blocks = [block for message in messages(harness, run_id) for block, *_ in chunk_blocks(message)]
        return "".join(block.chunk for block in blocks) == text

    await engine.wait_until(is_written, "a piece")


@pytest.mark.req("TR-56")
async def test_a_message_is_cut_off_by_a_cancel(harness: EngineHarness, provider: ModelServer):
    provider.say(STALLS)
    async with harness.open() as engine:
        run_id = await engine.dispatch("asks")
        await wait_for_text(engine, harness, run_id, SHOWN)
        await engine.cancel(run_id)
        assert (await engine.wait_for_outcome(run_id)).status == "cancelled"
    (message,) = complete_messages(harness, run_id)
    assert (message.stop_reason, message.blocks) == ("interrupted", CUT_OFF)


@pytest.mark.req("TR-56")
async def test_a_message_is_cut_off_by_a_lost_connection_and_requested_again(
    harness: EngineHarness, provider: ModelServer
):
    lost = Turn(say=[Thinking(thinking=THINKING), Text(text=SHOWN + UNSENT)], chunk=1, cut_after=len(THINKING + SHOWN))
    provider.say(lost, Turn(say=[Text(text="Whole.")]))
    async with harness.open() as engine:
        run_id = await engine.dispatch("asks")
        assert (await engine.wait_for_outcome(run_id)).result == "Whole."
    cut, answer = complete_messages(harness, run_id)
    thinking, text = cut.blocks
    assert isinstance(thinking, ThinkingBlock)
    assert isinstance(text, TextBlock)
    assert (cut.stop_reason, thinking.thinking) == ("interrupted", THINKING)
    assert text.text
    assert SHOWN.startswith(text.text)
    assert answer.stop_reason != "interrupted"
    assert SHOWN not in json.dumps(provider.requests()[1].body)


@pytest.mark.storages("memory", "files")
@pytest.mark.req("TR-58")
async def test_a_message_that_a_stopped_host_left_incomplete_is_not_part_of_the_thread(
    harness: EngineHarness, provider: ModelServer
):
    provider.say(STALLS, Turn(say=[Text(text="Whole.")]))
    async with harness.open() as engine:
        run_id = await engine.dispatch("asks")
        await wait_for_text(engine, harness, run_id, SHOWN)
    async with harness.open() as engine:
        assert (await engine.wait_for_outcome(run_id)).result == "Whole."
    cut, _ = complete_messages(harness, run_id)
    assert cut.blocks == CUT_OFF
    assert SHOWN not in json.dumps(provider.requests()[1].body)


async def test_the_input_of_a_tool_that_was_never_called_is_no_call(harness: EngineHarness, provider: ModelServer):
    use = ToolUse(name="look", input={"where": "everywhere and nowhere"})
    provider.say(Turn(say=[Text(text="Wait. "), use], chunk=6, hang_after=3))
    async with harness.open() as engine:
        run_id = await engine.dispatch("asks")
        await engine.wait_until(lambda: messages(harness, run_id), "a piece")
        await engine.cancel(run_id)
        await engine.wait_for_outcome(run_id)
    (message,) = complete_messages(harness, run_id)
    text, half = message.blocks
    assert text == TextBlock(fidelity="agent_emitted", text="Wait. ")
    assert isinstance(half, StreamBlock)
    assert (half.tool_name, half.kind) == ("look", None)
    assert '{"where": "everywhere and nowhere"}'.replace(" ", "").startswith(half.chunk.replace(" ", ""))


@pytest.mark.req("TR-57")
async def test_a_message_that_completes_within_a_second_leaves_no_piece(harness: EngineHarness, provider: ModelServer):
    provider.say(Turn(say=[Text(text="Whole.")]))
    async with harness.open() as engine:
        run_id = await engine.dispatch("asks")
        assert (await engine.wait_for_outcome(run_id)).result == "Whole."
    (message,) = messages(harness, run_id)
    assert message.blocks == [TextBlock(fidelity="agent_emitted", text="Whole.")]
