"""Masking of values in the records of agents, and of the runs of their sub-agents."""

from __future__ import annotations

from pathlib import Path

from tests.agents.agent_runner import AgentRunner
from tests.agents.conftest import MakeAgentRunner

KEY = "sk-ant-0123456789abcdefghij"


def recorded_bytes(agent: AgentRunner) -> bytes:
    """Return all that was recorded of a runner's agents."""
    transcripts = Path(agent.env["SHOPFLOOR_STORAGE"]) / "transcripts"
    return b"".join(path.read_bytes() for path in transcripts.iterdir())


def test_the_logs_of_sub_agents_are_masked_as_that_of_their_agent_is(agent_runner: MakeAgentRunner) -> None:
    agent = agent_runner("claude-code", "agents")
    agent.env["SECRET_WORD"] = "in-sub-agent"
    ran = agent.run("--mask-env", "SECRET_WORD")
    assert ran.code == 0, ran.err
    (child,) = ran.children
    assert child.result_of("echo [masked]")["output"] == "[masked]"
    assert b"in-sub-agent" not in recorded_bytes(agent)


def test_a_key_is_neither_on_record_nor_in_anything_derived_from_it(agent_runner: MakeAgentRunner) -> None:
    agent = agent_runner("codex", "echo")
    ran = agent.run("--model", "gpt-5.5", "--mask-keys", prompt=f"Use {KEY} for it.")
    assert ran.code == 0, ran.err
    # The agent itself got the key.
    assert KEY in str(agent.model.requests()[0].body)
    assert ran.log.first["task"] == "Use [masked] for it."
    assert ran.log.texts == ["You said: Use [masked] for it."]
    assert KEY.encode() not in recorded_bytes(agent)
    assert KEY not in ran.out + agent.shopfloor("status", ran.log.run_id, "--json").stdout
