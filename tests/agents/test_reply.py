"""Replies to real agents: a new run continues the session of an earlier one, under the installed `shopfloor`."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import pytest
from tests.agents.agent_runner import PROMPT, SECONDS, AgentRunner, Log
from tests.agents.conftest import MakeAgentRunner

from shopfloor.record import Storage


def reply(agent: AgentRunner, run_id: str, text: str) -> Log:
    """Reply to a run, and return the log of the new run."""
    known = {log.run_id for log in agent.logs()}
    replied = agent.shopfloor("reply", run_id, text)
    assert replied.returncode == 0, replied.stderr
    (log,) = [log for log in agent.logs() if log.run_id not in known]
    return log


@pytest.mark.req("SF-54")
def test_a_reply_continues_a_copy_of_the_session_of_claude_code(agent_runner: MakeAgentRunner) -> None:
    agent = agent_runner("claude-code", "echo")
    first = agent.run("--max-turns", "5").log
    second = reply(agent, first.run_id, "And now the rest.")
    assert second.texts == [f"You said: {PROMPT} | And now the rest."]
    assert second.first["based_on"] == {"run_id": first.run_id, "kind": "reply"}
    assert (second.first["task"], second.first["input"]["max_turns"]) == ("And now the rest.", 5)
    assert (second.first["cwd"], second.session["resumed"]) == (str(agent.cwd), True)
    # The session of the first run stays as it is: a second reply to it does not know the first reply.
    third = reply(agent, first.run_id, "Something else instead.")
    assert third.texts == [f"You said: {PROMPT} | Something else instead."]
    assert len({first.session_id, second.session_id, third.session_id}) == 3
    fourth = reply(agent, second.run_id, "Go on.")
    assert fourth.texts == [f"You said: {PROMPT} | And now the rest. | Go on."]
    # Each run has only its own cost, although the agent counts that of the whole session.
    assert fourth.outcome["cost"]["usd"] == pytest.approx(first.outcome["cost"]["usd"])
    shown = agent.shopfloor("show", first.run_id).stdout
    assert f"reply {third.run_id[:8]}, reply {second.run_id[:8]}" in shown
    assert f"reply to {first.run_id}" in agent.shopfloor("show", second.run_id).stdout


def test_an_interrupted_session_of_claude_code_is_replied_to_while_its_run_can_still_be_resumed(
    agent_runner: MakeAgentRunner,
) -> None:
    agent = agent_runner("claude-code", "long")
    process = agent.start()
    first = agent.wait_for_tool(process)
    refused = agent.shopfloor("reply", first.run_id, "Stop that.")
    assert (refused.returncode, "has not ended: it is running" in refused.stderr) == (5, True), refused.stderr
    process.kill()
    process.wait()
    agent.set_scenario("echo")
    assert reply(agent, first.run_id, "Do this instead.").text.endswith("Do this instead.")


def test_only_the_newest_run_of_a_session_of_codex_can_be_replied_to(agent_runner: MakeAgentRunner) -> None:
    agent = agent_runner("codex", "echo")
    first = agent.run("--model", "gpt-5.5").log
    second = reply(agent, first.run_id, "And now the rest.")
    assert second.texts == [f"You said: {PROMPT} | And now the rest."]
    assert second.session_id == first.session_id
    refused = agent.shopfloor("reply", first.run_id, "Something else instead.")
    assert refused.returncode == 5
    assert f"the session of the run {first.run_id} continues in the run {second.run_id}" in refused.stderr
    assert f"shopfloor reply {second.run_id[:8]}" in refused.stderr


@pytest.mark.req("SF-54")
def test_a_repeated_reply_with_its_key_is_the_same_run(agent_runner: MakeAgentRunner) -> None:
    agent = agent_runner("codex", "echo")
    first = agent.run("--model", "gpt-5.5").log
    assert agent.shopfloor("up", "--detach", "--port", "0").returncode == 0
    try:
        address = json.loads(Storage(Path(agent.env["SHOPFLOOR_STORAGE"])).server_address.read_bytes())
        headers = {"Authorization": f"Bearer {address['token']}"}
        with httpx.Client(base_url=address["url"], headers=headers, timeout=SECONDS, trust_env=False) as http:
            body = {"text": "And now the rest.", "idempotency_key": "once"}
            got = [http.post(f"/api/runs/{first.run_id}/reply", json=body) for _ in range(2)]
            other = http.post(f"/api/runs/{first.run_id}/reply", json={**body, "idempotency_key": "twice"})
    finally:
        agent.shopfloor("down")
    assert [response.status_code for response in got] == [200, 200], got[1].text
    assert got[0].json() == got[1].json()
    assert other.status_code == 409
    assert f"continues in the run {got[0].json()['run_id']}" in other.json()["error"]["message"]


def test_the_session_of_an_agent_cannot_be_cut_by_a_fork(agent_runner: MakeAgentRunner) -> None:
    agent = agent_runner("claude-code", "bash")
    first = agent.run().log
    (call,) = [event for event in first.events if event["type"] == "tool.call"]
    refused = agent.shopfloor("fork", first.run_id, "--at", str(call["seq"]))
    assert refused.returncode == 5
    assert "is inside the session of the agent step 'claude-code', which cannot be cut" in refused.stderr
    assert len(agent.logs()) == 1
