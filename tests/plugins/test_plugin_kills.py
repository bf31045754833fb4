"""The server, the plugin, or both are killed in the middle of jobs: one outcome per run, and nothing is left behind."""

from __future__ import annotations

import fcntl
import os
import signal
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from tests.agents.agent_environment import agent_environment
from tests.model_server.script import Text, Turn
from tests.model_server.server import ModelServer
from tests.plugins.plugin_server import MISBEHAVING, Server, Site, pids_in
from tests.timeouts import wait_until

from shopfloor.log import RunStarted, StepStarted

RESEARCHER = "researcher"
INTERRUPTED = "plugin researcher: interrupted: the plugin stopped while this job was running"


def is_locked(path: Path) -> bool:
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False


def assert_nothing_left(site: Site) -> None:
    """Check that no process of the site is left, no lock on a plugin, and no process of a plugin."""
    site.wait_until_gone()
    locks = list((site.storage.root / "plugins").glob("*.lock"))
    assert locks
    assert [path for path in locks if is_locked(path)] == []
    for folder in site.plugins.iterdir():
        assert pids_in(folder) == []


# A plugin that keeps its jobs, and does not adopt our run ids


def test_after_a_kill_between_dispatch_and_answer_only_a_certain_job_is_adopted(tmp_path: Path) -> None:
    site = Site(tmp_path)
    jobs = site.add_misbehaving(LATE_SECONDS="600") / "jobs"
    # `late` has one job each; `twin` is the description of two runs, of which one was not dispatched.
    with site.up() as server:
        server.wait_for_plugin(MISBEHAVING)
        single, double = server.misbehave("late", "single"), server.misbehave("late-two", "double")
        none = server.misbehave("late-none", "none")
        twins = [server.misbehave("late", "twin"), server.misbehave("late-none", "twin")]
        accepted = server.misbehave("waits", "accepted")
        wait_until(lambda: len(list(jobs.glob("[!.]*"))) == 5, "the jobs")
        wait_until(lambda: site.notes(accepted, "update_summary"), "the report of the job that is accepted")
        wait_until(
            lambda: all(site.payloads(run_id, StepStarted) for run_id in (single, double, none, *twins)),
            "all dispatches",
        )
        server.kill()
    assert_nothing_left(site)
    (jobs.parent / "go").touch()
    with site.up() as server:
        assert server.wait_for(single)["status"] == "done"
        assert server.wait_for(accepted)["status"] == "done"
        for run_id in (double, none, *twins):
            assert server.wait_for(run_id)["status"] == "failed"
    assert site.outcome(single).result == "output of late"
    (job,) = [path.name for path in jobs.iterdir() if '"single"' in path.read_text()]
    assert site.job_id(single) == job
    errors = [site.outcome(run_id).error for run_id in (double, none, *twins)]
    assert [error.code for error in errors if error] == ["outcome_unknown"] * 4
    assert [error.message.partition("interrupted, and ")[2] for error in errors if error] == [
        "2 jobs may belong to this run",
        "no job may belong to this run",
        "1 job may belong to this run or to another",
        "1 job may belong to this run or to another",
    ]
    # Nothing was dispatched again.
    assert len(list(jobs.glob("[!.]*"))) == 5
    assert [started.attempt for started in site.payloads(single, RunStarted)] == [1, 2]
    assert_nothing_left(site)


def test_a_server_that_is_stopped_leaves_its_jobs_for_the_next(tmp_path: Path) -> None:
    site = Site(tmp_path)
    folder = site.add_misbehaving()
    with site.up() as server:
        run_id = server.misbehave("waits")
        wait_until(lambda: site.notes(run_id, "update_summary"), "the first report")
        assert server.stop() == 0
    assert_nothing_left(site)
    (folder / "go").touch()
    with site.up() as server:
        assert server.wait_for(run_id)["status"] == "done"
    assert len(list((folder / "jobs").iterdir())) == 1
    assert site.outcome(run_id).result == "output of waits"
    assert_nothing_left(site)


def test_a_plugin_that_cannot_start_is_tried_again_with_growing_pauses_and_its_runs_fail(tmp_path: Path) -> None:
    site = Site(tmp_path, PLUGIN_RESTART_WAIT_SECONDS=2.0, PLUGIN_RESTART_SECONDS=0.5)
    folder = site.add_misbehaving(START="dies")
    site.add_template("word-count")
    with site.up() as server:
        server.wait_for_plugin("word-count")
        run_id = server.misbehave("plain")
        assert server.wait_for(run_id)["status"] == "failed"
        error = site.outcome(run_id).error
        assert error is not None
        assert (error.code, error.retryable) == ("plugin_unavailable", True)
        assert "misbehaving is not running: ended with exit code 1: it cannot start" in error.message
        assert server.wait_for(server.dispatch("word-count", "one two"))["status"] == "done"
        # A command beside the server fails with the same reason.
        failed = site.run("run", "-q", MISBEHAVING, "--plugins", str(site.plugins), "-i", "task=x")
        assert failed.returncode == 1
        assert "misbehaving is not running: ended with exit code 1: it cannot start" in failed.stderr
        wait_until(lambda: len((folder / "starts").read_text().splitlines()) >= 4, "four starts")
    starts = [float(line) for line in (folder / "starts").read_text().splitlines()]
    pauses = [later - earlier for earlier, later in pairwise(starts)]
    assert pauses[0] >= 0.5
    assert pauses[2] >= 2
    assert_nothing_left(site)


# The researcher, with real agents


@pytest.fixture
def site(tmp_path: Path, model_server: ModelServer) -> Site:
    site = Site(tmp_path, agent_environment("claude-code", model_server.url, tmp_path / "home"))
    site.add_template(RESEARCHER)
    model_server.say(
        Turn(say=[Text(text="A title")], tools=False, times=0),
        Turn(say=[Text(text="late")], tools=True, hang_after=0, times=0),
    )
    return site


def start_job(server: Server, model: ModelServer) -> str:
    """Dispatch a job and wait until its agent works."""
    before = len(model.requests())
    run_id = server.dispatch(RESEARCHER)
    wait_until(lambda: any(request.body.get("tools") for request in model.requests()[before:]), "the agent's request")
    return run_id


def agents_of(site: Site) -> list[str]:
    return [line for line in site.processes() if "claude_agent_sdk" in line]


def test_a_plugin_that_is_killed_in_the_middle_of_a_job_is_restarted_and_the_job_failed(
    site: Site, model_server: ModelServer
) -> None:
    with site.up() as server:
        run_id = start_job(server, model_server)
        assert agents_of(site)
        (pid,) = [
            pid for pid in pids_in(site.plugins / RESEARCHER) if b"--port" in Path(f"/proc/{pid}/cmdline").read_bytes()
        ]
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: agents_of(site) == [], "the end of the agent of the killed plugin")
        assert server.wait_for(run_id)["error"]["message"] == INTERRUPTED
        assert server.wait_for_plugin(RESEARCHER)["error"] is None
        # The server, and then both, are killed in the middle of other jobs.
        second, third = start_job(server, model_server), start_job(server, model_server)
        server.kill()
    assert_nothing_left(site)
    with site.up() as server:
        for each in (second, third):
            assert server.wait_for(each)["error"]["message"] == INTERRUPTED
        fourth = start_job(server, model_server)
        for pid in (server.process.pid, *pids_in(site.plugins / RESEARCHER)):
            os.kill(pid, signal.SIGKILL)
        server.process.communicate()
    assert_nothing_left(site)
    with site.up() as server:
        assert server.wait_for(fourth)["error"]["message"] == INTERRUPTED
        model_server.say(Turn(say=[Text(text="The answer.")], times=0))
        assert server.wait_for(server.dispatch(RESEARCHER))["result"] == "The answer."
    for each in (run_id, second, third, fourth):
        assert site.outcome(each).status == "failed"
    assert_nothing_left(site)


def test_cancel_ends_the_agent_and_answers_when_the_job_has_ended(site: Site, model_server: ModelServer) -> None:
    with site.up() as server:
        run_id = start_job(server, model_server)
        assert agents_of(site)
        cancelled = site.run("cancel", run_id)
        assert cancelled.returncode == 0, cancelled.stderr
        assert server.wait_for(run_id)["status"] == "cancelled"
        assert agents_of(site) == []
        assert '"cancelled"' in (site.plugins / RESEARCHER / "jobs" / run_id / "meta.json").read_text()
        deleted = site.run("delete", run_id)
        assert deleted.returncode == 0, deleted.stderr
        assert not (site.plugins / RESEARCHER / "jobs" / run_id).exists()
    assert site.storage.log_path(run_id).exists() is False
    assert_nothing_left(site)


@pytest.fixture(autouse=True)
def kill_leftovers(tmp_path: Path) -> Iterator[None]:
    """Keep a failing test from leaving processes behind."""
    yield
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                mine = f"site-{os.getpid()}-{tmp_path.name}".encode() in (entry / "environ").read_bytes()
                if mine:
                    os.kill(int(entry.name), signal.SIGKILL)
            except OSError:
                continue
