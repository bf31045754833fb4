"""The events of real agents, each from its cause, checked against the contract."""

from __future__ import annotations

import pytest
from tests.agent_event_schema import checked_events, payloads, types
from tests.agents.agent_runner import AgentRunner, Fields, FinishedRun
from tests.agents.conftest import MakeAgentRunner

RETRIED = """
steps:
  Ask: {block: agent, provider: codex, model: gpt-5.5, text: Hello., retry: {limit: 1, delay: 0, always: true}}
"""


def events_of(agent: AgentRunner, ran: FinishedRun) -> list[Fields]:
    shown = agent.shopfloor("events", ran.log.run_id, "--json")
    assert shown.returncode == 0, shown.stderr
    return checked_events(shown.stdout)


@pytest.mark.req("FE-9", "FE-11", "FE-12", "FE-13", "FE-14")
def test_a_session_is_reported_from_its_start_to_its_end(agent_runner: MakeAgentRunner) -> None:
    agent = agent_runner("claude-code", "thinking")
    ran = agent.run()
    assert ran.code == 0, ran.err
    events = events_of(agent, ran)
    assert types(events) == ["spawned", "ready", "thinking", "tool_call", "tool_result", "thinking", "completed"]
    (spawned,), (ready,) = payloads(events, "agent.spawned"), payloads(events, "agent.ready")
    assert spawned["agentId"] == f"{ran.log.run_id}:claude-code:0:1"
    assert (spawned["providerId"], spawned["taskId"]) == ("claude-code", ran.log.run_id)
    assert (spawned["workerId"], spawned["accessMode"]) == (ran.log.first["host"], "api")
    # The context of the scripted model: 1200 new tokens, 800 read from a cache and 100 written to it.
    assert (ready["initialization"]["contextLoaded"], ready["initialization"]["contextTokens"]) == (True, 2100)
    assert {event["payload"]["agentId"] for event in events} == {spawned["agentId"]}


@pytest.mark.req("FE-15", "FE-22")
def test_changed_files_are_reported_and_a_context_that_is_not_reported_is_null(agent_runner: MakeAgentRunner) -> None:
    agent = agent_runner("codex", "files")
    events = events_of(agent, agent.run("--model", "gpt-5.5"))
    assert [change["file"]["action"] for change in payloads(events, "agent.file_change")] == ["create", "modify"]
    (ready,), (completed,) = payloads(events, "agent.ready"), payloads(events, "agent.completed")
    assert ready["initialization"]["contextTokens"] is None
    assert completed["metrics"]["filesChanged"] == 1


@pytest.mark.req("FE-19")
def test_a_limit_of_the_provider_says_how_long_the_session_waits(agent_runner: MakeAgentRunner) -> None:
    agent = agent_runner("claude-code", "limited")
    events = events_of(agent, agent.run())
    limited = payloads(events, "agent.rate_limited")
    assert limited[0]["action"]["type"] == "wait"
    assert limited[0]["action"]["waitSeconds"] > 0
    assert types(events)[-1] == "completed"


@pytest.mark.req("FE-17")
def test_an_error_says_whether_the_step_is_retried(agent_runner: MakeAgentRunner) -> None:
    agent = agent_runner("codex", "unauthorised")
    folder = agent.cwd / "workers" / "retried"
    folder.mkdir(parents=True)
    (folder / "worker.yaml").write_text(RETRIED)
    agent.shopfloor("run", "retried", "--workers", str(folder.parent), "--cwd", str(agent.cwd), "--quiet")
    (log,) = agent.logs()
    events = checked_events(agent.shopfloor("events", log.run_id, "--json").stdout)
    # Before that, Codex itself retries its calls of the model.
    last = {error["agentId"]: error for error in payloads(events, "agent.error")}
    assert [agent_id.rpartition(":")[2] for agent_id in last] == ["1", "2"]
    assert {error["error"]["code"] for error in last.values()} == {"authentication_error"}
    assert [error["action"] for error in last.values()] == [{"type": "retry", "retryCount": 1}, {"type": "abort"}]
    decisions = [step["decision"] for step in log.payloads("step.completed")]
    assert decisions == [{"action": "retry", "try": 2, "delay_seconds": 0.0}, {"action": "abort"}]


@pytest.mark.req("FE-23", "FE-24")
def test_a_session_that_exceeds_its_time_limit_is_terminated(agent_runner: MakeAgentRunner) -> None:
    agent = agent_runner("claude-code", "long")
    process = agent.start("--timeout", "4s")
    agent.wait_for_tool(process)
    ran = agent.end(process)
    assert (ran.code, ran.log.error["code"]) == (124, "step_timeout")
    (terminated,) = payloads(events_of(agent, ran), "agent.terminated")
    assert terminated["reason"] == "timeout"
    assert terminated["metrics"]["tokensUsed"] > 0
    assert not (agent.cwd / "ended").exists()
