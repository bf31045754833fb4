"""Model steps against a model server over real HTTP: answers, tools, schemas, limits and failures."""

import pytest
from tests.engine.harness import EngineHarness
from tests.model_server.script import Failure, Text, ToolUse, Turn
from tests.model_server.server import ModelServer

from shopfloor.log import AssistantMessage, StepStarted, ToolCall, ToolResult

pytestmark = pytest.mark.anyio

CLAUDE = "anthropic/claude-sonnet-4-6"
ASKS = f"""
    steps:
      Start: {{block: start-thread, model: {CLAUDE}}}
      Say: {{block: add-message, text: hello}}
      Answer: {{block: next-message, output: SAID, retry: {{limit: 0}}}}
    output: SAID
"""


@pytest.fixture(autouse=True)
def provider(model_server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> ModelServer:
    """Let every provider be the scripted server."""
    for name, value in model_server.env.items():
        monkeypatch.setenv(name, value)
    return model_server


@pytest.mark.req("SDK-31")
@pytest.mark.parametrize(
    ("failure", "code", "retryable"),
    [
        (Failure(status=500), "provider_error", True),
        (Failure(status=429, type="rate_limit_error"), "rate_limit_error", True),
        (Failure(status=529, type="overloaded_error"), "provider_overloaded", True),
        (Failure(status=401, type="authentication_error"), "authentication_error", False),
        (Failure(status=400, type="invalid_request_error"), "invalid_request_error", False),
    ],
)
async def test_an_error_of_a_provider_has_the_right_code(
    harness: EngineHarness, provider: ModelServer, failure: Failure, code: str, retryable: bool
):
    harness.add_worker("asks", ASKS)
    provider.say(Turn(fail=failure, times=0))
    async with harness.open() as engine:
        outcome = await engine.wait_for_outcome(await engine.dispatch("asks"))
    assert outcome.status == "failed"
    assert outcome.error is not None
    assert (outcome.error.code, outcome.error.retryable) == (code, retryable)


async def test_temporary_errors_are_retried_and_permanent_errors_are_not(harness: EngineHarness, provider: ModelServer):
    harness.add_worker("asks", ASKS.replace("limit: 0", "limit: 2, delay: 0.01"))
    provider.say(Turn(fail=Failure(status=500), times=2), Turn(say=[Text(text="third time")]))
    async with harness.open() as engine:
        run_id = await engine.dispatch("asks")
        assert (await engine.wait_for_outcome(run_id)).result == "third time"
        assert len(provider.requests()) == 3
        tries = [event.payload.try_ for event in harness.events(run_id) if isinstance(event.payload, StepStarted)]
        assert max(tries) == 3
        provider.say(Turn(fail=Failure(status=401), times=0))
        assert (await engine.wait_for_outcome(await engine.dispatch("asks"))).status == "failed"
        assert len(provider.requests()) == 1


async def test_a_run_waits_for_a_rate_limit_without_using_retries(harness: EngineHarness, provider: ModelServer):
    harness.add_worker("asks", ASKS)
    limited = Failure(status=429, type="rate_limit_error", headers={"Retry-After": "0"})
    provider.say(Turn(fail=limited, times=3), Turn(say=[Text(text="at last")]))
    async with harness.open() as engine:
        run_id = await engine.dispatch("asks")
        assert (await engine.wait_for_outcome(run_id)).result == "at last"
    tries = [event.payload.try_ for event in harness.events(run_id) if isinstance(event.payload, StepStarted)]
    assert set(tries) == {1}
    assert len(provider.requests()) == 4


async def test_a_rate_limit_is_seen_as_waiting_and_lasts_over_a_restart(harness: EngineHarness, provider: ModelServer):
    harness.add_worker("asks", ASKS)
    limited = Failure(status=429, type="rate_limit_error", headers={"Retry-After": "3"})
    provider.say(Turn(fail=limited), Turn(say=[Text(text="at last")]))
    async with harness.open() as engine:
        run_id = await engine.dispatch("asks")
        await engine.wait_for_status(run_id, "waiting")
        (call,) = [event.payload for event in harness.events(run_id) if isinstance(event.payload, ToolCall)]
        assert call.awaits is not None
        assert (call.name, call.awaits.kind) == ("rate_limit", "rate_limit")
        assert call.awaits.until is not None
    assert len(provider.requests()) == 1
    async with harness.open() as engine:
        assert (await engine.wait_for_outcome(run_id)).result == "at last"
    calls = [event.payload for event in harness.events(run_id) if isinstance(event.payload, ToolCall)]
    assert len(calls) == 1
    results = [event for event in harness.events(run_id) if isinstance(event.payload, ToolResult)]
    assert results[0].timestamp >= call.awaits.until
    assert len(provider.requests()) == 2


async def test_a_rate_limit_that_lasts_too_long_fails_with_retry_after(harness: EngineHarness, provider: ModelServer):
    harness.add_worker("asks", ASKS)
    provider.say(Turn(fail=Failure(status=429, type="rate_limit_error", headers={"Retry-After": "7200"}), times=0))
    async with harness.open() as engine:
        outcome = await engine.wait_for_outcome(await engine.dispatch("asks"))
    assert outcome.error is not None
    assert (outcome.error.code, outcome.error.retry_after) == ("rate_limit_error", 7200.0)
    assert len(provider.requests()) == 1


async def test_the_backup_model_answers_if_the_model_cannot(harness: EngineHarness, provider: ModelServer):
    harness.add_worker("asks", ASKS.replace(CLAUDE, f"{CLAUDE}, backupModel: openai/gpt-5"))
    provider.say(Turn(path="messages", fail=Failure(status=529), times=0), Turn(say=[Text(text="from the backup")]))
    async with harness.open() as engine:
        run_id = await engine.dispatch("asks")
        assert (await engine.wait_for_outcome(run_id)).result == "from the backup"
    models = [event.payload.model for event in harness.events(run_id) if isinstance(event.payload, AssistantMessage)]
    assert models[-1] is not None
    assert "gpt" in models[-1]


async def test_a_model_calls_tools_of_the_server_and_of_the_client_and_then_answers(
    harness: EngineHarness, provider: ModelServer
):
    (harness.folder / "both").mkdir(parents=True)
    (harness.folder / "both" / "sums.py").write_text("def add(given):\n    return given['a'] + given['b']\n")
    harness.add_worker(
        "both",
        f"""
        tools:
          add: {{description: Adds., parameters: {{a: {{type: integer}}, b: {{type: integer}}}}, handler: 'sums.py:add'}}
          look-up: {{description: Looks up., parameters: {{word: {{type: string}}}}}}
        steps:
          Start: {{block: start-thread, model: {CLAUDE}, tools: [add, look-up]}}
          Say: {{block: add-message, text: go}}
          Answer: {{block: next-message, output: SAID}}
        output: SAID
        """,
    )
    provider.say(
        Turn(
            say=[
                Text(text="Let me see."),
                ToolUse(name="look-up", input={"word": "moon"}, id="toolu_1"),
                ToolUse(name="add", input={"a": 2, "b": 3}, id="toolu_2"),
                ToolUse(name="look-up", input={"word": "sun"}, id="toolu_3"),
                ToolUse(name="nonsense", input={}, id="toolu_4"),
            ]
        ),
        Turn(say=[Text(text="all found")]),
    )
    async with harness.open() as engine:
        run_id = await engine.dispatch("both")
        row = await engine.wait_for_status(run_id, "waiting")
        assert set(row.row.awaits) == {"toolu_1", "toolu_3"}
        await engine.answer(run_id, "toolu_1", "a satellite")
        await engine.answer(run_id, "toolu_3", "a star")
        assert (await engine.wait_for_outcome(run_id)).result == "all found"
    events = [event.payload for event in harness.events(run_id)]
    assert sorted(one.call_id for one in events if isinstance(one, ToolCall)) == [f"toolu_{n}" for n in (1, 2, 3, 4)]
    results = {one.call_id: (one.output, one.error) for one in events if isinstance(one, ToolResult)}
    assert results["toolu_2"] == (5, None)
    assert results["toolu_4"] == (None, "there is no tool 'nonsense'")
    sent = str(provider.requests()[1].body)
    assert "a satellite" in sent
    assert "a star" in sent


async def test_a_model_that_keeps_calling_tools_is_stopped(harness: EngineHarness, provider: ModelServer):
    harness.add_worker(
        "endless",
        f"""
        steps:
          Start: {{block: start-thread, model: {CLAUDE}, tools: [update_summary], maxSteps: 3}}
          Say: {{block: add-message, text: go}}
          Answer: {{block: next-message, output: SAID}}
        output: SAID
        """,
    )
    provider.say(Turn(say=[ToolUse(name="update_summary", input={"summary": "on and on"})], times=0))
    async with harness.open() as engine:
        outcome = await engine.wait_for_outcome(await engine.dispatch("endless"))
    assert outcome.error is not None
    assert outcome.error.code == "execution_error"
    assert "3 turns" in outcome.error.message
    assert len(provider.requests()) == 3


async def test_an_answer_must_match_the_schema(harness: EngineHarness, provider: ModelServer):
    schema = "{type: object, properties: {n: {type: integer}}, required: [n], additionalProperties: false}"
    harness.add_worker(
        "shaped", ASKS.replace("output: SAID,", f"output: SAID, schema: {schema},").replace(CLAUDE, "openai/gpt-5")
    )
    provider.say(Turn(say=[Text(text='{"n": 7}')]))
    async with harness.open() as engine:
        assert await engine.run_worker("shaped") == {"n": 7}
        provider.say(Turn(say=[Text(text='{"n": "seven"}')]))
        failed = await engine.wait_for_outcome(await engine.dispatch("shaped"))
    assert failed.error is not None
    assert "schema" in failed.error.message


@pytest.mark.req("SDK-32")
async def test_a_tool_that_fails_is_a_tool_error(harness: EngineHarness):
    (harness.folder / "breaks").mkdir(parents=True)
    (harness.folder / "breaks" / "bad.py").write_text("def bad(given):\n    raise ValueError('no such luck')\n")
    harness.add_worker(
        "breaks",
        """
        tools: {bad: {description: Fails., handler: 'bad.py:bad'}}
        steps: {Call: {block: tool-call, tool: bad}}
        """,
    )
    async with harness.open() as engine:
        outcome = await engine.wait_for_outcome(await engine.dispatch("breaks"))
    assert outcome.error is not None
    assert outcome.error.code == "tool_error"
    assert "no such luck" in outcome.error.message


@pytest.mark.req("SDK-33")
async def test_a_step_that_fails_is_an_execution_error(harness: EngineHarness):
    harness.add_worker("fails", "steps: {Do: {block: command, command: 'exit 7'}}")
    async with harness.open() as engine:
        outcome = await engine.wait_for_outcome(await engine.dispatch("fails"))
    assert outcome.error is not None
    assert outcome.error.code == "execution_error"
    assert "exit code 7" in outcome.error.message
