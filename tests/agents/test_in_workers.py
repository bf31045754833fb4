"""Agents as steps of workers, and what becomes of them when their host is cut off: with the real Codex."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.agents.conftest import Drive
from tests.agents.driven import Driven, Log, wait_until
from tests.cli.conftest import SHOPFLOOR

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
def codex(driven: Drive) -> Callable[[str], Driven]:
    return lambda scenario: driven("codex", scenario)


def logs_of(agent: Driven) -> list[Log]:
    return [Log(path) for path in sorted((Path(agent.env["SHOPFLOOR_STORAGE"]) / "transcripts").glob("*.jsonl"))]


def worker(agent: Driven, slug: str, name: str, text: str) -> str:
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


def test_every_try_has_a_session_of_its_own(driven: Drive) -> None:
    agent = driven("claude-code", "overloaded")
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


def test_a_worker_in_python_goes_on_in_the_session_of_its_own_agent(codex):
    agent = codex("echo")
    folder = worker(agent, "in-python", "worker.py", IN_PYTHON)
    ran = agent.shopfloor("run", "in-python", "-i", "WORD=please", "--workers", folder, "--cwd", str(agent.cwd))
    assert ran.returncode == 0, ran.stderr
    (log,) = logs_of(agent)
    assert log.outcome["result"] == ["You said: Say please.", "You said: Say please. | And again."]
    assert [step["session"].get("resumed", False) for step in log.payloads("step.started")] == [False, True]


@contextmanager
def serving(agent: Driven) -> Iterator[subprocess.Popen[bytes]]:
    command = [SHOPFLOOR, "up", "--port", "0"]
    nowhere = subprocess.DEVNULL
    process = subprocess.Popen(command, env=agent.env, cwd=agent.cwd, stdin=nowhere, stdout=nowhere, stderr=nowhere)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def test_an_agent_whose_host_was_killed_goes_on_in_its_own_session(codex):
    agent = codex("long")
    with serving(agent) as server:
        wait_until(lambda: agent.shopfloor("list").returncode == 0, "the server")
        asked = ["--input-json", '{"prompt": "Please sleep.", "model": "gpt-5.5"}', "--cwd", str(agent.cwd)]
        sent = agent.shopfloor("dispatch", "codex", *asked)
        assert sent.returncode == 0, sent.stderr
        wait_until(lambda: (agent.cwd / "begun").exists() and logs_of(agent)[0].calls, "the tool")
        os.kill(server.pid, signal.SIGKILL)
        server.wait()
        # Nothing that it started goes on without it.
        wait_until(lambda: not agent.left(), "an end of every process")
    assert not (agent.cwd / "ended").exists()
    agent.tell("echo")
    with serving(agent):
        wait_until(lambda: logs_of(agent)[0].events[-1]["type"] == "run.completed", "the outcome", 40)
    (log,) = logs_of(agent)
    assert log.outcome["status"] == "completed"
    assert log.text.endswith("Go on with what you were doing.")
    assert len(log.payloads("run.started")) == 2
    assert len(log.payloads("step.started")) == 1
    verified = agent.shopfloor("verify", "--all")
    assert verified.returncode == 0, verified.stdout
