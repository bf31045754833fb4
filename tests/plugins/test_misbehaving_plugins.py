"""Runs of plugins that hang, lie, flood, answer garbage or die: one outcome each, with the reason, and nothing else stops."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.plugins.plugin_server import MISBEHAVING, Server, Site, pids_in
from tests.timeouts import wait_until

from shopfloor.limits import PLUGIN_NOTE_CHARS, PLUGIN_NOTES
from shopfloor.log import ToolCall

CALL_SECONDS = 5.0
LIMITS = {
    "PLUGIN_ANSWER_BYTES": 3_000_000,
    "PLUGIN_CALL_SECONDS": CALL_SECONDS,
    "PLUGIN_SILENCE_SECONDS": 8.0,
    "PLUGIN_CANCEL_SECONDS": 4.0,
}

COMPLETED = [
    "plain",
    "garbage-once",
    "late",
    "back-to-running",
    "odd-cost",
    "endless-summary",
    "endless-questions",
    "long-output",
]
FAILED = {
    "refuses": "worker/dispatch: this task is not for me",
    "empty-id": "worker/dispatch returned an unusable jobId: ''",
    "path-id": "worker/dispatch returned an unusable jobId: '../../etc/passwd'",
    "long-id": "worker/dispatch returned an unusable jobId: 'xxx",
    "hangs": f"worker/status: no answer within {CALL_SECONDS:g} s",
    "garbage": "worker/status: not a JSON-RPC response",
    "nested": "worker/status: not a JSON-RPC response",
    "empty": "worker/status: not a JSON-RPC response",
    "large": "worker/status: the answer is larger than 3,000,000 bytes",
    "bomb": "worker/status: the answer is larger than 3,000,000 bytes",
    "unknown-status": "Invalid enum value 'paused' - at `$.status`",
    "number": "worker/status: Expected `str`, got `int` - at `$.status`",
    "decisions": "worker/status: Expected `str`, got `int` - at `$.decisions[0].question`",
    "infinite-cost": "worker/status: ",
    "other-id": "reports the job another instead of",
    "no-result": "worker/result: the job is still running",
    "fails-loudly": "loud loud",
}
UNKNOWN = {
    "late-two": "was interrupted, and 2 jobs may belong to this run",
    "late-none": "was interrupted, and no job may belong to this run",
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    site = Site(tmp_path_factory.mktemp("misbehaving"), **LIMITS)
    site.add_misbehaving(LATE_SECONDS=str(CALL_SECONDS + 2))
    with site.up("--slots", "2") as server:
        server.wait_for_plugin(MISBEHAVING)
        yield server
    site.wait_until_gone()


@pytest.fixture(scope="module")
def runs(server: Server) -> dict[str, str]:
    """One run of each behavior, all at once."""
    return {behavior: server.misbehave(behavior) for behavior in [*COMPLETED, *FAILED, *UNKNOWN]}


@pytest.mark.parametrize("behavior", COMPLETED)
def test_a_job_that_is_odd_but_ends_is_completed(server: Server, runs: dict[str, str], behavior: str) -> None:
    found = server.wait_for(runs[behavior])
    assert (found["status"], found["error"]) == ("done", None)
    expected = "o" * 2_000_000 if behavior == "long-output" else f"output of {behavior}"
    assert server.site.outcome(runs[behavior]).result == expected


@pytest.mark.parametrize("behavior", FAILED)
def test_a_job_against_the_protocol_fails_with_the_reason(server: Server, runs: dict[str, str], behavior: str) -> None:
    found = server.wait_for(runs[behavior])
    outcome = server.site.outcome(runs[behavior])
    assert found["status"] == "failed"
    assert outcome.error is not None
    assert FAILED[behavior] in outcome.error.message
    assert len(outcome.error.message) < 12_000


@pytest.mark.parametrize("behavior", UNKNOWN)
def test_a_lost_answer_to_a_dispatch_is_never_guessed(server: Server, runs: dict[str, str], behavior: str) -> None:
    server.wait_for(runs[behavior])
    error = server.site.outcome(runs[behavior]).error
    assert error is not None
    assert error.code == "outcome_unknown"
    assert UNKNOWN[behavior] in error.message


def test_an_answer_that_comes_too_late_is_found_by_the_description(server: Server, runs: dict[str, str]) -> None:
    server.wait_for(runs["late"])
    (job,) = [
        path for path in (server.site.plugins / MISBEHAVING / "jobs").glob("[!.]*") if '"late"' in path.read_text()
    ]
    assert server.site.job_id(runs["late"]) == job.name


def test_a_flood_of_notes_is_cut(server: Server, runs: dict[str, str]) -> None:
    for behavior in ("endless-summary", "endless-questions"):
        server.wait_for(runs[behavior])
    summaries = [call.input["summary"] for call in server.site.payloads(runs["endless-summary"], ToolCall)]
    assert len(summaries) == 6
    assert {len(summary) for summary in summaries} == {PLUGIN_NOTE_CHARS}
    questions = server.site.payloads(runs["endless-questions"], ToolCall)
    assert len(questions) == PLUGIN_NOTES
    assert server.site.storage.log_path(runs["endless-questions"]).stat().st_size < 3_000_000


def test_a_cost_below_zero_is_not_a_cost(server: Server, runs: dict[str, str]) -> None:
    assert not server.wait_for(runs["odd-cost"])["cost_usd"]


@pytest.mark.req("FE-58")
def test_the_progress_of_a_job_is_recorded_in_percent_if_it_is_a_fraction(server: Server, runs: dict[str, str]) -> None:
    assert server.wait_for(runs["back-to-running"])["progress"] == 1
    (first, *_) = server.site.payloads(runs["back-to-running"], ToolCall)
    assert first.input == {"summary": "poll 1", "progress": 0.5}
    assert server.wait_for(runs["odd-cost"])["progress"] is None


def test_the_plugin_and_the_server_work_on_after_all_of_that(server: Server, runs: dict[str, str]) -> None:
    for run_id in runs.values():
        server.wait_for(run_id)
    assert server.plugin(MISBEHAVING)["status"] == "ready"
    assert server.wait_for(server.misbehave("plain", "once more"))["status"] == "done"


# Deaths


def test_a_plugin_that_dies_on_a_dispatch_is_restarted_and_the_dispatch_not_repeated(server: Server) -> None:
    site, folder = server.site, server.site.plugins / MISBEHAVING
    starts = len((folder / "starts").read_text().splitlines())
    before = server.misbehave("dies-before")
    server.wait_for(before)
    error = site.outcome(before).error
    assert error is not None
    assert (error.code, "no job may belong to this run" in error.message) == ("outcome_unknown", True)
    server.wait_for_plugin(MISBEHAVING)
    after = server.misbehave("dies-after")
    assert server.wait_for(after)["status"] == "done"
    assert site.outcome(after).result == "output of dies-after"
    assert len([path for path in (folder / "jobs").glob("[!.]*") if "dies-after" in path.read_text()]) == 1
    assert len((folder / "starts").read_text().splitlines()) == starts + 2


def test_a_job_goes_on_over_the_restart_of_its_plugin(server: Server) -> None:
    folder = server.site.plugins / MISBEHAVING
    run_id = server.misbehave("waits")
    wait_until(lambda: server.site.notes(run_id, "update_summary"), "the first report")
    (pid,) = pids_in(folder)
    os.kill(pid, signal.SIGKILL)
    server.wait_for_plugin(MISBEHAVING, "error")
    assert server.plugin(MISBEHAVING)["error"] == "killed by SIGKILL"
    server.wait_for_plugin(MISBEHAVING)
    (folder / "go").touch()
    assert server.wait_for(run_id)["status"] == "done"
    (folder / "go").unlink()


# Cancellation


def test_cancel_answers_after_its_limit_if_the_job_does_not_end(server: Server) -> None:
    run_id = server.misbehave("hangs", "to be cancelled", adopts=True)
    server.wait_for(run_id, "running")
    server.post(f"/api/runs/{run_id}/cancel")
    assert server.wait_for(run_id)["status"] == "cancelled"
    assert server.site.outcome(run_id).status == "cancelled"


def test_a_job_that_waits_is_cancelled_in_the_plugin(server: Server) -> None:
    run_id = server.misbehave("waits", "to be cancelled as well", adopts=True)
    wait_until(lambda: server.site.notes(run_id, "update_summary"), "the first report")
    server.post(f"/api/runs/{run_id}/cancel")
    assert server.wait_for(run_id)["status"] == "cancelled"
    assert '"plain"' in (server.site.plugins / MISBEHAVING / "jobs" / run_id).read_text()


# Load


@pytest.mark.req("REQ-WD-5")
def test_a_hundred_jobs_at_once_hold_no_slot(server: Server) -> None:
    folder = server.site.plugins / MISBEHAVING
    jobs = folder / "jobs"
    before = len(list(jobs.glob("[!.]*")))
    with ThreadPoolExecutor(10) as pool:
        ids = list(pool.map(lambda number: server.misbehave("waits", f"of a hundred: {number}"), range(100)))

    wait_until(lambda: len(list(jobs.glob("[!.]*"))) == before + 100, "all jobs to be dispatched")
    # The server has two slots. Another run gets one at once.
    assert (
        server.wait_for(server.post("/api/runs", worker="hello", input={"NAME": "Ada"})["run_id"])["status"] == "done"
    )
    assert server.wait_for(server.misbehave("plain", "beside a hundred"))["status"] == "done"
    (folder / "go").touch()
    assert {server.wait_for(run_id)["status"] for run_id in ids} == {"done"}
    assert len({server.site.job_id(run_id) for run_id in ids}) == 100
    (folder / "go").unlink()
