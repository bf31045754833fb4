"""Jobs: one folder each under `jobs/`, and an index in memory that keeps lists fast.

`meta.json` holds the status. It is written last when a job ends, so a job that is `completed` has its result.
"""

from __future__ import annotations

import contextlib
import fnmatch
import json
import shutil
import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, cast

from plugin.files import is_safe_name, read_text, write_json, write_text

Status = Literal["running", "completed", "failed", "cancelled"]

INTERRUPTED = "interrupted: the plugin stopped while this job was running"


class JobError(Exception):
    """A request that does not fit the job, as a message for the caller."""


@dataclass
class Decision:
    """A judgment call of the agent."""

    question: str
    decision: str
    reasoning: str


@dataclass
class Job:
    """The state of a job. Its files have the rest."""

    id: str
    description: str
    started_at: str
    status: Status = "running"
    completed_at: str | None = None
    error: str | None = None
    cost_usd: float | None = None
    summary: str | None = None
    questions: list[str] = field(default_factory=list[str])
    decisions: list[Decision] = field(default_factory=list[Decision])

    @property
    def is_running(self) -> bool:
        return self.status == "running"


class JobStore:
    """All jobs of this plugin. One process at a time uses a folder; its methods do not await."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._jobs: dict[str, Job] = {}
        folder.mkdir(parents=True, exist_ok=True)

    def load(self) -> None:
        """Read the jobs on disk. Jobs that were running when the plugin died become `failed`."""
        folders = [path for path in self._folder.iterdir() if path.is_dir()]
        for folder in folders:
            if folder.name.startswith("."):
                # A deletion that a crash interrupted.
                shutil.rmtree(folder, ignore_errors=True)
        jobs = [job for folder in folders if is_safe_name(folder.name) and (job := _read_job(folder)) is not None]
        for job in sorted(jobs, key=lambda job: (job.started_at, job.id)):
            self._jobs[job.id] = job
            if job.is_running:
                self.end(job, "failed", error=INTERRUPTED)

    def folder_of(self, job: Job) -> Path:
        return self._folder / job.id

    def create(self, description: str, task: str, config: dict[str, Any], job_id: str | None = None) -> Job:
        """Create a job and its folder. A repeated dispatch (same `job_id` and description) returns the same job."""
        if job_id is not None and (known := self._jobs.get(job_id)) is not None:
            if known.description != description:
                raise JobError(f"job {job_id!r} exists already, with another description")
            return known
        job = Job(id=job_id or str(uuid.uuid4()), description=description, started_at=_now())
        folder = self.folder_of(job)
        (folder / "artifacts").mkdir(parents=True, exist_ok=True)
        write_text(folder / "task.md", task)
        write_json(folder / "config.json", config)
        self._write_meta(job)
        self._jobs[job.id] = job
        return job

    def get(self, job_id: str) -> Job:
        """Return a job. Raises `JobError` for an unknown id."""
        if job_id not in self._jobs:
            raise JobError(f"unknown job {job_id!r}; worker/list returns the known ones")
        return self._jobs[job_id]

    def list(self, pattern: str | None = None) -> list[Job]:
        """Return the jobs, oldest first. `pattern` is a glob on their descriptions."""
        jobs = self._jobs.values()
        return [job for job in jobs if pattern is None or fnmatch.fnmatchcase(job.description, pattern)]

    def end(
        self,
        job: Job,
        status: Status,
        *,
        output: str | None = None,
        error: str | None = None,
        cost_usd: float | None = None,
    ) -> None:
        """Write the outcome of a job. The first outcome stays: a later one is ignored.

        The job ends also if its files cannot be written. It is `failed` then if it was to be `completed`.
        """
        if not job.is_running:
            return
        job.status, job.error, job.completed_at, job.cost_usd = status, error, _now(), cost_usd
        try:
            if output is not None:
                write_text(self.folder_of(job) / "result.md", output)
            self._write_meta(job)
        except OSError as failure:
            if job.status == "completed":
                job.status, job.error = "failed", f"the result cannot be written: {failure.strerror or failure}"
            # A smaller file may still fit.
            with contextlib.suppress(OSError):
                self._write_meta(job)

    def update_summary(self, job: Job, summary: str) -> None:
        write_text(self.folder_of(job) / "status.md", summary)
        job.summary = summary

    def add_decision(self, job: Job, decision: Decision) -> None:
        decisions = [*job.decisions, decision]
        write_json(self.folder_of(job) / "decisions.json", [vars(each) for each in decisions])
        job.decisions = decisions

    def add_question(self, job: Job, question: str) -> None:
        questions = [*job.questions, " ".join(question.split())]
        write_text(self.folder_of(job) / "questions.md", "".join(f"- {each}\n" for each in questions))
        job.questions = questions

    def write_artifact(self, job: Job, name: str, content: str) -> str:
        """Write a file of the result. Returns its path relative to the job's folder."""
        if not is_safe_name(name):
            raise JobError(f"invalid artifact name {name!r}: use letters, digits, '.', '_' and '-', no folders")
        write_text(self.folder_of(job) / "artifacts" / name, content)
        return f"artifacts/{name}"

    def output(self, job: Job) -> str:
        """Return the output of a completed job. Raises `JobError` for other jobs."""
        if job.status != "completed":
            reason = {"running": "is still running", "cancelled": "was cancelled"}.get(
                job.status, f"failed: {job.error}"
            )
            raise JobError(f"job {job.id} {reason}")
        return read_text(self.folder_of(job) / "result.md") or ""

    def artifacts(self, job: Job) -> list[str]:
        folder = self.folder_of(job) / "artifacts"
        return sorted(f"artifacts/{path.name}" for path in folder.iterdir() if not path.name.startswith("."))

    def delete(self, job: Job) -> None:
        """Remove a completed or cancelled job with all its files. Raises `JobError` for other jobs."""
        if job.status not in {"completed", "cancelled"}:
            raise JobError(f"job {job.id} is {job.status}; only completed and cancelled jobs can be deleted")
        # Renamed first: a crash in the middle leaves a folder that `load` removes.
        gone = self._folder / f".deleted-{job.id}"
        self.folder_of(job).rename(gone)
        del self._jobs[job.id]
        shutil.rmtree(gone, ignore_errors=True)

    def _write_meta(self, job: Job) -> None:
        meta = {
            "id": job.id,
            "status": job.status,
            "description": job.description,
            "startedAt": job.started_at,
            "completedAt": job.completed_at,
            "error": job.error,
            "costUsd": job.cost_usd,
        }
        write_json(self.folder_of(job) / "meta.json", meta)


def _read_job(folder: Path) -> Job | None:
    """Read a job from its files. None for a folder without a readable `meta.json`, such as a half-created job."""
    try:
        meta = cast("dict[str, Any]", json.loads((folder / "meta.json").read_bytes()))
        job = Job(
            id=folder.name,
            description=str(meta["description"]),
            started_at=str(meta["startedAt"]),
            status=cast("Status", meta["status"]),
            completed_at=meta.get("completedAt"),
            error=meta.get("error"),
            cost_usd=meta.get("costUsd"),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None
    job.summary = read_text(folder / "status.md")
    questions = read_text(folder / "questions.md") or ""
    job.questions = [line.removeprefix("- ") for line in questions.splitlines() if line.strip()]
    try:
        decisions = json.loads(read_text(folder / "decisions.json") or "[]")
        job.decisions = [Decision(**each) for each in decisions]
    except (ValueError, TypeError):
        job.decisions = []
    return job


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
