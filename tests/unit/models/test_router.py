"""The model router: provider lookup, requests, and the cost of importing clients."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import anyio
import pytest
from tests.model_server.model_client import ModelClient, assistant_message, user_message
from tests.model_server.script import Text, Thinking, ToolUse, Turn
from tests.model_server.server import ModelServer, in_process

from shopfloor.adapters.models import ModelRouter
from shopfloor.errors import UnknownModel
from shopfloor.log import TextBlock, ThinkingBlock
from shopfloor.ports import ModelRequest, Reply, ToolSpec

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
SEARCH = ToolSpec("web-search", "Searches.", {"type": "object", "properties": {"query": {"type": "string"}}})


def python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)


def test_any_compatible_endpoint_with_an_address_is_a_provider() -> None:
    models = ModelRouter(env={"SHOPFLOOR_MODEL_MY_HOUSE_URL": "http://127.0.0.1:1/v1"})
    models.check("my-house/qwen/qwen3")
    models.check("ollama/llama3")
    models.check("vllm/some/model")
    with pytest.raises(UnknownModel) as raised:
        models.check("other-house/qwen3")
    assert "SHOPFLOOR_MODEL_OTHER_HOUSE_URL" in (raised.value.hint or "")
    assert "anthropic, openai, google" in (raised.value.hint or "")


def test_the_key_of_a_compatible_endpoint_is_sent(model_server: ModelServer, tmp_path: Path) -> None:
    model_client = ModelClient("compatible", model_server, tmp_path)
    model_client.env["SHOPFLOOR_MODEL_LOCAL_KEY"] = "a-key-of-ours"
    model_client.set_turns(Turn(say=[Text(text="Hi.")]))
    model_client.ask(user_message("Hello"))
    assert model_server.requests()[0].headers["authorization"] == "Bearer a-key-of-ours"


def test_system_temperature_and_thinking_are_sent(model_server: ModelServer, tmp_path: Path) -> None:
    model_client = ModelClient("google", model_server, tmp_path)
    model_client.set_turns(Turn(say=[Text(text="Hi.")]))
    model_client.ask(user_message("Hello"), system="Be brief.", temperature=0.25, thinking="low")
    sent = model_server.requests()[0].body
    assert sent["systemInstruction"]["parts"][0]["text"] == "Be brief."
    assert sent["generationConfig"]["temperature"] == 0.25
    assert sent["generationConfig"]["thinkingConfig"]["include_thoughts"] is True


def test_thinking_of_another_provider_is_omitted(model_server: ModelServer, tmp_path: Path) -> None:
    theirs = [
        ThinkingBlock(thinking="a secret", signature="openai:rs_1:c2ln", fidelity="agent_emitted"),
        ThinkingBlock(thinking="a secret", signature="google::c2ln", fidelity="agent_emitted"),
        ThinkingBlock(thinking="a secret", fidelity="agent_emitted"),
        TextBlock(text="Welded.", fidelity="agent_emitted"),
    ]
    model_client = ModelClient("anthropic", model_server, tmp_path)
    model_client.set_turns(Turn(say=[Text(text="Hi.")]))
    model_client.ask(user_message("Weld"), assistant_message(*theirs), user_message("Thanks"))
    sent = model_server.requests()[0].body["messages"]
    assert sent[1]["content"] == [{"text": "Welded.", "type": "text"}]
    assert "a secret" not in json.dumps(sent)


def test_a_model_without_schemas_beside_tools_answers_with_a_tool(model_server: ModelServer, tmp_path: Path) -> None:
    model_client = ModelClient("google", model_server, tmp_path)
    model_client.set_turns(Turn(say=[Thinking(thinking="Hm."), ToolUse(name="answer", input={"city": "Essen"})]))
    deltas, reply = model_client.ask(user_message("Name a city"), schema=CITY, tools=[SEARCH])
    assert json.loads("".join(delta.text for delta in deltas if delta.kind == "text")) == {"city": "Essen"}
    assert [block.text for block in reply.blocks if isinstance(block, TextBlock)] == ['{"city":"Essen"}']


def test_text_instead_of_the_answer_tool_is_the_answer(model_server: ModelServer, tmp_path: Path) -> None:
    model_client = ModelClient("compatible", model_server, tmp_path)
    model_client.set_turns(Turn(say=[Text(text='{"city": "Essen"}')]))
    deltas, reply = model_client.ask(user_message("Name a city"), schema=CITY)
    assert [delta.text for delta in deltas] == ['{"city": "Essen"}']
    assert reply.blocks == [TextBlock(text='{"city": "Essen"}', fidelity="agent_emitted")]


def test_concurrent_requests_share_one_pool(model_server: ModelServer, tmp_path: Path) -> None:
    model_client = ModelClient("anthropic", model_server, tmp_path)
    model_client.set_turns(Turn(say=[Text(text="Hi.")], times=0))
    replies: list[Reply] = []

    async def send_request(models: ModelRouter, request: ModelRequest) -> None:
        replies.extend([piece async for piece in models.reply(request) if isinstance(piece, Reply)])

    async def many(models: ModelRouter) -> None:
        async with anyio.create_task_group() as group:
            for _ in range(20):
                group.start_soon(send_request, models, model_client.request(user_message("Hello")))

    model_client.run(many)
    assert len(replies) == len(model_server.requests()) == 20


@pytest.mark.parametrize(("env", "loaded"), [({}, "False"), ({"OPENAI_API_KEY": "sk-x"}, "True")])
def test_the_slow_import_happens_at_warm_up_if_models_are_configured(env: dict[str, str], loaded: str) -> None:
    done = python(
        f"import sys; from shopfloor.adapters.models import ModelRouter; models = ModelRouter(env={env!r});"
        "models.check('openai/gpt-5'); models.check('script/hello');"
        "print('pydantic_ai' in sys.modules); models.warm_up(); print('pydantic_ai' in sys.modules)"
    )
    assert (done.stdout.split(), done.stderr) == (["False", loaded], "")


def test_without_the_extra_the_hint_names_it() -> None:
    done = python(
        "import sys; sys.modules['pydantic_ai'] = None\n"
        "from shopfloor.adapters.models import ModelRouter\n"
        "models = ModelRouter(); models.warm_up(); models.check('script/hello')\n"
        "try: models.check('openai/gpt-5')\n"
        "except Exception as error: print(error.code, error.hint)"
    )
    assert done.stdout == "unknown_model install Shopfloor with its extra `models`\n", done.stderr


def test_the_model_server_runs_as_a_process_of_its_own(tmp_path: Path) -> None:
    with in_process(tmp_path, [Turn(say=[Text(text="From afar.")], times=2)]) as server:
        model_client = ModelClient("anthropic", server, tmp_path)
        _, reply = model_client.ask(user_message("Hello"))
        assert reply.blocks == [TextBlock(text="From afar.", fidelity="agent_emitted")]
        assert [requests.end for requests in server.requests()] == ["done"]
