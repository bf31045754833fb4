"""The status of a run: every command and the API say the same, also when the process that worked on it was killed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.test_server import Server
from tests.timeouts import TIMEOUT_SECONDS, wait_until

WORKERS = '''
import asyncio
import os

from shopfloor import worker


@worker
async def sleeps(run) -> str:
    """Works for long, the first time."""
    began = os.environ["BEGAN"]
    if not os.path.exists(began):
        open(began, "w").close()
        await asyncio.sleep(600)
    return "slept"


@worker
async def asks(run) -> str:
    """Asks a question."""
    return "it is " + await run.ask("Which colour?", options=["red", "green"])


@worker
async def mother(run) -> str:
    """Calls a worker that asks."""
    return "she says " + await run.worker("asks")


@worker
async def both(run) -> None:
    """Asks, calls a worker that sleeps, and fails on request."""

    async def fails() -> None:
        while not os.path.exists(os.environ["BEGAN"] + ".fail"):
            await asyncio.sleep(0.02)
        raise ValueError("requested")

    await asyncio.gather(run.ask("Well?"), run.worker("sleeps"), fails())
'''
STATUSES = "queued|running|waiting|interrupted|done|completed|failed|cancelled"


@pytest.fixture
def env(env: dict[str, str], tmp_path: Path) -> dict[str, str]:
    return {**env, "BEGAN": str(tmp_path / "began")}


@pytest.fixture
def server(start, env, tmp_path) -> Iterator:
    (tmp_path / "workers.py").write_text(WORKERS)
    servers: list[Server] = []

    def up() -> Server:
        servers.append(Server(start("up", "--port", "0", "--workers", str(tmp_path / "workers.py")), env))
        return servers[-1]

    yield up
    for one in servers:
        one.http.close()


def told_by(shopfloor, run_id: str) -> dict[str, str]:
    """The status of the run, by the command that tells it."""
    short = run_id[:8]
    lines = {
        "list": next(line for line in shopfloor("list").stdout.splitlines() if line.startswith(short)),
        "status": next(line for line in shopfloor("status", run_id).stdout.splitlines() if "  status" in line),
        "show": next(line for line in shopfloor("show", run_id).stdout.splitlines() if "  status" in line),
        "tree": shopfloor("tree", run_id).stdout.splitlines()[0],
    }
    return {command: re.findall(rf"\b({STATUSES})\b", line)[0] for command, line in lines.items()}


def agreed(shopfloor, run_id: str) -> str:
    statuses = told_by(shopfloor, run_id)
    assert len({"completed" if one == "done" else one for one in statuses.values()}) == 1, statuses
    return statuses["tree"]


@pytest.mark.req("WT-58")
def test_the_commands_agree_on_the_status_of_a_run_also_when_its_server_was_killed(shopfloor, server):
    up = server()
    runs = {name: shopfloor("dispatch", "-q", name).stdout.strip() for name in ("sleeps", "asks", "mother")}
    wait_until(lambda: [run["status"] for run in up.runs()].count("waiting") == 3, "the questions")
    wait_until(lambda: len(up.runs(status="running")) == 1, "the sleeper")
    assert [run["interrupted"] for run in up.runs()] == [False] * 4
    assert {name: agreed(shopfloor, run_id) for name, run_id in runs.items()} == {
        "sleeps": "running",
        "asks": "waiting",
        "mother": "waiting",
    }

    up.process.kill()
    up.process.communicate(timeout=TIMEOUT_SECONDS)
    assert {name: agreed(shopfloor, run_id) for name, run_id in runs.items()} == {
        "sleeps": "interrupted",
        "asks": "waiting",
        "mother": "waiting",
    }
    listed = {run["id"]: run for run in json.loads(shopfloor("list", "--json").stdout)["workers"]}
    assert {run_id for run_id, run in listed.items() if run["interrupted"]} == {runs["sleeps"]}
    assert listed[runs["sleeps"]]["status"] == "running"
    interrupted = json.loads(shopfloor("list", "--status", "interrupted", "--json").stdout)["workers"]
    assert [run["id"] for run in interrupted] == [runs["sleeps"]]
    assert "`shopfloor up` resumes it" in shopfloor("status", runs["sleeps"]).stdout

    up = server()
    wait_until(lambda: [run["id"] for run in up.runs(status="done")] == [runs["sleeps"]], "the sleeper to go on")
    assert agreed(shopfloor, runs["sleeps"]) == "completed"


@pytest.mark.req("WT-59")
def test_list_and_tree_show_what_a_run_waits_for(shopfloor, server):
    up = server()
    asks = shopfloor("dispatch", "-q", "asks").stdout.strip()
    mother = shopfloor("dispatch", "-q", "mother").stdout.strip()
    wait_until(lambda: [run["status"] for run in up.runs()] == ["waiting"] * 3, "the questions")
    question = "Which colour? (1. red / 2. green)"
    assert shopfloor("list", "--status", "waiting").stdout.count(f"waits for {question}") == 2
    assert {tuple(run["asks"]) for run in up.runs()} == {(question,), ()}
    assert shopfloor("tree", asks).stdout.splitlines()[1:] == [f"└─ ? ask · {question}"]
    lines = shopfloor("tree", mother).stdout.splitlines()
    assert (lines[0].split()[-1], lines[1].split()[-1], lines[2]) == ("waiting", "waiting", f"   └─ ? ask · {question}")

    call_id = up.get("/api/agents/workers/detail", worker_id=asks)["awaits"][0]["call_id"]
    assert shopfloor("answer", asks, call_id, "red").returncode == 0
    wait_until(lambda: [run["id"] for run in up.runs(status="done")] == [asks], "the answer")
    assert re.fullmatch(rf"└─ ✓ ask · {re.escape(question)}( · .*)?", shopfloor("tree", asks).stdout.splitlines()[1])
    assert next(run["asks"] for run in up.runs() if run["id"] == asks) is None


@pytest.mark.req("WT-59")
def test_the_tree_shows_an_active_sub_run_as_running_and_no_step_of_an_ended_run_as_open(shopfloor, server, env):
    up = server()
    both = shopfloor("dispatch", "-q", "both").stdout.strip()
    wait_until(lambda: Path(env["BEGAN"]).exists(), "the sleeper")
    lines = sorted(shopfloor("tree", both).stdout.splitlines()[1:], key=lambda line: line[5:])
    assert [line[3:].split(" →")[0] for line in lines] == ["? ask · Well?", "… sleeps"]
    Path(env["BEGAN"] + ".fail").touch()
    wait_until(lambda: {run["status"] for run in up.runs()} == {"failed", "cancelled"}, "the failure")
    lines = sorted(shopfloor("tree", both).stdout.splitlines()[1:], key=lambda line: line[5:])
    assert lines[0][3:] == "■ ask · Well?"
    assert "requested" in next(run["error"]["message"] for run in up.runs(status="cancelled"))


@pytest.mark.req("SF-26")
def test_an_answered_call_of_a_held_run_is_an_open_question_nowhere(shopfloor, server, tmp_path):
    up = server()
    asks = shopfloor("dispatch", "-q", "asks").stdout.strip()
    wait_until(lambda: [run["status"] for run in up.runs()] == ["waiting"], "the question")
    up.process.kill()
    up.process.communicate(timeout=TIMEOUT_SECONDS)
    (tmp_path / "workers.py").write_text(WORKERS.replace('"it is "', '"it was "'))
    up = server()
    first = shopfloor("answer", asks, "red")
    assert first.returncode == 0
    wait_until(lambda: up.runs()[0]["waits_for"][0] == "definition_changed", "the run to be held")
    question = "Which colour? (1. red / 2. green)"
    (row,) = up.runs()
    (held,) = row["asks"]
    assert "`asks`" in held
    assert question not in shopfloor("list", "--status", "waiting").stdout
    root, ask = shopfloor("tree", asks).stdout.splitlines()
    assert held in root
    assert ask == f"└─ ? ask · answered, but the run has not read the answer yet: {question}"
    again = shopfloor("answer", asks, "green")
    assert again.returncode == 5
    assert "the first answer counts; the run continues when the definition of its worker is restored" in again.stderr
    assert "shopfloor up" not in again.stderr


@pytest.mark.req("WT-60")
def test_an_answer_starts_no_new_attempt_but_a_killed_server_does(shopfloor, server):
    up = server()
    asks = shopfloor("dispatch", "-q", "asks").stdout.strip()
    sleeps = shopfloor("dispatch", "-q", "sleeps").stdout.strip()
    wait_until(lambda: {run["status"] for run in up.runs()} == {"waiting", "running"}, "both to be at it")
    up.process.kill()
    up.process.communicate(timeout=TIMEOUT_SECONDS)
    up = server()
    wait_until(lambda: len(up.runs(status="done")) == 1, "the sleeper")
    call_id = up.get("/api/agents/workers/detail", worker_id=asks)["awaits"][0]["call_id"]
    assert shopfloor("answer", asks, call_id, "red").returncode == 0
    wait_until(lambda: len(up.runs(status="done")) == 2, "the answer")
    details = {run_id: up.get("/api/agents/workers/detail", worker_id=run_id) for run_id in (asks, sleeps)}
    assert {run_id: (one["attempt"], one["interruptions"]) for run_id, one in details.items()} == {
        asks: (2, 0),
        sleeps: (2, 1),
    }
    for command in ("show", "status"):
        answered, cut_off = shopfloor(command, asks).stdout, shopfloor(command, sleeps).stdout
        assert "attempt 2" not in answered, command
        assert "attempt 2" in re.sub(" +", " ", cut_off), command
