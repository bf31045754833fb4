"""Conversations with models as sessions: their events in the installed `shopfloor`."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from tests.agent_event_schema import checked_events, payloads, types
from tests.cli.conftest import Cli
from tests.model_server.fixtures import model_server, model_server_thread
from tests.model_server.script import Failure, Text, Thinking, Tokens, ToolUse, Turn
from tests.model_server.server import ModelServer
from tests.timeouts import wait_until

__all__ = ["model_server", "model_server_thread"]

CONVERSATION = """
tools:
  add: {description: Adds., parameters: {n: {type: integer}}, handler: "tools.py:add"}
steps:
  Start: {block: start-thread, model: anthropic/claude-sonnet-4-5, tools: [add]}
  Say: {block: add-message, text: "One and one?"}
  First: {block: next-message}
  Again: {block: add-message, text: "And again?"}
  Second: {block: next-message, retry: {limit: 1, delay: 0}}
"""


@pytest.fixture
def anthropic(env: dict[str, str], model_server: ModelServer) -> ModelServer:
    env.update(model_server.env)
    return model_server


@pytest.mark.req("FE-9", "FE-11", "FE-21", "FE-22")
def test_a_call_of_a_model_is_a_session_of_its_provider(shopfloor: Cli, anthropic: ModelServer) -> None:
    anthropic.say(Turn(say=[Thinking(thinking="Hm."), Text(text="Hello.")], usage=Tokens(input=120, cache_read=20)))
    assert shopfloor("run", "--provider", "anthropic", "Hello?", "--quiet").returncode == 0
    events = checked_events(shopfloor("events", "--provider", "anthropic", "--json").stdout)
    assert types(events) == ["spawned", "ready", "thinking", "completed"]
    (spawned,), (ready,) = payloads(events, "agent.spawned"), payloads(events, "agent.ready")
    assert (spawned["accessMode"], spawned["agentId"]) == ("api", f"{spawned['taskId']}:begin:0")
    assert spawned["process"] == {"pid": None, "command": None, "args": [], "cwd": None}
    assert spawned["workerId"]
    assert ready["initialization"]["contextTokens"] == 120
    (completed,) = payloads(events, "agent.completed")
    assert completed["result"] == {"success": True, "exitCode": None}
    assert (completed["metrics"]["tokensInput"], completed["metrics"]["tokensOutput"]) == (120, 20)
    assert completed["metrics"]["cost"] > 0


@pytest.mark.req("FE-13", "FE-14", "FE-17", "FE-19")
def test_a_thread_is_one_session_with_its_calls_errors_and_waits(
    shopfloor: Cli, anthropic: ModelServer, tmp_path: Path
) -> None:
    folder = tmp_path / "workers" / "talk"
    folder.mkdir(parents=True)
    (folder / "worker.yaml").write_text(CONVERSATION)
    (folder / "tools.py").write_text("def add(given):\n    return given['n'] + 1\n")
    anthropic.say(
        Turn(say=[ToolUse(name="add", input={"n": 1})]),
        Turn(fail=Failure(status=429, type="rate_limit_error", headers={"retry-after": "1"})),
        Turn(say=[Text(text="Two.")]),
        Turn(fail=Failure(status=500)),
        Turn(say=[Text(text="Two again.")]),
    )
    ran = shopfloor("run", "talk", "--workers", str(folder.parent), "--quiet")
    assert ran.returncode == 0, ran.stderr
    events = checked_events(shopfloor("events", "last", "--json").stdout)
    assert types(events) == ["spawned", "ready", "tool_call", "tool_result", "rate_limited", "error", "completed"]
    assert len({event["payload"]["agentId"] for event in events}) == 1
    (call,), (result,) = payloads(events, "agent.tool_call"), payloads(events, "agent.tool_result")
    assert (call["tool"]["input"], result["tool"]["output"]) == ({"n": 1}, 2)
    (limited,), (error,) = payloads(events, "agent.rate_limited"), payloads(events, "agent.error")
    assert (limited["accessMode"], limited["action"]["type"]) == ("api", "wait")
    # Whole seconds, rounded up: the wait is recorded a moment before its second begins.
    assert limited["action"]["waitSeconds"] in (1, 2)
    assert error["action"] == {"type": "retry", "retryCount": 1}
    (completed,) = payloads(events, "agent.completed")
    assert (completed["metrics"]["tokensInput"], completed["metrics"]["toolCalls"]) == (300, 1)


@pytest.mark.req("FE-23")
def test_a_cancelled_conversation_is_terminated_by_the_user(
    shopfloor: Cli, start, transcripts, anthropic: ModelServer
) -> None:
    anthropic.say(Turn(say=[Text(text="Never.")], wait=600))
    process = start("run", "--provider", "anthropic", "Hello?", "--quiet")
    wait_until(lambda: transcripts() and '"kind":"next-message"' in transcripts()[0].read_text(), "the step")
    process.send_signal(signal.SIGINT)
    process.wait()
    events = checked_events(shopfloor("events", "last", "--json").stdout)
    assert types(events) == ["spawned", "terminated"]
    assert payloads(events, "agent.terminated")[0]["reason"] == "user_cancel"


@pytest.mark.req("FE-23")
def test_a_conversation_that_is_cancelled_after_its_process_died_is_terminated_by_the_user(
    shopfloor: Cli, start, transcripts, anthropic: ModelServer
) -> None:
    anthropic.say(Turn(say=[Text(text="Never.")], wait=600))
    process = start("run", "--provider", "anthropic", "Hello?", "--quiet")
    wait_until(lambda: transcripts() and '"kind":"next-message"' in transcripts()[0].read_text(), "the step")
    process.kill()
    process.wait()
    assert shopfloor("cancel", "last").returncode == 0
    events = checked_events(shopfloor("events", "last", "--json").stdout)
    assert types(events) == ["spawned", "terminated"]
    assert payloads(events, "agent.terminated")[0]["reason"] == "user_cancel"


def test_a_scripted_model_is_local(shopfloor: Cli) -> None:
    assert shopfloor("run", "hello", "-i", "NAME=Ada", "--quiet").returncode == 0
    (spawned,) = payloads(checked_events(shopfloor("events", "last", "--json").stdout), "agent.spawned")
    assert (spawned["providerId"], spawned["accessMode"]) == ("script", "local")
