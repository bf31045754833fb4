"""A Python worker that blocks the event loop: it is reported, the server can be stopped, and the run finally fails."""

from __future__ import annotations

import re
import signal
import subprocess
from pathlib import Path

import pytest
from tests.cli.conftest import SHOPFLOOR
from tests.faults.engine_server import Deployment, Server
from tests.timeouts import TIMEOUT_SECONDS, wait_until

from shopfloor.engine.watchdog import is_loop_blocked
from shopfloor.limits import POISON_ATTEMPTS

WORKERS = """
import asyncio
import time
from shopfloor import Run, worker

@worker(slug="spinning")
async def spinning(run: Run):
    await asyncio.gather(spin(), asyncio.sleep(0))

async def spin():
    while True:
        pass

@worker(slug="slow")
async def slow(run: Run):
    if run.attempt == 1:
        time.sleep(4.5)
    return (await run.command("echo went on")).stdout
"""


@pytest.fixture
def deployment(tmp_path: Path) -> Deployment:
    deployment = Deployment(tmp_path)
    (tmp_path / "blocking.py").write_text(WORKERS)
    return deployment


def blocked(deployment: Deployment, run_id: str) -> int:
    """Return the number of notes in the log that the run blocks the loop."""
    return sum(is_loop_blocked(event.payload) for event in deployment.events(run_id))


def stopped(server: Server) -> tuple[int, str]:
    """Stop a server with TERM; return its exit code and its output."""
    server.process.send_signal(signal.SIGTERM)
    _, stderr = server.process.communicate(timeout=TIMEOUT_SECONDS)
    return server.process.returncode, stderr.decode()


@pytest.mark.req("SF-5")
def test_a_run_that_blocks_the_event_loop_is_named_stopped_and_fails_in_the_end(deployment: Deployment):
    words = ("--workers", str(deployment.folder / "blocking.py"))
    with deployment.up(*words) as server:
        slow = server.post("/api/runs", worker="slow", input={})["run_id"]
        wait_until(lambda: deployment.outcome(slow), "the slow run to end")
        beside = server.dispatch("question")
        wait_until(lambda: deployment.open_calls(beside), "the other run to wait")
        child = server.dispatch("command")
        wait_until(deployment.children, "the command to run")
        run_id = server.post("/api/runs", worker="spinning", input={})["run_id"]
        wait_until(lambda: blocked(deployment, run_id) == 1, "the first note")
        code, stderr = stopped(server)
    assert code == 70
    assert re.search(rf"blocking.py:1[12], in spin \(run {run_id}\)", stderr), stderr
    assert re.search(r'File ".*blocking.py", line 1[12] in spin', stderr), stderr
    wait_until(lambda: deployment.children() == [], "the command to be ended with its host")
    # A run that blocked the loop for a while and continued is only reported.
    assert blocked(deployment, slow) == 1
    outcome = deployment.outcome(slow)
    assert outcome is not None
    assert outcome.status == "completed"
    for attempt in range(2, POISON_ATTEMPTS + 1):
        with deployment.up(*words) as server:
            wait_until(lambda attempt=attempt: blocked(deployment, run_id) == attempt, "the next note")
            server.kill()
    with deployment.up(*words) as server:
        wait_until(lambda: deployment.outcome(run_id), "the outcome")
        for call_id in deployment.open_calls(beside):
            server.post(f"/api/runs/{beside}/answer", call_id=call_id, answer="answered")
        ended = deployment.wait_until_all_ended()
        assert ended[beside].status == "completed"
        assert ended[run_id].status == "failed"
        error = ended[run_id].error
        assert error is not None
        assert (error.code, "the log names the line" in (error.hint or "")) == ("poisoned", True)
        assert ended[child].status == "failed"
        assert server.stop() == 0


@pytest.mark.req("SF-5")
def test_a_command_whose_worker_blocks_the_event_loop_can_be_interrupted(deployment: Deployment):
    run = subprocess.Popen(
        [SHOPFLOOR, "run", "spinning", "--workers", str(deployment.folder / "blocking.py")],
        env=deployment.env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    wait_until(deployment.runs, "the run to begin")
    (run_id,) = deployment.runs()
    wait_until(lambda: blocked(deployment, run_id) == 1, "the note")
    run.send_signal(signal.SIGINT)
    _, stderr = run.communicate(timeout=60)
    assert run.returncode == 130
    assert re.search(rf"blocking.py:1[12], in spin \(run {run_id}\)", stderr.decode())
    assert "Thread" not in stderr.decode()
    wait_until(lambda: deployment.children() == [], "every process to be gone")
