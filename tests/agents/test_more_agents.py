"""Gemini CLI, Copilot CLI and OpenCode themselves, under the installed `shopfloor`: what all of them can do.

They are slow to start, so that `make test` leaves them to `make test-agents`.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.agents.agent_runner import PROMPT, AgentRunner, Fields, Log
from tests.agents.conftest import MakeAgentRunner

pytestmark = pytest.mark.more_agents

MODELS = {"gemini": ("--model", "gemini-2.5-flash"), "copilot": (), "opencode": ()}
"""The models of providers that need an option; the others have theirs in their settings."""


@pytest.fixture(params=list(MODELS))
def agent(request: pytest.FixtureRequest, agent_runner: MakeAgentRunner) -> Callable[[str], AgentRunner]:
    return lambda scenario: agent_runner(request.param, scenario)


def usage(provider: str, calls: int) -> Fields | None:
    """Return the reported usage: none by Copilot, and Gemini's output excludes thinking."""
    if provider == "copilot":
        return None
    output = {"gemini": 57, "opencode": 45}[provider]
    read = {"input": 400 * calls, "cache_read": 800 * calls, "cache_write": 0}
    return {**read, "output": output * calls, "reasoning": 12 * calls}


def completed(agent: AgentRunner, log: Log, calls: int) -> bool:
    assert log.outcome["status"] == "completed", log.outcome
    assert log.outcome.get("usage") == usage(agent.provider, calls)
    return True


def test_its_messages_are_on_record_and_its_answer_is_printed(agent):
    one = agent("text")
    ran = one.run(*MODELS[one.provider])
    assert ran.code == 0, ran.err
    assert completed(one, ran.log, calls=1)
    assert ran.log.text == "Hello from the script. Snowman ☃, emoji 😀, <b>html</b>,\nend."
    assert ran.log.outcome["result"] == ran.log.text
    assert "Snowman ☃, emoji 😀" in ran.out
    assert (ran.log.first["name"], ran.log.first["task"]) == (one.provider, PROMPT)
    assert ran.log.session["provider"] == one.provider
    assert ran.log.session_id


def test_a_command_and_its_result_are_on_record(agent):
    one = agent("bash")
    ran = one.run(*MODELS[one.provider])
    assert completed(one, ran.log, calls=2)
    (call,), (result,) = ran.log.calls, ran.log.results
    assert call["name"] == ("run_shell_command" if one.provider == "gemini" else "bash")
    assert call["input"]["command"] == "echo hello-from-tool && pwd"
    assert call["call_id"] == result["call_id"]
    assert f"hello-from-tool\n{one.cwd}" in result["output"]
    assert ran.log.text == "I will run a command.The command printed hello-from-tool."


def test_a_command_that_fails_is_no_failure_of_the_run(agent):
    one = agent("fail")
    ran = one.run(*MODELS[one.provider])
    assert completed(one, ran.log, calls=2)
    (result,) = ran.log.results
    assert "to-stdout" in result["output"]
    assert result.get("exit_code") == (None if one.provider == "gemini" else 1)
    assert ran.log.text == "The command failed."


def test_a_rate_limit_that_passes_is_waited_for(agent):
    one = agent("rl_once")
    ran = one.run(*MODELS[one.provider])
    assert completed(one, ran.log, calls=1)
    assert ran.log.text == "Answer after one retry."
    with_tools = [requests for requests in one.model.requests() if requests.body.get("tools")]
    assert len(with_tools) == 2


def test_a_session_is_resumed(agent):
    one = agent("echo")
    words = MODELS[one.provider]
    first = one.run(*words)
    second = one.run(*words, "--resume", first.log.run_id, prompt="And now the rest.")
    assert second.log.outcome["status"] == "completed"
    before, _, after = second.log.text.partition("And now the rest.")
    assert PROMPT in before
    assert after in ("", '"')
    assert second.log.session["resumed"] is True
    assert second.log.session_id == first.log.session_id


def test_a_cancel_ends_the_agent_and_its_commands(agent):
    one = agent("long")
    process = one.start(*MODELS[one.provider])
    log = one.wait_for_tool(process)
    cancelled = one.shopfloor("cancel", log.run_id, "--reason", "wrong task")
    assert cancelled.returncode == 0, cancelled.stderr
    ran = one.end(process)
    assert ran.log.outcome["status"] == "cancelled"
    assert (ran.log.error["code"], ran.log.error["message"]) == ("cancelled", "wrong task")
    assert not (one.cwd / "ended").exists()
