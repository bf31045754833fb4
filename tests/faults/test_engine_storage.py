"""A storage that cannot be written: new runs are rejected, existing runs are listed or resumed."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest
from tests.faults.engine_server import Deployment
from tests.timeouts import wait_until

from shopfloor.log import RunStarted, UserMessage


@pytest.fixture
def deployment(tmp_path: Path) -> Deployment:
    return Deployment(tmp_path)


def test_below_the_low_water_mark_no_run_is_accepted(tmp_path: Path):
    deployment = Deployment(tmp_path, SHOPFLOOR_DISK_LOW_WATER=str(2**60))
    with deployment.up() as server:
        answer = server.http.post("/api/runs", json={"worker": "reading", "input": {"NOTES": "n", "GO": "g"}})
        assert answer.status_code == 507, answer.text
        assert answer.json()["error"]["code"] == "storage_full"
        assert server.http.get("/api/agents/workers").json()["total"] == 0
    assert deployment.runs() == []


def test_below_the_low_water_mark_open_runs_are_ended_while_they_can_be_recorded(deployment: Deployment):
    with deployment.up() as server:
        run_id = server.dispatch("reading")
        wait_until(lambda: "reading" in deployment.note_counts(), "it to be in the middle")
        server.kill()
    deployment.env["SHOPFLOOR_DISK_LOW_WATER"] = str(2**60)
    with deployment.up():
        outcome = deployment.wait_until_all_ended()[run_id]
    assert outcome.status == "failed"
    assert outcome.error is not None
    assert outcome.error.code == "storage_full"


def test_a_log_that_cannot_be_written_for_a_while_loses_no_run(deployment: Deployment):
    with deployment.up(STORAGE_FULL_TIMEOUT_SECONDS=1.0) as server:
        runs = {state: server.dispatch(state) for state in ("command", "reading")}
        wait_until(lambda: {f"before {state}" for state in runs} <= set(deployment.note_counts()), "them to begin")
        # A command's process exists before its step is recorded; the command starts only afterwards.
        wait_until(
            lambda: deployment.note_counts()["reading"] and has_command(deployment, runs["command"]),
            "them to be in the middle",
        )
        # Every write to a file fails from now on, as on a broken disk.
        pid = server.process.pid
        before = resource.prlimit(pid, resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))
        deployment.go.touch()
        sizes = {run_id: deployment.storage.log_path(run_id).stat().st_size for run_id in runs.values()}
        wait_until(lambda: all(attempt_over(deployment, run_id) for run_id in runs.values()), "the runs to be left")
        assert {run_id: deployment.storage.log_path(run_id).stat().st_size for run_id in runs.values()} == sizes
        resource.prlimit(pid, resource.RLIMIT_FSIZE, before)
        ended = deployment.wait_until_all_ended()
        assert server.process.poll() is None
    errors = {state: ended[run_id].error for state, run_id in runs.items()}
    codes = {state: error.code if error else None for state, error in errors.items()}
    assert codes == {"command": "outcome_unknown", "reading": None}
    for run_id in runs.values():
        assert sum(isinstance(event.payload, RunStarted) for event in deployment.events(run_id)) == 2


def has_command(deployment: Deployment, run_id: str) -> bool:
    return any(isinstance(event.payload, UserMessage) for event in deployment.events(run_id))


def attempt_over(deployment: Deployment, run_id: str) -> bool:
    from shopfloor.record import is_locked

    return not is_locked(deployment.storage.log_path(run_id))
