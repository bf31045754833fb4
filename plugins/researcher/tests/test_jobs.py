"""The job store: what is on disk is what comes back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from plugin.jobs import Decision, JobError, JobStore


def reloaded(folder: Path) -> JobStore:
    """Return the jobs as the next start of the plugin reads them."""
    jobs = JobStore(folder)
    jobs.load()
    return jobs


def meta(folder: Path, job_id: str) -> dict[str, Any]:
    return json.loads((folder / job_id / "meta.json").read_text())


def test_an_ended_job_comes_back_with_all_that_was_reported(tmp_path: Path) -> None:
    jobs = JobStore(tmp_path)
    job = jobs.create("A question", "Find out.", {"max_turns": 3})
    jobs.update_summary(job, "I look for sources.")
    jobs.add_question(job, "May I\nask?")
    jobs.add_decision(job, Decision("Which year?", "2026", "The task names none."))
    jobs.write_artifact(job, "data.csv", "a,b\n")
    jobs.end(job, "completed", output="It is so.", cost_usd=0.5)
    jobs.end(job, "failed", error="too late")
    again = reloaded(tmp_path)
    assert again.list() == [job]
    assert (job.status, job.cost_usd, job.questions) == ("completed", 0.5, ["May I ask?"])
    assert again.output(job) == "It is so."
    assert again.artifacts(job) == ["artifacts/data.csv"]


def test_jobs_are_listed_oldest_first_also_after_a_restart(tmp_path: Path) -> None:
    jobs = JobStore(tmp_path)
    for number, job_id in enumerate(["c", "a", "b"]):
        job = jobs.create(f"job {job_id}", "Find out.", {}, job_id)
        jobs.end(job, "completed", output="")
        path = tmp_path / job_id / "meta.json"
        path.write_text(json.dumps({**meta(tmp_path, job_id), "startedAt": f"2026-01-01T00:00:0{number}.000Z"}))
    assert [job.id for job in jobs.list()] == ["c", "a", "b"]
    assert [job.id for job in reloaded(tmp_path).list()] == ["c", "a", "b"]


def test_a_deletion_that_a_crash_interrupted_is_completed_at_the_next_start(tmp_path: Path) -> None:
    jobs = JobStore(tmp_path)
    job = jobs.create("A question", "Find out.", {}, "run-1")
    jobs.end(job, "completed", output="It is so.")
    (tmp_path / "run-1").rename(tmp_path / ".deleted-run-1")
    assert reloaded(tmp_path).list() == []
    assert list(tmp_path.iterdir()) == []


def test_a_job_that_was_running_is_failed_at_the_next_start(tmp_path: Path) -> None:
    JobStore(tmp_path).create("A question", "Find out.", {}, "run-1")
    assert meta(tmp_path, "run-1")["status"] == "running"
    job = reloaded(tmp_path).get("run-1")
    assert (job.status, (job.error or "")[:11]) == ("failed", "interrupted")
    assert meta(tmp_path, "run-1")["status"] == "failed"


def test_a_folder_that_is_no_job_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "half-created" / "artifacts").mkdir(parents=True)
    assert reloaded(tmp_path).list() == []
    assert (tmp_path / "half-created").is_dir()


def test_a_job_whose_result_cannot_be_written_is_failed(tmp_path: Path) -> None:
    jobs = JobStore(tmp_path)
    job = jobs.create("A question", "Find out.", {}, "run-1")
    (tmp_path / "run-1" / "result.md").mkdir()
    jobs.end(job, "completed", output="It is so.", cost_usd=0.5)
    assert (job.status, job.error) == ("failed", "the result cannot be written: Is a directory")
    assert (meta(tmp_path, "run-1")["status"], meta(tmp_path, "run-1")["costUsd"]) == ("failed", 0.5)


@pytest.mark.parametrize(("status", "expected"), [("completed", "failed"), ("failed", "failed"), ("cancelled",) * 2])
def test_a_job_ends_also_if_no_file_can_be_written(tmp_path: Path, status: Any, expected: str) -> None:
    jobs = JobStore(tmp_path)
    job = jobs.create("A question", "Find out.", {}, "run-1")
    (tmp_path / "run-1").rename(tmp_path / "moved")
    jobs.end(job, status)
    assert job.status == expected
    assert job.completed_at is not None


def test_only_completed_and_cancelled_jobs_can_be_deleted(tmp_path: Path) -> None:
    jobs = JobStore(tmp_path)
    job = jobs.create("A question", "Find out.", {}, "run-1")
    with pytest.raises(JobError, match="is running; only completed and cancelled"):
        jobs.delete(job)
    jobs.end(job, "cancelled")
    jobs.delete(job)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(JobError, match="unknown job 'run-1'"):
        jobs.get("run-1")


@pytest.mark.parametrize("name", ["../x", ".hidden", "a/b", "", "x" * 101])
def test_an_artifact_stays_in_the_folder_of_its_job(tmp_path: Path, name: str) -> None:
    jobs = JobStore(tmp_path)
    job = jobs.create("A question", "Find out.", {})
    with pytest.raises(JobError, match="invalid artifact name"):
        jobs.write_artifact(job, name, "x")
