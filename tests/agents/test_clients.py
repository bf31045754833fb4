"""A real agent that starts a run with `shopfloor`: the run names the agent's session."""

from __future__ import annotations

import pytest
from tests.agents.agent_runner import SECONDS
from tests.agents.conftest import MakeAgentRunner
from tests.agents.test_codex import MODEL
from tests.cli.conftest import SHOPFLOOR


@pytest.mark.req("SF-46")
@pytest.mark.parametrize(("provider", "options"), [("claude-code", ()), ("codex", MODEL)])
def test_a_run_that_an_agent_starts_names_the_agents_session(
    agent_runner: MakeAgentRunner, provider: str, options: tuple[str, ...]
) -> None:
    agent = agent_runner(provider, "record")
    storage = agent.env["SHOPFLOOR_STORAGE"]
    script = agent.cwd / "record"
    script.write_text(f"#!/bin/sh\nexec {SHOPFLOOR} run --storage {storage} --command 'echo recorded'\n")
    script.chmod(0o755)
    process = agent.start(*options)
    out, err = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, out + err
    logs = {log.first["name"]: log for log in agent.logs()}
    assert logs["command"].outcome["result"] == "recorded\n"
    assert logs["command"].first["client"] == {"name": provider, "session_id": logs[provider].session_id}
    assert "client" not in logs[provider].first
