"""Children see none of Shopfloor's own variables: what a command prints is in a log that others may read."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from tests.faults.engine_server import SHOPFLOOR, Shop
from tests.patience import wait_until

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
def shop(tmp_path: Path) -> Shop:
    programs = tmp_path / "programs"
    programs.mkdir()
    agent = programs / "claude"
    agent.write_text(f"#!/bin/sh\nenv >> {tmp_path}/agent-$#\nexit 1\n")
    agent.chmod(0o755)
    shop = Shop(tmp_path, **SECRETS, PATH=f"{programs}:{os.environ['PATH']}")
    (tmp_path / "workers" / "print").mkdir()
    (tmp_path / "workers" / "print" / "worker.yaml").write_text(YAML)
    (tmp_path / "printing.py").write_text(PYTHON)
    return shop


def own_variables(text: str) -> set[str]:
    """Names of our variables that `env` printed."""
    return {line.partition("=")[0] for line in text.splitlines() if line.startswith("SHOPFLOOR_")}


def output_of(shop: Shop, run_id: str) -> dict[str, str]:
    """What the commands of a run printed, by their paths."""
    printed: dict[str, str] = {}
    for event in shop.events(run_id):
        if isinstance(event.payload, AssistantMessage):
            texts = [block.text for block in event.payload.blocks if isinstance(block, TextBlock)]
            printed[event.path] = printed.get(event.path, "") + "".join(texts)
    return printed


def run(shop: Shop, *words: str) -> str:
    """Call `shopfloor run` where no server runs, and give the id of the new run."""
    before = set(shop.runs())
    subprocess.run([SHOPFLOOR, "run", *words], env=shop.env, cwd=shop.folder, capture_output=True, check=False)
    (new,) = set(shop.runs()) - before
    return new


@pytest.mark.req("SF-4")
def test_commands_agents_and_tools_see_none_of_our_variables_but_the_marks(shop: Shop):
    bare = run(shop, "--command", "env")
    assert own_variables(output_of(shop, bare)["command"]) == ALLOWED

    tool = f"outside=env > {shop.folder}/tool; echo told"
    printing = run(shop, "print", "--tool", tool)
    printed = output_of(shop, printing)
    assert own_variables(printed["print"]) == ALLOWED
    assert own_variables(printed["given"]) == ALLOWED | {"SHOPFLOOR_GIVEN"}
    assert own_variables((shop.folder / "tool").read_text()) == {"SHOPFLOOR_STORAGE"}

    run(shop, "--provider", "claude-code", "hello")
    started = [path.read_text() for path in shop.folder.glob("agent-*") if path.name != "agent-1"]
    assert [own_variables(text) for text in started] == [ALLOWED]

    with shop.up("--workers", str(shop.folder / "printing.py")) as server:
        assert server.http.get("/api/providers").status_code == 200
        # Asked for its version, the agent has one argument.
        assert own_variables((shop.folder / "agent-1").read_text()) == {"SHOPFLOOR_STORAGE"}
        run_id = server.post("/api/runs", worker="printing", input={})["run_id"]
        wait_until(lambda: shop.outcome(run_id), "the run to end")
        assert own_variables(output_of(shop, run_id)["command"]) == ALLOWED
        minders = [pid for pid in _children(server.process.pid) if b"minder.py" in _read(pid, "cmdline")]
        assert [own_variables(_read(pid, "environ").decode().replace("\0", "\n")) for pid in minders] == [
            {"SHOPFLOOR_STORAGE"}
        ]
    logs = b"".join(shop.storage.log_path(one).read_bytes() for one in shop.runs())
    assert not [name for name, value in SECRETS.items() if json.dumps(value)[1:-1].encode() in logs]


def _children(pid: int) -> list[int]:
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _read(pid: int, name: str) -> bytes:
    return Path(f"/proc/{pid}/{name}").read_bytes()
