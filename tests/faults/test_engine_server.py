"""`shopfloor up` is killed, stopped, or cancels, with runs in the middle of every kind of step."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from tests.cli.test_run import processes_with
from tests.faults.engine_server import MODEL, SHOPFLOOR, STATES, Deployment
from tests.model_server.server import ModelServer, in_thread
from tests.timeouts import TIMEOUT_SECONDS, wait_until

from shopfloor.log import CallStarted, StepCompleted
from shopfloor.record import Recorder
from shopfloor.wiring import WorkerSettings, local_backend, local_engine

CANCEL_KILL_SECONDS = 3.0
ONCE = {f"before {state}" for state in STATES}
COUNTS = {f"count {letter}{number}" for letter in "ab" for number in (1, 2)}


@pytest.fixture
def model() -> Iterator[ModelServer]:
    with in_thread(MODEL) as server:
        yield server


@pytest.fixture
def deployment(tmp_path: Path, model: ModelServer) -> Iterator[Deployment]:
    deployment = Deployment(tmp_path, **model.env)
    yield deployment
    deployment.go.touch()


def codes(deployment: Deployment, runs: dict[str, str]) -> dict[str, str | None]:
    """Return how each run ended: the kind of its result, or its error code."""
    ended = {state: deployment.outcome(run_id) for state, run_id in runs.items()}
    return {state: end and (end.error.code if end.error else end.status) for state, end in ended.items()}


def test_a_server_killed_in_the_middle_of_everything_resumes_all_runs(deployment: Deployment, model: ModelServer):
    with deployment.up() as server:
        runs = server.start_all()
        wait_until(lambda: len(model.requests()) == 1, "the model to be asked")
        server.kill()
    wait_until(lambda: deployment.children() == [], "the command to be ended with its host")
    deployment.go.touch()
    with deployment.up() as server:
        server.answer_all(runs)
        deployment.wait_until_all_ended()
    expected = dict.fromkeys(STATES, "completed") | {"acting": "outcome_unknown", "command": "outcome_unknown"}
    assert codes(deployment, runs) == expected
    for state, step in (("acting", "act"), ("command", "Do")):
        outcome = deployment.outcome(runs[state])
        assert outcome is not None
        assert outcome.error is not None
        assert step in outcome.error.message
    note_counts = deployment.note_counts()
    assert {what: note_counts[what] for what in ONCE | COUNTS} == dict.fromkeys(ONCE | COUNTS, 1)
    assert (note_counts["reading"], note_counts["acting"], note_counts["one"], note_counts["loop a1"]) == (
        4,
        1,
        2,
        2,
    ), note_counts
    assert len(model.requests()) == 2
    assert (deployment.outcome(runs["model"]) or pytest.fail("no outcome")).result == "all of it"


def test_a_server_that_is_stopped_leaves_all_runs_for_the_next_to_resume(deployment: Deployment, model: ModelServer):
    with deployment.up() as server:
        runs = server.start_all()
        wait_until(lambda: len(model.requests()) == 1, "the model to be asked")
        assert server.stop() == 0
    assert deployment.children() == []
    deployment.go.touch()
    with deployment.up() as server:
        server.answer_all(runs)
        deployment.wait_until_all_ended()
    expected = dict.fromkeys(STATES, "completed") | {"acting": "outcome_unknown", "command": "host_stopped"}
    assert codes(deployment, runs) == expected
    note_counts = deployment.note_counts()
    assert {what: note_counts[what] for what in ONCE | COUNTS} == dict.fromkeys(ONCE | COUNTS, 1)
    assert len(model.requests()) == 2


@pytest.mark.req("SDK-25")
@pytest.mark.parametrize("host", ["alive", "killed"])
def test_runs_in_the_middle_of_everything_are_cancelled(deployment: Deployment, model: ModelServer, host: str):
    with deployment.up() as server:
        runs = server.start_all()
        wait_until(lambda: len(model.requests()) == 1, "the model to be asked")
        if host == "killed":
            server.kill()
        else:
            cancel_all(server, runs)
            deployment.wait_until_all_ended()
            assert model.wait_for_end() == "left"
    if host == "killed":
        # Without a host to resume them: otherwise an interrupted command would be found and end the run.
        anyio.run(order_cancels, deployment, list(runs.values()))
    with deployment.up() as server:
        ended = deployment.wait_until_all_ended()
    assert codes(deployment, runs) == dict.fromkeys(STATES, "cancelled")
    children = [
        event.child_run_id for event in deployment.events(runs["sub-run"]) if isinstance(event.payload, CallStarted)
    ]
    assert [ended[child or ""].status for child in children] == ["cancelled"]
    assert {outcome.status for outcome in ended.values()} == {"cancelled"}
    assert deployment.children() == []


async def order_cancels(deployment: Deployment, runs: list[str]) -> None:
    async with local_backend(deployment.storage) as backend, local_engine(backend, WorkerSettings()) as engine:
        await backend.ingest.catch_up(everything=True)
        for run_id in runs:
            await engine.service.cancel(run_id, reason="enough")


def cancel_all(server, runs: dict[str, str]) -> None:
    for run_id in runs.values():
        server.post(f"/api/runs/{run_id}/cancel", reason="enough")


STRANDED = """
    Both:
      block: parallel
      branches:
        bad: {Do: {block: command, command: 'while [ ! -e {{GO}} ]; do sleep 0.1; done'}}
        sub: {Call: {block: run-worker, worker: question, input: {NOTES: '{{NOTES}}', GO: '{{GO}}'}, output: OUT}}
"""


def test_a_sub_run_is_cancelled_although_its_sibling_had_failed_before_the_attempt(deployment: Deployment):
    """The host is killed after it recorded the failure and before it could cancel the sub-run."""
    deployment.worker("stranded", STRANDED, deployment.folder / "tools.py")
    with deployment.up() as server:
        parent = server.dispatch("stranded")
        wait_until(deployment.children, "the command to run")
        wait_until(lambda: any(deployment.open_calls(run_id) for run_id in deployment.runs()), "the sub-run to wait")
        server.kill()
    wait_until(lambda: deployment.children() == [], "the command to be ended with its host")
    with Recorder(deployment.storage.log_path(parent), parent) as recorder:
        unknown = StepCompleted(name="Do", kind="command", try_=1, error="interrupted", error_code="outcome_unknown")
        recorder.append(unknown, path="both.bad.do")
    with deployment.up():
        ended = deployment.wait_until_all_ended()
    assert {run_id: outcome.status for run_id, outcome in ended.items() if run_id != parent} == {
        run_id: "cancelled" for run_id in deployment.runs() if run_id != parent
    }
    assert len(ended) == 2
    assert ended[parent].status == "failed"


def test_queued_runs_are_cancelled_without_being_started(deployment: Deployment):
    with deployment.up("--slots", "1") as server:
        first = server.dispatch("command")
        wait_until(lambda: "before command" in deployment.note_counts(), "the first to run")
        queued = [server.dispatch("reading", WHAT=f"queued {n}") for n in range(3)]
        for run_id in queued:
            server.post(f"/api/runs/{run_id}/cancel", reason="not that one")
        wait_until(lambda: all(deployment.outcome(run_id) for run_id in queued), "their outcomes")
        assert deployment.outcome(first) is None
        deployment.go.touch()
        ended = deployment.wait_until_all_ended()
    assert {ended[run_id].status for run_id in queued} == {"cancelled"}
    assert ended[first].status == "completed"
    assert set(deployment.note_counts()) == {"before command"}


def test_runs_that_wait_for_a_slot_after_a_restart_can_be_cancelled(deployment: Deployment):
    with deployment.up() as server:
        runs = [server.dispatch("reading", WHAT=str(n)) for n in range(4)]
        wait_until(lambda: deployment.note_counts()["reading"] == 4, "all to be in the middle")
        server.kill()
    with deployment.up("--slots", "1") as server:
        wait_until(lambda: deployment.note_counts()["reading"] == 5, "one of them to go on")
        for run_id in runs:
            server.post(f"/api/runs/{run_id}/cancel", reason="enough")
        ended = deployment.wait_until_all_ended(seconds=20)
    assert {outcome.status for outcome in ended.values()} == {"cancelled"}


def stopped_outside_of_the_database(pid: int, deployment: Deployment) -> bool:
    """Stop the process unless it is writing rows, which would lock the database for all. Returns True if stopped."""
    os.kill(pid, signal.SIGSTOP)
    database = sqlite3.connect(deployment.storage.database, timeout=0.2)
    try:
        database.execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError:
        os.kill(pid, signal.SIGCONT)
        return False
    finally:
        database.close()
    return True


def test_a_run_of_a_process_that_was_stopped_is_cancelled_by_a_server_that_comes_later(deployment: Deployment):
    arguments = ["run", "-q", "command", "--workers", str(deployment.folder / "workers")]
    options = ["-i", f"NOTES={deployment.notes}", "-i", f"GO={deployment.go}"]
    alone = subprocess.Popen([SHOPFLOOR, *arguments, *options], env=deployment.env, stdout=subprocess.DEVNULL)
    try:
        wait_until(lambda: len(deployment.children()) > 0, "its command to run")
        wait_until(lambda: stopped_outside_of_the_database(alone.pid, deployment), "it to be stopped")
        with deployment.up(CANCEL_KILL_SECONDS=CANCEL_KILL_SECONDS) as server:
            (run_id,) = deployment.runs()
            started_at = time.monotonic()
            server.post(f"/api/runs/{run_id}/cancel", reason="it hangs")
            ended = deployment.wait_until_all_ended(seconds=CANCEL_KILL_SECONDS + 30)
            assert time.monotonic() - started_at > CANCEL_KILL_SECONDS - 1
            assert ended[run_id].status == "cancelled"
            assert alone.wait(TIMEOUT_SECONDS) == -signal.SIGKILL
            wait_until(lambda: deployment.children() == [], "nobody to be left")
    finally:
        alone.kill()
        alone.wait()


def test_a_run_without_a_server_stays_with_its_process_when_a_server_comes(deployment: Deployment):
    arguments = ["run", "-q", "command", "--workers", str(deployment.folder / "workers")]
    options = ["-i", f"NOTES={deployment.notes}", "-i", f"GO={deployment.go}"]
    alone = subprocess.Popen([SHOPFLOOR, *arguments, *options], env=deployment.env, stdout=subprocess.PIPE, text=True)
    wait_until(lambda: len(deployment.children()) > 0, "its command to run")
    with deployment.up():
        time.sleep(2.5)
        (run_id,) = deployment.runs()
        assert deployment.outcome(run_id) is None
        deployment.go.touch()
        printed, _ = alone.communicate(timeout=TIMEOUT_SECONDS)
        assert alone.returncode == 0
        assert "through" in printed
        deployment.wait_until_all_ended()
    attempts = [event.payload for event in deployment.events(run_id) if event.type == "run.started"]
    assert len(attempts) == 1
    assert deployment.note_counts() == {"before command": 1}
    wait_until(lambda: processes_with(deployment.mark) == [], "nobody to be left")
