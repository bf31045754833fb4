"""The six `worker/*` methods."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol, cast

from plugin.files import is_safe_name
from plugin.jobs import Job, JobError, JobStore
from plugin.settings import CANCEL_SECONDS, CONCURRENT_JOBS

Params = dict[str, Any]


class InvalidParams(Exception):
    """Parameters that a method does not accept: JSON-RPC error -32602."""


class Work(Protocol):
    """What works on a job."""

    cost_usd: float | None

    async def run(self, task: str) -> str:
        """Return the output. An exception is the failure, and its text the message."""
        ...


class WorkerService:
    """Starts, lists, cancels and deletes jobs. `work` creates what works on a job.

    `is_stopping`: whether the plugin is being stopped. Its agents may get the same signal.
    """

    def __init__(self, jobs: JobStore, work: Callable[[Job, Params], Work], is_stopping: Callable[[], bool]) -> None:
        self._jobs = jobs
        self._work = work
        self._is_stopping = is_stopping
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._slots = asyncio.Semaphore(CONCURRENT_JOBS)

    async def dispatch(self, params: Params) -> Params:
        description, task = _text(params, "description"), _text(params, "task")
        config = _config(params.get("config"))
        try:
            job = self._jobs.create(description, task, config, config.get("run_id"))
        except JobError as error:
            raise InvalidParams(str(error)) from error
        # The agent starts after the answer.
        if job.is_running and job.id not in self._tasks:
            self._tasks[job.id] = asyncio.create_task(self._run(job, task, config))
        return {"jobId": job.id}

    async def list(self, params: Params) -> Params:
        detail = params.get("detail", "simple")
        if detail not in {"simple", "detailed"}:
            raise InvalidParams(f'detail must be "simple" or "detailed", got {detail!r}')
        pattern = params.get("filter")
        if pattern is not None and not isinstance(pattern, str):
            raise InvalidParams("filter must be a glob pattern, as text")
        jobs = self._jobs.list(pattern)
        if detail == "simple":
            return {"jobs": [{"jobId": job.id, "status": job.status} for job in jobs]}
        return {
            "jobs": [
                {"jobId": job.id, "status": job.status, "description": job.description, "summary": job.summary}
                for job in jobs
            ]
        }

    async def status(self, params: Params) -> Params:
        job = self._job(params)
        return {
            "jobId": job.id,
            "status": job.status,
            "description": job.description,
            "summary": job.summary,
            "questions": job.questions or None,
            "decisions": [asdict(each) for each in job.decisions] or None,
            "error": job.error,
            "startedAt": job.started_at,
            "completedAt": job.completed_at,
            "costUsd": job.cost_usd,
        }

    async def result(self, params: Params) -> Params:
        job = self._job(params)
        try:
            output = self._jobs.output(job)
        except JobError as error:
            raise InvalidParams(str(error)) from error
        return {"jobId": job.id, "output": output, "artifacts": self._jobs.artifacts(job) or None}

    async def cancel(self, params: Params) -> Params:
        job = self._job(params)
        if job.is_running:
            # The outcome first: an agent that ends at this moment must not overwrite it.
            self._jobs.end(job, "cancelled")
            if (task := self._tasks.get(job.id)) is not None:
                task.cancel()
                await asyncio.wait([task], timeout=CANCEL_SECONDS)
        return {"jobId": job.id, "status": job.status}

    async def delete(self, params: Params) -> Params:
        job = self._job(params)
        try:
            self._jobs.delete(job)
        except JobError as error:
            raise InvalidParams(str(error)) from error
        return {"jobId": job.id, "deleted": True}

    async def close(self) -> None:
        """Stop all agents. Their jobs stay `running` on disk and become `failed` at the next start."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=CANCEL_SECONDS)

    async def _run(self, job: Job, task: str, config: Params) -> None:
        work: Work | None = None
        try:
            async with self._slots:
                # In a thread, because it may load modules: other requests are answered meanwhile.
                work = await asyncio.to_thread(self._work, job, config)
                output = await work.run(task)
        except Exception as error:  # noqa: BLE001 - whatever fails is the job's outcome
            # An agent that ends with the plugin was interrupted: the next start says so.
            if not self._is_stopping():
                cost_usd = work.cost_usd if work is not None else None
                self._jobs.end(job, "failed", error=str(error) or type(error).__name__, cost_usd=cost_usd)
        else:
            self._jobs.end(job, "completed", output=output, cost_usd=work.cost_usd)
        finally:
            self._tasks.pop(job.id, None)

    def _job(self, params: Params) -> Job:
        try:
            return self._jobs.get(_text(params, "jobId"))
        except JobError as error:
            raise InvalidParams(str(error)) from error


def _text(params: Params, name: str) -> str:
    value = params.get(name)
    if not isinstance(value, str) or not value.strip():
        raise InvalidParams(f"{name} must be a text that is not empty")
    return value


def _config(value: Any) -> Params:
    """Check the config of a dispatch. Unknown keys are ignored."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise InvalidParams("config must be an object")
    config = cast("Params", value)
    if config.get("run_id") is not None and not is_safe_name(config["run_id"]):
        raise InvalidParams("config.run_id must be safe as a file name")
    folders: Any = config.get("folders") or []
    if not isinstance(folders, list) or not all(_is_folder(each) for each in cast("list[Any]", folders)):
        raise InvalidParams("config.folders must be absolute paths of existing folders")
    limits = [config.get("max_turns"), config.get("max_budget_usd")]
    if not all(each is None or (isinstance(each, int | float) and each > 0) for each in limits):
        raise InvalidParams("config.max_turns and config.max_budget_usd must be positive numbers")
    if not isinstance(config.get("model") or "", str):
        raise InvalidParams("config.model must be text")
    return config


def _is_folder(path: Any) -> bool:
    return isinstance(path, str) and Path(path).is_absolute() and Path(path).is_dir()
