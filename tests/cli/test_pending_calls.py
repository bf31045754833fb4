"""Pending calls and their answers: of a run, of its sub-runs, with a server and without."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from tests.cli.terminal import Terminal
from tests.cli.test_server import Server
from tests.timeouts import TIMEOUT_SECONDS, wait_until

from shopfloor import Shopfloor
from shopfloor.errors import RunFailed

ASKS = '''
import asyncio
from pathlib import Path

from shopfloor import Run, worker


@worker
async def asks(run) -> str:
    """Asks a question."""
    return "it is " + await run.ask("Which colour?", options=["red", "green"])


@worker
async def mother(run) -> str:
    """Calls a worker that asks."""
    return "she says " + await run.worker("asks")


@worker
async def grandmother(run) -> str:
    """Calls a worker that calls a worker that asks."""
    return await run.worker("mother")


@worker
async def works(run: Run, FILE: str) -> None:
    """Takes a while, in two steps."""
    await run.command("sleep 1", name="first")
    await run.step("write", lambda: Path(FILE).write_text("done"))


@worker
async def asks_and_works(run: Run, FILE: str, SUB_RUN: bool) -> None:
    """Asks in one branch and works in the other."""
    await asyncio.gather(run.ask("Well?"), run.worker("works", {"FILE": FILE}) if SUB_RUN else works(run, FILE))
'''


@pytest.fixture
def workers(tmp_path: Path) -> list[str]:
    (tmp_path / "asks.py").write_text(ASKS)
    return ["--workers", str(tmp_path / "asks.py")]


@pytest.fixture
def server(start, env) -> Iterator:
    servers: list[Server] = []

    def up(*words: str) -> Server:
        servers.append(Server(start("up", "--port", "0", *words), env))
        return servers[-1]

    yield up
    for one in servers:
        one.http.close()


@pytest.fixture
def waiting(shopfloor, workers) -> str:
    """The id of a waiting run without a host."""
    done = shopfloor("run", "-q", "asks", *workers, stdin=subprocess.DEVNULL)
    assert done.returncode == 75, done.stderr
    return shopfloor("list", "--json").stdout.split('"id": "')[1][:36]


@pytest.mark.req("SF-27")
@pytest.mark.parametrize("sub_run", ["true", "false"])
def test_a_follower_of_a_waiting_run_stays_until_no_branch_works(shopfloor, server, workers, tmp_path, sub_run):
    up = server(*workers)
    by_command, by_sdk = tmp_path / "command", tmp_path / "sdk"
    words = ("run", "asks-and-works", *workers, "-i", f"FILE={by_command}", "-i", f"SUB_RUN={sub_run}")
    done = shopfloor(*words, stdin=subprocess.DEVNULL)
    assert done.returncode == 75, done.stderr
    assert "waits for Well?" in done.stderr
    assert by_command.read_text() == "done"

    async def generate() -> None:
        async with Shopfloor(up.login) as client:
            with pytest.raises(RunFailed, match="waits for a person"):
                await client.workers.generate("asks-and-works", {"FILE": str(by_sdk), "SUB_RUN": sub_run == "true"})

    anyio.run(generate)
    assert by_sdk.read_text() == "done"


# Sub-runs


def test_the_status_of_a_run_names_the_waiting_sub_run_and_its_question(shopfloor, server, workers):
    up = server(*workers)
    run_id = shopfloor("dispatch", "-q", "grandmother").stdout.strip()
    wait_until(lambda: [one["status"] for one in up.runs()] == ["waiting"] * 3, "all to wait")
    child = next(one["id"] for one in up.runs() if one["name"] == "asks")
    shown = [line.strip() for line in shopfloor("status", run_id).stdout.splitlines()]
    place = shown.index(f"sub-run {child[:8]} waits for Which colour? (1. red / 2. green)")
    assert shown[place + 1] == f"shopfloor answer {child[:8]} 1"
    (call,) = up.http.get("/api/agents/workers/detail", params={"worker_id": run_id}).json()["awaits"]
    assert (call["run_id"], call["kind"], call["answered"]) == (child, "question", False)
    asked = shopfloor("result", run_id)
    assert (asked.returncode, f"sub-run {child[:8]} waits for" in asked.stderr) == (75, True)
    assert shopfloor("answer", run_id, "2").returncode == 0
    assert shopfloor("result", run_id, "--wait").stdout == "she says it is green\n"
    assert shopfloor("answer", run_id, "--list").stdout == f"run {run_id[:8]} waits for no answer: it is completed\n"


def test_run_reports_that_a_sub_run_waits(start, shopfloor, workers):
    process = start("run", "mother", *workers, stdin=subprocess.DEVNULL)
    assert process.stderr is not None
    lines = iter(lambda: process.stderr.readline().decode(), "")
    line = next(line for line in lines if "waits for" in line)
    assert line.startswith("sub-run ")
    command = shlex.split(next(lines).replace("TEXT", "red"))
    assert command[:2] == ["shopfloor", "answer"]
    assert shopfloor(*command[1:]).returncode == 0
    out, _ = process.communicate(timeout=TIMEOUT_SECONDS)
    assert (process.returncode, out) == (0, b"she says it is red\n")


# Without a server


def test_an_unread_answer_is_reported_and_a_second_one_refused(shopfloor, server, workers, waiting):
    first = shopfloor("answer", waiting, "red")
    assert "`shopfloor up` or `shopfloor resume` continues the run" in first.stderr
    shown = shopfloor("status", waiting).stdout
    assert "answered, but the run has not read the answer yet: Which colour? (1. red / 2. green)" in shown
    assert "shopfloor answer" not in shown
    second = shopfloor("answer", waiting, "green")
    assert second.returncode == 5
    assert "has been answered already; the run has not read the answer yet" in second.stderr
    server(*workers)
    assert shopfloor("result", waiting, "--wait").stdout == "it is red\n"


# Options


def test_an_invalid_option_is_refused_with_the_valid_ones(shopfloor, waiting):
    for answer in ("3", "0", "blue", "-"):
        refused = shopfloor("answer", waiting, answer, input="blue\n")
        assert refused.returncode == 2, answer
        assert "is not one of the options" in refused.stderr
        assert "the options are 1. red, 2. green; --text TEXT sends any other answer" in refused.stderr
    # An answer that was accepted after all would be shown instead, and no longer waited for.
    assert "waits for Which colour?" in shopfloor("status", waiting).stdout


def test_show_and_tail_print_what_a_run_waits_for(shopfloor, waiting):
    shown = shopfloor("show", waiting).stdout
    assert "status  waiting" in shown
    assert "… waits for Which colour? (1. red / 2. green)" in shown
    assert f"shopfloor answer {waiting[:8]} " in shown
    assert "note: waits for Which colour?" in shopfloor("tail", waiting).stderr


def test_the_option_text_sends_an_answer_outside_of_the_options(shopfloor, server, workers, waiting):
    assert shopfloor("answer", waiting, "--text", "3").returncode == 0
    server(*workers)
    assert shopfloor("result", waiting, "--wait").stdout == "it is 3\n"


def test_at_a_terminal_an_invalid_option_number_prompts_again(env, workers):
    seen = Terminal("run", "asks", *workers, env=env)
    try:
        seen.wait_for("(empty: leave it waiting): ")
        seen.type("3\n")
        seen.wait_for("not one of the 2 options, try again: ")
        seen.type("1\n")
        assert seen.end() == 0, seen.shown
        assert "it is red" in seen.shown
    finally:
        seen.close()
