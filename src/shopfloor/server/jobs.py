"""The six `worker/*` methods over all workers: a run is a job, by the names that plugins use for theirs.

Each method gets its checked parameters and returns the fields of its result. Errors are those of the HTTP API.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from fnmatch import fnmatchcase
from typing import Annotated, Any, Final, Literal, NamedTuple, cast

import anyio
import msgspec
from msgspec import UNSET, Meta, UnsetType
from starlette.requests import Request

from shopfloor.errors import (
    ConflictError,
    Forbidden,
    InvalidParameter,
    NeedsForce,
    RunEnded,
    RunNotFound,
    RunRunning,
)
from shopfloor.limits import FILTER_MAX_CHARS, TASK_MAX_CHARS
from shopfloor.log import is_run_id
from shopfloor.ports import JobStatus, RunFilter, RunItem, RunRequest, RunService, WorkerInfo, run_fields
from shopfloor.server.artifacts import find_artifacts
from shopfloor.server.audit import audit, audit_deleted
from shopfloor.server.limits import LIST_MAX, RPC_CANCEL_SECONDS, RPC_JOBS, RPC_LIST_PAGES, RPC_NAMED_WORKERS
from shopfloor.server.pending_calls import find_pending_calls
from shopfloor.server.response_models import Awaited
from shopfloor.server.responses import get_services, require_run_service
from shopfloor.server.sse import closing

_CHANNEL: Final = "rpc"
_PLUGIN: Final = "plugin"
_ENDED: Final[Mapping[str, JobStatus]] = {"completed": "completed", "failed": "failed", "cancelled": "cancelled"}
_SHOWN_CHARS: Final = 100


class _Params(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    pass


class DispatchParams(_Params, frozen=True, kw_only=True):
    """The work for a job. Shopfloor adds `worker`, `input`, `cwd` and `client` to the fields of the protocol."""

    description: Annotated[str, Meta(min_length=1, max_length=TASK_MAX_CHARS)]
    task: str | UnsetType = UNSET
    config: dict[str, Any] = {}
    worker: run_fields.Worker | None = None
    input: dict[str, Any] | UnsetType = UNSET
    cwd: run_fields.Folder = None
    client: run_fields.Client = None


class ListParams(_Params, frozen=True, kw_only=True):
    """Which jobs to list, and how. Shopfloor adds `worker` and `cursor` to the fields of the protocol."""

    detail: Literal["simple", "detailed"] = "simple"
    filter: Annotated[str, Meta(max_length=FILTER_MAX_CHARS)] | None = None
    worker: run_fields.Worker | None = None
    cursor: Annotated[str, Meta(min_length=1, max_length=FILTER_MAX_CHARS)] | None = None


class JobParams(_Params, frozen=True, kw_only=True):
    """A job, by the id of its run."""

    job_id: str


Method = Callable[[Request, Any], Awaitable[dict[str, Any]]]


class JobMethod(NamedTuple):
    """A method of the protocol."""

    params: type[msgspec.Struct]
    call: Method
    is_read: bool
    """Whether a role that may only read may call it."""


async def dispatch_job(request: Request, params: DispatchParams) -> dict[str, Any]:
    """Start a run and return its id."""
    run_service = require_run_service(request)
    worker = _find_worker(run_service, params)
    run_request = RunRequest(
        worker=params.worker or worker.slug,
        input=_build_input(worker, params),
        text=None if params.task is UNSET else params.task,
        task=params.description,
        channel_id=_CHANNEL,
        cwd=params.cwd,
        client=params.client,
    )
    run_id = await run_service.dispatch(run_request)
    await audit(request, "run.dispatched", run_id=run_id, detail=worker.slug)
    return {"jobId": run_id}


def _find_worker(run_service: RunService, params: DispatchParams) -> WorkerInfo:
    """Return the worker of a job; without a name, the only one that is neither an example nor a bare provider."""
    if params.worker is not None:
        return run_service.find_worker(params.worker, folder=params.cwd)
    workers = run_service.workers()
    own = [worker for worker in workers if not worker.example]
    if len(own) == 1:
        return own[0]
    hint = f"the workers are {_list_names(workers)}" if workers else "there are no workers; see `shopfloor workers new`"
    raise InvalidParameter("worker: missing, and there is not exactly one worker", hint=hint)


def _list_names(workers: list[WorkerInfo]) -> str:
    names = [worker.slug for worker in workers[:RPC_NAMED_WORKERS]]
    rest = len(workers) - len(names)
    return ", ".join([*names, *([f"and {rest} more"] if rest else [])])


def _build_input(worker: WorkerInfo, params: DispatchParams) -> dict[str, Any]:
    """Return the input of the run besides `task`: `input`, or the inputs in `config`, which a plugin gets as one."""
    if (params.task is UNSET) == (params.input is UNSET):
        raise InvalidParameter("task: missing" if params.task is UNSET else "send either `task` or `input`, not both")
    if params.input is UNSET:
        return {"config": params.config} if worker.worker_type == _PLUGIN and params.config else params.config
    if params.config:
        raise InvalidParameter("config: can only be used with `task`", hint="`input` has all inputs by name")
    return params.input


async def list_jobs(request: Request, params: ListParams) -> dict[str, Any]:
    """Return the jobs, newest first. `next` is the cursor for older ones; it is left out if there are none."""
    store = get_services(request).store
    name = None if params.worker is None else params.worker.rpartition("/")[2]
    jobs: list[dict[str, Any]] = []
    cursor = params.cursor
    for _ in range(RPC_LIST_PAGES):
        page = await store.list_runs(RunFilter(roots=True, name=name), limit=LIST_MAX, cursor=cursor)
        jobs += [
            _describe_job(run, params.detail)
            for run in page.items
            if params.filter is None or fnmatchcase(run.row.task, params.filter)
        ]
        cursor = page.next
        if cursor is None or len(jobs) >= RPC_JOBS:
            break
    return {"jobs": jobs, **({"next": cursor} if cursor is not None else {})}


def _describe_job(run: RunItem, detail: str) -> dict[str, Any]:
    fields: dict[str, Any] = {"jobId": run.row.id, "status": _status(run)}
    return fields if detail == "simple" else {**fields, "description": run.row.task, "summary": run.row.notes.summary}


def _status(run: RunItem) -> JobStatus:
    """Return the status of a job: everything that has not ended is `running`."""
    return _ENDED.get(run.row.status, "running")


async def job_status(request: Request, params: JobParams) -> dict[str, Any]:
    """Return the state of a job. `questions` also has those that the run waits for."""
    run = await _get_job(request, params)
    row = run.row
    services = get_services(request)
    calls = await find_pending_calls(services.store, services.logs, run)
    questions = [*row.notes.questions, *(text for call in calls if (text := _question_of(call)) is not None)]
    return {
        "jobId": row.id,
        "status": _status(run),
        "description": row.task,
        "summary": row.notes.summary,
        "questions": questions or None,
        "decisions": row.notes.decisions or None,
        "error": row.error_message,
        "startedAt": row.started_at,
        "completedAt": row.completed_at,
    }


def _question_of(call: Awaited) -> str | None:
    """Return the question that a call asks a person; None if the call is another one, or has its answer."""
    fields: Any = call.input
    question = cast("dict[str, Any]", fields).get("question") if isinstance(fields, dict) else None
    return question if isinstance(question, str) and not call.answered else None


async def job_result(request: Request, params: JobParams) -> dict[str, Any]:
    """Return the output of a completed job."""
    run = await _get_job(request, params)
    status = _status(run)
    if status != "completed":
        reason = f": {run.row.error_message}" if run.row.error_message else ""
        hint = "worker/status shows where it is" if status == "running" else "dispatch the task again"
        raise ConflictError(f"the job {params.job_id} has no result, it is {status}{reason}", hint=hint)
    artifacts = [artifact.name for artifact in await find_artifacts(get_services(request).blobs, run)]
    return {"jobId": run.row.id, "output": run.row.result or "", "artifacts": artifacts or None}


async def cancel_job(request: Request, params: JobParams) -> dict[str, Any]:
    """Cancel a job and wait for its end, up to `RPC_CANCEL_SECONDS`. A job that has ended keeps its status."""
    run_service = require_run_service(request)
    await _get_job(request, params)
    try:
        await run_service.cancel(params.job_id, reason="cancelled by worker/cancel")
    except RunEnded:
        pass
    else:
        await audit(request, "run.cancelled", run_id=params.job_id)
    with anyio.move_on_after(RPC_CANCEL_SECONDS):
        await _wait_for_end(request, params)
    return {"jobId": params.job_id, "status": _status(await _get_job(request, params))}


async def _wait_for_end(request: Request, params: JobParams) -> None:
    # Subscribe first, so that an end between the two is not missed.
    async with get_services(request).changes.subscribe() as subscribed, closing(subscribed) as batches:
        if (await _get_job(request, params)).row.is_ended:
            return
        async for batch in batches:
            if any(isinstance(run, RunItem) and run.row.id == params.job_id and run.row.is_ended for run in batch):
                return


async def delete_job(request: Request, params: JobParams) -> dict[str, Any]:
    """Delete a completed or cancelled job, with its sub-runs."""
    delete = get_services(request).delete_run
    if delete is None:
        raise Forbidden("this server cannot delete runs")
    await _get_job(request, params)
    try:
        deleted = await delete(params.job_id, force=False)
    except (NeedsForce, RunRunning) as error:
        status = "failed" if isinstance(error, NeedsForce) else "running"
        message = f"the job {params.job_id} is {status}: only completed and cancelled jobs can be deleted"
        raise ConflictError(message, hint=error.hint) from error
    await audit_deleted(request, params.job_id, deleted)
    return {"jobId": params.job_id, "deleted": True}


async def _get_job(request: Request, params: JobParams) -> RunItem:
    run = await get_services(request).store.get_run(params.job_id) if is_run_id(params.job_id) else None
    if run is None:
        raise RunNotFound(f"there is no job {params.job_id[:_SHOWN_CHARS]!r}", hint="worker/list lists the jobs")
    return run


JOB_METHODS: Final[Mapping[str, JobMethod]] = {
    "worker/dispatch": JobMethod(DispatchParams, dispatch_job, is_read=False),
    "worker/list": JobMethod(ListParams, list_jobs, is_read=True),
    "worker/status": JobMethod(JobParams, job_status, is_read=True),
    "worker/result": JobMethod(JobParams, job_result, is_read=True),
    "worker/cancel": JobMethod(JobParams, cancel_job, is_read=False),
    "worker/delete": JobMethod(JobParams, delete_job, is_read=False),
}
