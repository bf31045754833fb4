"""Requests of an agent for permissions, with a program that speaks as Claude Code does."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.engine.harness import EngineHarness, RunningEngine

from shopfloor.log import ToolCall
from shopfloor.ports import RunRequest

pytestmark = pytest.mark.anyio

PROGRAM = """\
#!{python}
import json, sys

def ask(request_id, command):
    request = {{"subtype": "can_use_tool", "tool_name": "Bash", "input": {{"command": command}}, "tool_use_id": request_id}}
    return {{"type": "control_request", "request_id": request_id, "request": request}}

def write(*records):
    sys.stdout.write("".join(json.dumps(record) + "\\n" for record in records))
    sys.stdout.flush()

if "--version" in sys.argv:
    sys.exit(print("2.1.325 (Claude Code)"))
sys.stdin.readline()
write({{"type": "system", "subtype": "init", "session_id": "s", "cwd": "/", "tools": ["Bash"], "model": "m"}})
{body}
write({{"type": "result", "subtype": "success", "is_error": False, "num_turns": 1, "session_id": "s", "result": answer}})
"""


@pytest.fixture
def claude(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Install a program with this body as `claude`."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "key")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)

    def install(body: str) -> None:
        (tmp_path / "claude").write_text(PROGRAM.format(python=sys.executable, body=body))
        (tmp_path / "claude").chmod(0o755)

    return install


def approvals(harness: EngineHarness, run_id: str) -> list[ToolCall]:
    payloads = [event.payload for event in harness.verified_events(run_id)]
    return [each for each in payloads if isinstance(each, ToolCall) and each.name == "approval"]


async def start(engine: RunningEngine, folder: Path, approve: list[str]) -> str:
    folder.mkdir(exist_ok=True)
    request = RunRequest(worker="claude-code", input={"prompt": "go"}, cwd=str(folder), approve=approve)
    return await engine.service.dispatch(request)


async def test_a_request_that_is_withdrawn_at_once_is_not_asked(
    harness: EngineHarness, claude: Any, tmp_path: Path
) -> None:
    claude("""
write(ask("r1", "git push"), {"type": "control_cancel_request", "request_id": "r1"}, ask("r2", "ls"))
answer = sys.stdin.readline()
""")
    async with harness.open() as engine:
        run_id = await start(engine, tmp_path / "a", ["Bash(git push*)"])
        outcome = await engine.wait_for_outcome(run_id)
    assert outcome.error is None, outcome.error
    assert json.loads(str(outcome.result))["response"]["request_id"] == "r2"
    assert approvals(harness, run_id) == []


async def test_a_request_that_is_withdrawn_while_its_answer_is_written_gets_the_whole_answer(
    harness: EngineHarness, claude: Any, tmp_path: Path
) -> None:
    # The answer repeats the command, which is longer than what a pipe holds.
    claude("""
import time
write(ask("r1", "echo " + "x" * 1_000_000))
time.sleep(0.3)
write({"type": "control_cancel_request", "request_id": "r1"})
time.sleep(0.3)
line = sys.stdin.readline()
answer = str(len(json.loads(line)["response"]["response"]["updatedInput"]["command"]))
""")
    async with harness.open() as engine:
        request = RunRequest(
            worker="claude-code",
            input={"prompt": "go", "tools": ["Bash"]},
            cwd=str(tmp_path),
            approve=["Bash(git push*)"],
        )
        outcome = await engine.wait_for_outcome(await engine.service.dispatch(request))
    assert (outcome.error, outcome.result) == (None, "1000005")


async def test_an_approval_for_always_of_an_agent_without_a_worker_holds_in_its_folder(
    harness: EngineHarness, claude: Any, tmp_path: Path
) -> None:
    claude("""
write(ask("r1", "git push"))
answer = json.loads(sys.stdin.readline())["response"]["response"]["behavior"]
""")
    async with harness.open() as engine:
        first = await start(engine, tmp_path / "a", ["Bash(git push*)"])
        item = await engine.wait_for_status(first, "waiting")
        (request,) = item.row.waits.requests.values()
        assert f"always approve holds for Bash(git push*) of claude-code in {tmp_path / 'a'}" in request.text
        await engine.answer(first, item.row.awaits[0], "always approve")
        assert (await engine.wait_for_outcome(first)).result == "allow"
        again = await start(engine, tmp_path / "a", ["Bash(git push*)"])
        assert (await engine.wait_for_outcome(again)).result == "allow"
        elsewhere = await start(engine, tmp_path / "b", ["Bash(git push*)"])
        await engine.wait_for_status(elsewhere, "waiting")
        (rule,) = await engine.service.approval_rules()
        assert (rule.worker, rule.folder) == ("claude-code", str(tmp_path / "a"))
    assert len(approvals(harness, elsewhere)) == 1
