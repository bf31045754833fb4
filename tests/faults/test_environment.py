"""Children see none of Shopfloor's own variables: what a command prints is in a log that others may read."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from tests.faults.engine_server import SHOPFLOOR, Deployment
from tests.timeouts import wait_until

from shopfloor.log import AssistantMessage, TextBlock

SECRETS = {
    "SHOPFLOOR_TOKEN": "canary-of-the-admin-token",
    "SHOPFLOOR_MODEL_VLLM_KEY": "canary-of-a-model-key",
    "SHOPFLOOR_DISK_LOW_WATER": "1000001",
}
ALLOWED = {"SHOPFLOOR_HOST", "SHOPFLOOR_RUN", "SHOPFLOOR_CHILD", "SHOPFLOOR_STORAGE"}

YAML = """
tools: {outside: {description: ''}}
steps:
  Print: {block: command, command: env, output: OUT}
  Given: {block: command, command: env, env: {SHOPFLOOR_GIVEN: on purpose}}
  Ask: {block: tool-call, tool: outside, output: TOOL}
output: TOOL
"""
PYTHON = """
from shopfloor import Run, worker

@worker(slug="printing")
async def printing(run: Run):
    return (await run.command(["env"])).stdout
"""


@pytest.fixture
def deployment(tmp_path: Path) -> Deployment:
    programs = tmp_path / "programs"
    programs.mkdir()
    agent = programs / "claude"
    agent.write_text(f"#!/bin/sh\nenv >> {tmp_path}/agent-$#\nexit 1\n")
    agent.chmod(0o755)
    deployment = Deployment(tmp_path, **SECRETS, PATH=f"{programs}:{os.environ['PATH']}")
    (tmp_path / "workers" / "print").mkdir()
    (tmp_path / "workers" / "print" / "worker.yaml").write_text(YAML)
    (tmp_path / "printing.py").write_text(PYTHON)
    return deployment


def own_variables(text: str) -> set[str]:
    """Return the names of our variables that `env` printed."""
    return {line.partition("=")[0] for line in text.splitlines() if line.startswith("SHOPFLOOR_")}


def output_of(deployment: Deployment, run_id: str) -> dict[str, str]:
    """Return the output of the commands of a run, by path."""
    printed: dict[str, str] = {}
    for event in deployment.events(run_id):
        if isinstance(event.payload, AssistantMessage):
            texts = [block.text for block in event.payload.blocks if isinstance(block, TextBlock)]
            printed[event.path] = printed.get(event.path, "") + "".join(texts)
    return printed


def run(deployment: Deployment, *words: str) -> str:
    """Call `shopfloor run` without a server, and return the id of the new run."""
    before = set(deployment.runs())
    subprocess.run(
        [SHOPFLOOR, "run", *words], env=deployment.env, cwd=deployment.folder, capture_output=True, check=False
    )
    (new,) = set(deployment.runs()) - before
    return new


@pytest.mark.req("SF-4")
def test_commands_agents_and_tools_see_none_of_our_variables_but_the_marks(deployment: Deployment):
    plain_run = run(deployment, "--command", "env")
    assert own_variables(output_of(deployment, plain_run)["command"]) == ALLOWED

    tool = f"outside=env > {deployment.folder}/tool; echo told"
    printing = run(deployment, "print", "--tool", tool)
    printed = output_of(deployment, printing)
    assert own_variables(printed["print"]) == ALLOWED
    assert own_variables(printed["given"]) == ALLOWED | {"SHOPFLOOR_GIVEN"}
    assert own_variables((deployment.folder / "tool").read_text()) == {"SHOPFLOOR_STORAGE"}

    run(deployment, "--provider", "claude-code", "hello")
    started = [path.read_text() for path in deployment.folder.glob("agent-*") if path.name != "agent-1"]
    assert [own_variables(text) for text in started] == [ALLOWED]

    with deployment.up("--workers", str(deployment.folder / "printing.py")) as server:
        assert server.http.get("/api/providers").status_code == 200
        # With one argument, the agent is only asked for its version.
        assert own_variables((deployment.folder / "agent-1").read_text()) == {"SHOPFLOOR_STORAGE"}
        run_id = server.post("/api/runs", worker="printing", input={})["run_id"]
        wait_until(lambda: deployment.outcome(run_id), "the run to end")
        assert own_variables(output_of(deployment, run_id)["command"]) == ALLOWED
        reapers = [pid for pid in _children(server.process.pid) if b"reaper.py" in _read(pid, "cmdline")]
        assert [own_variables(_read(pid, "environ").decode().replace("\0", "\n")) for pid in reapers] == [
            {"SHOPFLOOR_STORAGE"}
        ]
    logs = b"".join(deployment.storage.log_path(one).read_bytes() for one in deployment.runs())
    assert not [name for name, value in SECRETS.items() if json.dumps(value)[1:-1].encode() in logs]


def _children(pid: int) -> list[int]:
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _read(pid: int, name: str) -> bytes:
    return Path(f"/proc/{pid}/{name}").read_bytes()
