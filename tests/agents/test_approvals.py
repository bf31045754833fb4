"""Agents ask before they call a tool, and a person decides: at the terminal, and from another process."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest
from tests.agents.agent_runner import PROMPT, SECONDS, AgentRunner, Fields, Log
from tests.agents.conftest import MakeAgentRunner
from tests.cli.terminal import Terminal
from tests.timeouts import wait_until

PROMPTED = "(empty: leave it waiting): "


ASKING = ["claude-code", "claude-sdk"]
"""The agents that can ask."""
IN_ADVANCE = "without a terminal, its tools can only be allowed or denied in advance"
REFUSED = {
    "codex": "`codex exec` never asks, and runs a hook only after the user has reviewed it",
    **dict.fromkeys(("gemini", "copilot", "opencode"), IN_ADVANCE),
}
"""The agents that cannot ask, and why."""


@pytest.fixture(params=ASKING)
def agent(agent_runner: MakeAgentRunner, request: pytest.FixtureRequest) -> AgentRunner:
    return agent_runner(request.param, "bash")


@pytest.fixture
def terminal(agent: AgentRunner) -> Iterator[Terminal]:
    command = ("run", "--provider", agent.provider, PROMPT, "--cwd", str(agent.cwd), "--approve", "Bash(echo*)")
    seen = Terminal(*command, env=agent.env)
    yield seen
    seen.close()


def decisions(log: Log) -> list[tuple[Fields, Fields]]:
    """Return the approvals of a run: what was asked, and the decision."""
    asked = {call["call_id"]: call for call in log.calls if call["name"] == "approval"}
    return [(asked[result["call_id"]], result) for result in log.results if result["call_id"] in asked]


def tool_result(log: Log) -> Fields:
    (result,) = [result for result in log.results if result["name"] != "approval"]
    return result


@pytest.mark.req("SF-56")
def test_a_command_runs_once_it_is_approved_at_the_terminal(agent: AgentRunner, terminal: Terminal) -> None:
    terminal.wait_for(PROMPTED, SECONDS)
    assert "approval of Bash: echo hello-from-tool && pwd" in terminal.shown
    assert "2. approve for this run" in terminal.shown
    terminal.type("1\n")
    assert terminal.end(SECONDS) == 0, terminal.shown
    (log,) = agent.logs()
    ((asked, decision),) = decisions(log)
    assert asked["awaits"]["kind"] == "approval"
    assert asked["input"]["input"]["command"] == "echo hello-from-tool && pwd"
    assert decision["output"] == {"decision": "approve", "scope": "once"}
    assert tool_result(log)["output"] == f"hello-from-tool\n{agent.cwd}"
    kinds = [(event["type"], event["payload"].get("name")) for event in log.events]
    assert kinds.index(("tool.result", "approval")) < kinds.index(("tool.result", "Bash"))


def test_a_denied_command_does_not_run_and_the_agent_gets_the_reason(agent: AgentRunner, terminal: Terminal) -> None:
    terminal.wait_for(PROMPTED, SECONDS)
    terminal.type("deny: not on a Friday\n")
    assert terminal.end(SECONDS) == 0, terminal.shown
    (log,) = agent.logs()
    assert "not on a Friday" in tool_result(log)["error"]
    assert "hello-from-tool\n" not in json.dumps(tool_result(log))
    (_, decision) = decisions(log)[0]
    assert decision["error"] == "denied: not on a Friday"


def test_a_decision_that_was_made_while_nothing_ran_counts_when_the_agent_asks_again(agent: AgentRunner) -> None:
    waiting = agent.shopfloor("run", "--provider", agent.provider, PROMPT, "--cwd", str(agent.cwd), "--approve", "Bash")
    assert waiting.returncode == 75, waiting.stderr
    assert "shopfloor answer" in waiting.stderr
    answered = agent.shopfloor("answer", "last", "approve")
    assert answered.returncode == 0, answered.stderr
    second = agent.shopfloor("answer", "last", "deny")
    assert (second.returncode, "answered already" in second.stderr) == (5, True), second.stderr
    agent.set_scenario("bash")
    resumed = agent.shopfloor("resume", "last")
    assert resumed.returncode == 0, resumed.stderr
    (log,) = agent.logs()
    assert len(decisions(log)) == 1, "the agent asked twice, the person once"
    assert any(result.get("output") == f"hello-from-tool\n{agent.cwd}" for result in log.results)


@pytest.fixture
def dispatch(agent: AgentRunner) -> Iterator[Callable[..., None]]:
    """Have a server execute a run of the agent that asks before each command."""
    up = agent.shopfloor("up", "--detach", "--port", "0")
    assert up.returncode == 0, up.stderr

    def start(*options: str) -> None:
        command = ("run", "--detach", "--provider", agent.provider, PROMPT, "--cwd", str(agent.cwd))
        sent = agent.shopfloor(*command, "--approve", "Bash", *options)
        assert sent.returncode == 0, sent.stderr

    yield start
    agent.shopfloor("down")


def has_ended(agent: AgentRunner) -> bool:
    return any(log.events[-1]["type"] == "run.completed" for log in agent.logs() if log.events)


@pytest.mark.req("SF-57")
def test_a_command_that_is_not_approved_in_time_is_denied_and_the_agent_goes_on(
    agent: AgentRunner, dispatch: Callable[..., None]
) -> None:
    dispatch("--approve-timeout", "1")
    wait_until(lambda: has_ended(agent), "the outcome", SECONDS)
    (log,) = agent.logs()
    ((_, decision),) = decisions(log)
    assert decision["error"].startswith("no answer to 'approval' by ")
    assert "denied: no answer to 'approval' by " in tool_result(log)["error"]
    assert log.outcome["status"] == "completed"


def test_a_cancel_ends_an_agent_that_waits_for_an_approval(agent: AgentRunner, dispatch: Callable[..., None]) -> None:
    dispatch()
    wait_until(
        lambda: [call for log in agent.logs() for call in log.calls if call["name"] == "approval"], "the request"
    )
    (log,) = agent.logs()
    pid = log.session["process"]["pid"]
    assert pid in agent.live_processes()
    cancelled = agent.shopfloor("cancel", log.run_id)
    assert cancelled.returncode == 0, cancelled.stderr
    wait_until(lambda: has_ended(agent), "the outcome", SECONDS)
    assert agent.logs()[0].outcome["status"] == "cancelled"
    assert pid not in agent.live_processes()


def test_of_several_calls_at_once_only_the_named_one_is_asked_for(agent: AgentRunner) -> None:
    agent.set_scenario("parallel")
    command = ("run", "--provider", agent.provider, PROMPT, "--cwd", str(agent.cwd), "--approve", "Bash(echo second)")
    assert agent.shopfloor(*command).returncode == 75
    (log,) = agent.logs()
    assert [call["input"]["input"]["command"] for call in log.calls if call["name"] == "approval"] == ["echo second"]


def test_a_command_that_matches_no_pattern_runs_without_asking(agent: AgentRunner) -> None:
    ran = agent.run("--approve", "Bash(git push*)", "--approve", "Edit")
    assert (ran.code, decisions(ran.log)) == (0, []), ran.err
    assert tool_result(ran.log)["output"] == f"hello-from-tool\n{agent.cwd}"


def test_an_edit_is_asked_for_although_edits_are_allowed_and_shows_its_difference(agent: AgentRunner) -> None:
    agent.set_scenario("files")
    waiting = agent.shopfloor("run", "--provider", agent.provider, PROMPT, "--cwd", str(agent.cwd), "--approve", "Edit")
    assert waiting.returncode == 75, waiting.stdout + waiting.stderr
    (log,) = agent.logs()
    (asked,) = [call for call in log.calls if call["name"] == "approval"]
    assert asked["input"]["tool"] == "Edit"
    assert {line[0] for line in asked["input"]["diff"].splitlines()[1:]} >= {"-", "+"}


@pytest.mark.req("SF-56")
def test_agents_that_cannot_ask_are_refused_before_they_start(agent_runner: MakeAgentRunner) -> None:
    agent = agent_runner("codex", "bash")
    for provider, reason in REFUSED.items():
        refused = agent.shopfloor("run", "--provider", provider, PROMPT, "--cwd", str(agent.cwd), "--approve", "Bash")
        assert refused.returncode == 2
        assert f"{provider} cannot ask for an approval before it calls a tool: Bash; {reason}" in refused.stderr
        assert "use claude-code or claude-sdk, which can, or remove `approve`" in refused.stderr
    assert agent.logs() == []
