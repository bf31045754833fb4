"""`shopfloor waiting` and `GET /api/waiting`: what waits for a person, and how to answer it."""

from __future__ import annotations

import json
import shlex
import subprocess
from pathlib import Path

import httpx
import pytest
from tests.cli.test_server import server
from tests.timeouts import TIMEOUT_SECONDS, wait_until

__all__ = ["server"]
WORKERS = '''
import asyncio

from shopfloor import Run, worker


@worker
async def asks(run: Run) -> str:
    """Asks two questions at once."""
    return " ".join(await asyncio.gather(run.ask("Which colour?", options=["red", "green"]), run.ask("How many?\\x1b[2J")))


@worker
async def careful(run: Run) -> str:
    """Runs a command once it is approved."""
    return (await run.command("echo pushed", approve=["command"])).stdout.strip()


@worker
async def parent(run: Run) -> str:
    """Calls a worker that asks."""
    return await run.worker("asks")
'''
LOOKS = """
tools:
  look-up: {description: Looks a word up., parameters: {type: object}}
steps:
  Look: {block: tool-call, tool: look-up, input: {word: moon}, output: FOUND}
output: FOUND
"""


@pytest.mark.req("SF-58")
def test_waiting_lists_each_question_with_the_command_that_answers_it(server, shopfloor, tmp_path: Path):
    (tmp_path / "asks.py").write_text(WORKERS)
    assert shopfloor("waiting").stdout == "nothing waits for you\n"
    up = server("--workers", str(tmp_path / "asks.py"))
    root = shopfloor("dispatch", "-q", "parent").stdout.strip()
    wait_until(lambda: up.get("/api/waiting")["total"] == 2, "both questions to wait")

    found = json.loads(shopfloor("waiting", "--json").stdout)
    by_text = {item["text"]: item for item in found["items"]}
    colour = by_text["Which colour?"]
    assert (colour["root_run_id"], colour["worker"], colour["kind"]) == (root, "asks", "question")
    assert (colour["options"], colour["until"]) == (["red", "green"], None)
    assert colour["run_id"] != root
    assert by_text["How many?\x1b[2J"]["options"] is None

    printed = shopfloor("waiting").stdout
    assert "\x1b" not in printed
    assert "2. green" in printed
    commands = [line.strip() for line in printed.splitlines() if "shopfloor answer" in line]
    assert len(commands) == 2
    for command in commands:
        words = shlex.split(command.replace("TEXT", "seven"))
        assert words[0] == "shopfloor"
        assert shopfloor(*words[1:]).returncode == 0
    wait_until(lambda: shopfloor("result", root).stdout.strip() == "red seven", "the result")
    assert up.get("/api/waiting") == {"items": [], "total": 0}


FAILING = '''
from shopfloor import Run, worker
from shopfloor.errors import AuthenticationFailed


@worker
async def nightly(run: Run) -> str:
    """Updates dependencies."""
    raise AuthenticationFailed("codex is signed out\\x1b[2J", hint="run `codex login`")


@worker
async def broken(run: Run) -> str:
    """Fails like a program with a defect."""
    raise ValueError("no")
'''


@pytest.mark.req("SF-67", "SF-68")
def test_a_failure_waits_until_it_is_rerun_or_dismissed(server, shopfloor, tmp_path: Path, env):
    (tmp_path / "nightly.py").write_text(FAILING)
    words = ("--workers", str(tmp_path / "nightly.py"))
    for worker in ("broken", "nightly"):
        assert shopfloor("run", "-q", worker, *words).returncode == 1
    (item,) = json.loads(shopfloor("waiting", "--json").stdout)["items"]
    run_id = item["run_id"]
    assert (item["kind"], item["call_id"], item["worker"]) == ("failure", None, "nightly")
    assert (item["error_code"], item["text"]) == ("authentication_error", "codex is signed out\x1b[2J")
    assert (item["hint"], item["actions"]) == ("run `codex login`", ["rerun", "dismiss"])

    up = server(*words)
    assert up.get("/api/waiting")["items"] == [item]
    printed = shopfloor("waiting").stdout
    assert "\x1b" not in printed
    assert "run `codex login`" in printed
    rerun, dismiss = (line.split()[1:] for line in printed.splitlines() if line.strip().startswith("shopfloor "))
    assert shopfloor(*rerun, "--detach").returncode == 0
    wait_until(lambda: [one["run_id"] for one in up.get("/api/waiting")["items"]] not in ([], [run_id]), "the new run")
    (again,) = up.get("/api/waiting")["items"]
    assert dismiss == ["waiting", "--dismiss", run_id[:8]]
    assert shopfloor("waiting", "--dismiss", again["run_id"]).stdout == f"dismissed {again['run_id']}\n"
    assert shopfloor("waiting").stdout == "nothing waits for you\n"
    entries = [json.loads(line) for line in shopfloor("audit", "--json").stdout.splitlines()]
    assert ("run.dismissed", again["run_id"]) in [(entry["action"], entry.get("run_id")) for entry in entries]

    assert shopfloor("down").returncode == 0
    assert shopfloor("rebuild").returncode == 0
    assert shopfloor("waiting").stdout == "nothing waits for you\n"
    for path in Path(env["SHOPFLOOR_STORAGE"]).glob("shopfloor.db*"):
        path.unlink()
    assert shopfloor("waiting").stdout == "nothing waits for you\n"


@pytest.mark.req("SF-68")
def test_a_run_that_is_no_such_failure_cannot_be_dismissed(shopfloor):
    shopfloor("run", "--command", "exit 3")
    refused = shopfloor("waiting", "--dismiss", "last")
    assert refused.returncode == 5
    assert "is no failure that waits for a person" in refused.stderr


@pytest.mark.req("SF-58")
def test_waiting_works_without_a_server_and_needs_the_role_viewer(server, shopfloor, tmp_path: Path):
    (tmp_path / "asks.py").write_text(WORKERS)
    ran = shopfloor("run", "-q", "asks", "--workers", str(tmp_path / "asks.py"), stdin=subprocess.DEVNULL)
    assert ran.returncode == 75, ran.stderr
    assert json.loads(shopfloor("waiting", "--json").stdout)["total"] == 2
    up = server()
    token = shopfloor("tokens", "new", "colleague").stdout.strip()
    with httpx.Client(base_url=up.url, timeout=TIMEOUT_SECONDS) as nobody:
        assert nobody.get("/api/waiting").status_code == 401
        allowed = nobody.get("/api/waiting", headers={"Authorization": f"Bearer {token}"})
        assert allowed.json()["total"] == 2


PARALLEL = '''
import asyncio

from shopfloor import Run, worker


@worker
async def both(run: Run, done: str) -> str:
    """Asks while a command of another branch works."""
    _, answer = await asyncio.gather(
        run.command('until test -e "$DONE"; do sleep 0.05; done', env={"DONE": done}), run.ask("Ship it?")
    )
    return answer
'''


@pytest.mark.req("SF-58")
def test_a_question_of_one_branch_is_listed_and_answered_while_another_works(server, shopfloor, tmp_path: Path):
    (tmp_path / "both.py").write_text(PARALLEL)
    done = tmp_path / "done"
    up = server("--workers", str(tmp_path / "both.py"))
    run_id = shopfloor("dispatch", "-q", "both", "-i", f"done={done}").stdout.strip()
    wait_until(lambda: up.get("/api/stats")["tiles"]["waiting"] == 1, "the question")
    wait_until(lambda: [one["status"] for one in up.runs()] == ["running"], "the command")
    (item,) = up.get("/api/waiting")["items"]
    assert (item["run_id"], item["text"]) == (run_id, "Ship it?")
    detail = up.get("/api/agents/workers/detail", worker_id=run_id)
    assert [call["call_id"] for call in detail["awaits"]] == [item["call_id"]]
    assert "waits for Ship it?" in shopfloor("answer", run_id, "--list").stdout
    (command,) = (line for line in shopfloor("waiting").stdout.splitlines() if "shopfloor answer" in line)
    assert shopfloor(*shlex.split(command.replace("TEXT", "yes"))[1:]).returncode == 0
    wait_until(lambda: up.get("/api/waiting")["total"] == 0, "the answer")
    done.touch()
    wait_until(lambda: shopfloor("result", run_id).stdout.strip() == "yes", "the result")


@pytest.mark.req("SF-58")
def test_approvals_and_client_tools_are_listed_and_answered_by_the_printed_commands(server, shopfloor, tmp_path: Path):
    (tmp_path / "asks.py").write_text(WORKERS)
    (tmp_path / "more" / "looks").mkdir(parents=True)
    (tmp_path / "more" / "looks" / "worker.yaml").write_text(LOOKS)
    up = server("--workers", str(tmp_path / "asks.py"), "--workers", str(tmp_path / "more"))
    pushed, found = (shopfloor("dispatch", "-q", worker).stdout.strip() for worker in ("careful", "looks"))
    wait_until(lambda: up.get("/api/waiting")["total"] == 2, "both requests to wait")

    items = {item["run_id"]: item for item in json.loads(shopfloor("waiting", "--json").stdout)["items"]}
    approval, tool = items[pushed], items[found]
    asked = "approval of command: echo pushed\nalways approve holds for command of careful"
    assert (approval["kind"], approval["text"]) == ("approval", asked)
    assert approval["options"] == ["approve", "approve for this run", "always approve", "deny"]
    assert approval["until"] is not None
    assert (tool["kind"], tool["options"]) == ("client_tool", None)
    assert "moon" in tool["text"]

    printed = shopfloor("waiting").stdout
    commands = [line.strip() for line in printed.splitlines() if "shopfloor answer" in line]
    assert {shlex.split(command)[2] for command in commands} == {pushed[:8], found[:8]}
    assert f"shopfloor answer {pushed[:8]} approve" in commands
    listed = [shopfloor("answer", run_id, "--list").stdout for run_id in (pushed, found)]
    assert all(any(command in text for text in listed) for command in commands), "both lists have the same commands"
    for command in commands:
        words = shlex.split(command.replace("TEXT", "a stone"))
        answered = shopfloor(*words[1:])
        assert answered.returncode == 0, answered.stderr
    wait_until(lambda: shopfloor("result", pushed).stdout.strip() == "pushed", "the approved command")
    wait_until(lambda: shopfloor("result", found).stdout.strip() == "a stone", "the result of the tool")
    assert up.get("/api/waiting") == {"items": [], "total": 0}
