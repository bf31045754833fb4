"""A real agent that spends its budget: a webhook and a command are notified of it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.agents.agent_runner import PROMPT, AgentRunner
from tests.agents.conftest import MakeAgentRunner
from tests.cli.conftest import SHOPFLOOR
from tests.contract.test_hooks import receiver
from tests.timeouts import wait_until


@pytest.fixture
def agent(agent_runner: MakeAgentRunner) -> AgentRunner:
    return agent_runner("claude-code", "loop")


@pytest.fixture
def notified(agent: AgentRunner, tmp_path: Path) -> Iterator[Path]:
    """The file to which a server on the agent's storage writes each event for its command."""
    storage, file = Path(agent.env["SHOPFLOOR_STORAGE"]), tmp_path / "notified"
    storage.mkdir(mode=0o700)
    line = '"$SHOPFLOOR_EVENT $SHOPFLOOR_STATUS $SHOPFLOOR_RUN_ID $SHOPFLOOR_TITLE"'
    (storage / "settings.yaml").write_text(f"notify: [{{command: 'echo {line} >> {file}', on: [budget]}}]\n")
    # The server is not a process of the agent: no process of the agent may be left when its run has ended.
    env = {name: value for name, value in agent.env.items() if name != "DRIVEN"}
    up = subprocess.Popen([SHOPFLOOR, "up", "--port", "0"], env=env, cwd="/", stdout=subprocess.PIPE)
    try:
        assert up.stdout is not None
        assert up.stdout.readline().startswith(b"Shopfloor is up: ")
        yield file
    finally:
        up.kill()
        up.communicate()


@pytest.mark.req("SF-59", "SF-61")
def test_a_run_that_spends_its_budget_notifies_a_webhook_and_a_command(agent: AgentRunner, notified: Path):
    with receiver(503) as budgets, receiver() as outcomes:
        for receiving, kind in ((budgets, "budget"), (outcomes, "outcome")):
            assert agent.shopfloor("hooks", "add", receiving.url, "--on", kind).returncode == 0
        after = agent.cwd.parent / "after"
        ran = agent.run("--max-budget", "0.01", "--on-outcome", f"cat > {after}")
        assert ran.log.error["code"] == "budget_exceeded"
        run_id = ran.log.run_id
        wait_until(lambda: len(budgets.got) == 2, "the second delivery, after the receiver had failed")
        wait_until(lambda: outcomes.got, "the outcome")
        wait_until(notified.exists, "the command of the settings file")

    # At least once, and by its id the receiver knows that it is the same.
    (first, body), (second, again) = budgets.got
    assert (first["webhook-id"], body) == (second["webhook-id"], again)
    event = json.loads(body)
    assert (event["type"], event["subject"], event["id"]) == ("shopfloor.run.budget", run_id, first["webhook-id"])
    assert event["data"]["error"]["code"] == "budget_exceeded"
    assert event["data"]["cost_usd"] == pytest.approx(ran.log.outcome["cost"]["usd"])
    (outcome,) = [json.loads(body) for _, body in outcomes.got]
    assert (outcome["type"], outcome["data"]["status"]) == ("shopfloor.run.outcome", "failed")
    assert notified.read_text() == f"budget failed {run_id} {PROMPT}\n"
    assert json.loads(after.read_text())["data"]["error"]["code"] == "budget_exceeded"
