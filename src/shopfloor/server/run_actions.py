"""Operations that act on runs: start, answer, cancel, resume, rerun, reply, fork, pin, delete."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from shopfloor.decoding import json_decoder
from shopfloor.errors import Forbidden, RunNotFound
from shopfloor.ports import RunRequest
from shopfloor.server.audit import audit, audit_deleted
from shopfloor.server.openapi import Operations
from shopfloor.server.parameters import DeleteParams, NoParams, RunParams
from shopfloor.server.queue import build_worker_items
from shopfloor.server.request_models import (
    AnswerRequest,
    CancelRequest,
    ForkRequest,
    PinRequest,
    ReplyRequest,
    RerunRequest,
    decode_body,
)
from shopfloor.server.response_models import (
    CancelAnswer,
    Deleted,
    RunAnswer,
    WorkerItem,
    to_wire_status,
)
from shopfloor.server.responses import describe_json, get_services, json_response, require_run_service
from shopfloor.server.runs import get_owned_run

_run_decoder = json_decoder(RunRequest)
_cancel_decoder = json_decoder(CancelRequest)
_answer_decoder = json_decoder(AnswerRequest)
_rerun_decoder = json_decoder(RerunRequest)
_reply_decoder = json_decoder(ReplyRequest)
_fork_decoder = json_decoder(ForkRequest)

operations = Operations()


@operations("POST", "/api/runs", describe_json(RunAnswer, "The run is stored and queued."), body=RunRequest)
async def make_run(request: Request, _: NoParams) -> Response:
    """Start a run of a worker, independent of this connection. The run is queued until a slot is free."""
    run_service = require_run_service(request)
    body = await decode_body(request, _run_decoder)
    run_id = await run_service.dispatch(body)
    await audit(request, "run.dispatched", run_id=run_id, detail=body.worker)
    return json_response(RunAnswer(run_id))


@operations(
    "POST",
    "/api/runs/{run_id}/cancel",
    describe_json(CancelAnswer, "The request to cancel is stored; the run ends soon after."),
    RunParams,
    body=CancelRequest,
    body_required=False,
)
async def cancel_run(request: Request, params: RunParams) -> Response:
    """Cancel a run. Its record stays."""
    run_service = require_run_service(request)
    body = await decode_body(request, _cancel_decoder) if await request.body() else CancelRequest()
    await run_service.cancel(params.run_id, reason=body.reason or "cancelled by request")
    await audit(request, "run.cancelled", run_id=params.run_id, detail=body.reason)
    run = await get_owned_run(get_services(request).store, params.run_id)
    return json_response(CancelAnswer(params.run_id, to_wire_status(run.row.status)))


@operations(
    "POST",
    "/api/runs/{run_id}/answer",
    describe_json(RunAnswer, "The answer is stored; the run continues soon after."),
    RunParams,
    body=AnswerRequest,
)
async def answer_run(request: Request, params: RunParams) -> Response:
    """Answer a call that a run waits for. The first answer counts."""
    run_service = require_run_service(request)
    body = await decode_body(request, _answer_decoder)
    await run_service.answer(params.run_id, [body.to_call_result()])
    await audit(request, "run.answered", run_id=params.run_id)
    return json_response(RunAnswer(params.run_id))


@operations("POST", "/api/runs/{run_id}/resume", describe_json(RunAnswer, "The run is queued again."), RunParams)
async def resume_run(request: Request, params: RunParams) -> Response:
    """Resume a run that has not ended and has no host, for example because its host was killed."""
    await require_run_service(request).resume(params.run_id)
    await audit(request, "run.resumed", run_id=params.run_id)
    return json_response(RunAnswer(params.run_id))


@operations(
    "POST",
    "/api/runs/{run_id}/rerun",
    describe_json(RunAnswer, "The new run is stored and queued."),
    RunParams,
    body=RerunRequest,
    body_required=False,
)
async def rerun_run(request: Request, params: RunParams) -> Response:
    """Run the worker of a run again, with the same input or with some of it changed."""
    run_service = require_run_service(request)
    body = await decode_body(request, _rerun_decoder) if await request.body() else RerunRequest()
    run_id = await run_service.rerun(params.run_id, body.input, idempotency_key=body.idempotency_key)
    await audit(request, "run.rerun", run_id=run_id, detail=params.run_id)
    return json_response(RunAnswer(run_id))


@operations(
    "POST",
    "/api/runs/{run_id}/reply",
    describe_json(RunAnswer, "The new run is stored and queued."),
    RunParams,
    body=ReplyRequest,
)
async def reply_to_run(request: Request, params: RunParams) -> Response:
    """Continue the session of an agent that has ended: a new run resumes the session with this prompt."""
    run_service = require_run_service(request)
    body = await decode_body(request, _reply_decoder)
    run_id = await run_service.reply(params.run_id, body.text, idempotency_key=body.idempotency_key)
    await audit(request, "run.replied", run_id=run_id, detail=params.run_id)
    return json_response(RunAnswer(run_id))


@operations(
    "POST",
    "/api/runs/{run_id}/fork",
    describe_json(RunAnswer, "The new run is stored and queued."),
    RunParams,
    body=ForkRequest,
)
async def fork_run(request: Request, params: RunParams) -> Response:
    """Start a run with the steps and messages of another run up to an event, and continue from there."""
    run_service = require_run_service(request)
    body = await decode_body(request, _fork_decoder)
    run_id = await run_service.fork(params.run_id, body.at, idempotency_key=body.idempotency_key)
    await audit(request, "run.forked", run_id=run_id, detail=f"{params.run_id} at {body.at}")
    return json_response(RunAnswer(run_id))


_pin_decoder = json_decoder(PinRequest)


@operations(
    "POST", "/api/runs/{run_id}/pin", describe_json(WorkerItem, "The run after the change."), RunParams, body=PinRequest
)
async def pin_run(request: Request, params: RunParams) -> Response:
    """Pin a run, so that it is kept when old runs are pruned, or unpin it."""
    services = get_services(request)
    body = await decode_body(request, _pin_decoder)
    if not await services.store.pin(params.run_id, pinned=body.pinned):
        raise RunNotFound(f"there is no run {params.run_id}")
    await audit(request, "run.pinned" if body.pinned else "run.unpinned", run_id=params.run_id)
    await services.changes.publish_rows(params.run_id)
    (item,) = await build_worker_items(services, [await get_owned_run(services.store, params.run_id)])
    return json_response(item)


@operations("DELETE", "/api/runs/{run_id}", describe_json(Deleted, "The deleted runs."), DeleteParams)
async def delete_run(request: Request, params: DeleteParams) -> Response:
    """Delete a run that has ended, and its sub-runs. Deleting a failed run needs `force`."""
    delete = get_services(request).delete_run
    if delete is None:
        raise Forbidden("this server cannot delete runs")
    deleted = await delete(params.run_id, force=params.force)
    await audit_deleted(request, params.run_id, deleted)
    return json_response(Deleted(deleted))
