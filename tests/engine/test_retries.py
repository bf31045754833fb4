"""Retries of steps: tools are called again, models are asked again."""

import pytest
from tests.engine.harness import EngineHarness
from tests.model_server.script import Text, Turn
from tests.model_server.server import ModelServer

from shopfloor.log import StepStarted, ToolCall, UserMessage

pytestmark = pytest.mark.anyio


async def test_a_tool_that_failed_is_called_again(harness: EngineHarness, tmp_path):
    tools = tmp_path / "flaky_tools.py"
    tools.write_text(
        f"""
def flaky(given):
    with open({str(tmp_path / "calls")!r}, "a+") as file:
        file.write("x")
        file.seek(0)
        if len(file.read()) < 3:
            raise ValueError("not yet")
    return "at last"
"""
    )
    harness.add_worker(
        "flaky",
        f"""
        tools: {{flaky: {{description: '', handler: '{tools}:flaky'}}}}
        steps: {{Try: {{block: tool-call, tool: flaky, retry: {{limit: 3, delay: 0}}, output: GOT}}}}
        output: GOT
        """,
    )
    async with harness.open() as engine:
        run_id = await engine.dispatch("flaky")
        assert (await engine.wait_for_outcome(run_id)).result == "at last"
    payloads = [event.payload for event in harness.events(run_id)]
    assert len({payload.call_id for payload in payloads if isinstance(payload, ToolCall)}) == 3
    assert [payload.try_ for payload in payloads if isinstance(payload, StepStarted)] == [1, 2, 3]


async def test_a_model_whose_answer_does_not_match_the_schema_is_informed_and_asked_again(
    harness: EngineHarness, model_server: ModelServer, monkeypatch: pytest.MonkeyPatch
):
    for key, value in model_server.env.items():
        monkeypatch.setenv(key, value)
    model_server.say(Turn(say=[Text(text='{"n": "no"}')]), Turn(say=[Text(text='{"n": 7}')]))
    harness.add_worker(
        "shaped",
        """
        steps:
          Start: {block: start-thread, model: local/test}
          Say: {block: add-message, text: A number.}
          Answer:
            block: next-message
            schema: {type: object, properties: {n: {type: integer}}, required: [n]}
            retry: {limit: 2, delay: 0}
            output: GOT
        output: GOT
        """,
    )
    async with harness.open() as engine:
        run_id = await engine.dispatch("shaped")
        assert (await engine.wait_for_outcome(run_id)).result == {"n": 7}
    assert len(model_server.requests()) == 2
    messages = [event.payload for event in harness.events(run_id) if isinstance(event.payload, UserMessage)]
    assert len(messages) == 2
