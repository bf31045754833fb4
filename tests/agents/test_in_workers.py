"""Agents as steps of workers, also when their host is killed, with the real Codex."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.agent_event_schema import checked_events, payloads
from tests.agents.agent_runner import AgentRunner, Fields, Log
from tests.agents.conftest import MakeAgentRunner
from tests.cli.conftest import SHOPFLOOR
from tests.timeouts import TIMEOUT_SECONDS, wait_until

IN_YAML = """
input:
  WORD: {}
steps:
  Look:
    block: agent
    provider: codex
    text: "Say {{WORD}}."
    model: gpt-5.5
    readOnly: true
    output: SAID
output: SAID
"""
IN_PYTHON = """
from shopfloor import worker


@worker(slug="in-python")
async def in_python(run, WORD: str):
    first = await run.agent("codex", f"Say {WORD}.", model="gpt-5.5", read_only=True)
    again = await run.agent("codex", "And again.", model="gpt-5.5", resume=first.session_id)
    return [first.text, again.text]
"""


@pytest.fixture
def codex(agent_runner: MakeAgentRunner) -> Callable[[str], AgentRunner]:
    return lambda scenario: agent_runner("codex", scenario)


def logs_of(agent: AgentRunner) -> list[Log]:
    return [Log(path) for path in sorted((Path(agent.env["SHOPFLOOR_STORAGE"]) / "transcripts").glob("*.jsonl"))]


def worker(agent: AgentRunner, slug: str, name: str, text: str) -> str:
    folder = agent.cwd / "workers" / slug
    folder.mkdir(parents=True)
    (folder / name).write_text(text)
    return str(folder.parent)


def test_a_worker_in_yaml_hands_a_task_to_an_agent(codex):
    agent = codex("echo")
    folder = worker(agent, "in-yaml", "worker.yaml", IN_YAML)
    ran = agent.shopfloor("run", "in-yaml", "-i", "WORD=please", "--workers", folder, "--cwd", str(agent.cwd))
    assert ran.returncode == 0, ran.stderr
    (log,) = logs_of(agent)
    assert log.outcome["result"] == "You said: Say please."
    (step,) = log.payloads("step.started")
    assert (step["kind"], step["session"]["provider"]) == ("agent", "codex")
    assert log.outcome["usage"]["output"] == 45
    assert log.first["worker_type"] == "builtin"


def test_every_try_has_a_session_of_its_own(agent_runner: MakeAgentRunner) -> None:
    agent = agent_runner("claude-code", "overloaded")
    text = IN_YAML.replace("codex", "claude-code").replace("gpt-5.5", "claude-opus-5-5")
    text = text.replace("    output: SAID", "    retry: {limit: 1, delay: 0}\n    output: SAID")
    folder = worker(agent, "in-yaml", "worker.yaml", text)
    ran = agent.shopfloor("run", "in-yaml", "-i", "WORD=please", "--workers", folder, "--cwd", str(agent.cwd))
    assert ran.returncode != 0
    (log,) = logs_of(agent)
    assert log.error["code"] == "provider_overloaded"
    tries = log.payloads("step.started")
    assert [step["try"] for step in tries] == [1, 2]
    assert len({step["session"]["session_id"] for step in tries}) == 2


def test_a_worker_in_python_resumes_the_session_of_its_own_agent(codex):
    agent = codex("echo")
    folder = worker(agent, "in-python", "worker.py", IN_PYTHON)
    ran = agent.shopfloor("run", "in-python", "-i", "WORD=please", "--workers", folder, "--cwd", str(agent.cwd))
    assert ran.returncode == 0, ran.stderr
    (log,) = logs_of(agent)
    assert log.outcome["result"] == ["You said: Say please.", "You said: Say please. | And again."]
    assert [step["session"].get("resumed", False) for step in log.payloads("step.started")] == [False, True]


@contextmanager
def serving(agent: AgentRunner) -> Iterator[subprocess.Popen[bytes]]:
    command = [SHOPFLOOR, "up", "--port", "0"]
    nowhere = subprocess.DEVNULL
    process = subprocess.Popen(command, env=agent.env, cwd=agent.cwd, stdin=nowhere, stdout=nowhere, stderr=nowhere)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(TIMEOUT_SECONDS)


def reported_usages(log: Log) -> list[Fields]:
    return [message["usage"] for message in log.payloads("message.assistant") if message.get("usage")]


def calls(log: Log) -> list[Fields]:
    return log.calls


def killed_with_its_host(agent: AgentRunner, model: str, until: Callable[[Log], object] = calls) -> Log:
    """Kill an agent and its host in the middle of a tool, as soon as `until` is true of the log."""
    with serving(agent) as server:
        wait_until(lambda: agent.shopfloor("list").returncode == 0, "the server")
        options = ["--input-json", json.dumps({"prompt": "Please sleep.", "model": model}), "--cwd", str(agent.cwd)]
        sent = agent.shopfloor("dispatch", agent.provider, *options)
        assert sent.returncode == 0, sent.stderr
        wait_until(lambda: (agent.cwd / "begun").exists() and until(logs_of(agent)[0]), "the tool")
        os.kill(server.pid, signal.SIGKILL)
        server.wait()
        # No process that the host started outlives it.
        wait_until(lambda: not agent.live_processes(), "an end of every process")
    assert not (agent.cwd / "ended").exists()
    (log,) = logs_of(agent)
    return log


def resumed_log(agent: AgentRunner) -> Log:
    agent.set_scenario("echo")
    with serving(agent):
        wait_until(lambda: logs_of(agent)[0].events[-1]["type"] == "run.completed", "the outcome")
    (log,) = logs_of(agent)
    assert log.outcome["status"] == "completed"
    return log


def test_the_usage_of_an_agent_whose_host_was_killed_is_not_lost(agent_runner: MakeAgentRunner) -> None:
    agent = agent_runner("claude-code", "long")
    killed = killed_with_its_host(agent, "claude-sonnet-4-5", until=reported_usages)
    (usage,) = reported_usages(killed)
    assert (usage["input"], usage["output"]) == (1200, 45)
    status = json.loads(agent.shopfloor("status", killed.run_id, "--json").stdout)
    assert (status["status"], status["usage"]) == ("running", usage)
    log = resumed_log(agent)
    (rest,) = log.payloads("step.completed")
    status = json.loads(agent.shopfloor("status", log.run_id, "--json").stdout)
    # The last process reports its own usage; the recorded usage of the first process is added.
    assert rest["usage"]["output"] == 45
    assert status["usage"] == {name: 2 * count for name, count in usage.items()}
    assert status["cost_usd"] == pytest.approx(2 * rest["cost"]["usd"])


@pytest.mark.req("FE-10", "FE-23")
def test_an_agent_whose_host_was_killed_resumes_its_own_session(codex):
    agent = codex("long")
    killed_with_its_host(agent, "gpt-5.5")
    log = resumed_log(agent)
    assert log.text.endswith("Go on with what you were doing.")
    assert len(log.payloads("run.started")) == 2
    assert len(log.payloads("step.started")) == 1
    events = checked_events(agent.shopfloor("events", log.run_id, "--json").stdout)
    first, second = payloads(events, "agent.spawned")
    assert [ended["reason"] for ended in payloads(events, "agent.terminated")] == ["system"]
    assert second["agentId"] == f"{first['agentId']}:2"
    assert second["process"]["pid"] not in (None, first["process"]["pid"])
    assert second["process"]["command"] == first["process"]["command"]
    assert "resume" in second["process"]["args"]
    verified = agent.shopfloor("verify", "--all")
    assert verified.returncode == 0, verified.stdout
