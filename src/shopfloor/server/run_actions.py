"""What is asked of runs: that there be one, that it end, that it go on with an answer."""

from __future__ import annotations

import anyio.to_thread
from starlette.requests import Request
from starlette.responses import Response

from shopfloor.decoding import json_decoder
from shopfloor.errors import Forbidden, RunNotFound
from shopfloor.ports import RunRequest
from shopfloor.server.audit import audit
from shopfloor.server.openapi import Operations
from shopfloor.server.parameters import DeleteParams, NoParams, RunParams
from shopfloor.server.request_models import AnswerOrder, CancelOrder, PinRequest, decode_body
from shopfloor.server.response_models import (
    CancelAnswer,
    Catalogue,
    ChannelItem,
    ChannelList,
    Deleted,
    Health,
    ProviderList,
    RunAnswer,
    WorkerItem,
    build_worker_item,
    to_wire_status,
)
from shopfloor.server.responses import answer, describe_json, get_services, require_run_service
from shopfloor.server.runs import get_owned_run

_run_request = json_decoder(RunRequest)
_cancel_order = json_decoder(CancelOrder)
_answer_order = json_decoder(AnswerOrder)

operations = Operations()


@operations("POST", "/api/runs", describe_json(RunAnswer, "It is kept, and begins as soon as it can."), body=RunRequest)
async def make_run(request: Request, _: NoParams) -> Response:
    """Has a worker run, whoever watches."""
    run_service = require_run_service(request)
    wanted = await decode_body(request, _run_request)
    run_id = await run_service.dispatch(wanted)
    await audit(request, "run.dispatched", run_id=run_id, detail=wanted.worker)
    return answer(RunAnswer(run_id))


@operations(
    "POST",
    "/api/runs/{run_id}/cancel",
    describe_json(CancelAnswer, "It ends as soon as it can."),
    RunParams,
    body=CancelOrder,
    body_required=False,
)
async def cancel_run(request: Request, asked: RunParams) -> Response:
    """Ends a run; what was recorded of it stays."""
    run_service = require_run_service(request)
    order = await decode_body(request, _cancel_order) if await request.body() else CancelOrder()
    await run_service.cancel(asked.run_id, reason=order.reason or "somebody cancelled it")
    await audit(request, "run.cancelled", run_id=asked.run_id, detail=order.reason)
    run = await get_owned_run(get_services(request).store, asked.run_id)
    return answer(CancelAnswer(asked.run_id, to_wire_status(run.row.status)))


@operations(
    "POST",
    "/api/runs/{run_id}/answer",
    describe_json(RunAnswer, "The run has the answer."),
    RunParams,
    body=AnswerOrder,
)
async def answer_run(request: Request, asked: RunParams) -> Response:
    """Answers what a run waits for; the first answer counts."""
    run_service = require_run_service(request)
    order = await decode_body(request, _answer_order)
    await run_service.answer(asked.run_id, [order.to_call_result()])
    await audit(request, "run.answered", run_id=asked.run_id)
    return answer(RunAnswer(asked.run_id))


@operations(
    "GET", "/api/providers", describe_json(ProviderList, "The agents and model APIs, and which of them are there.")
)
async def list_providers(request: Request, _: NoParams) -> Response:
    """Whom a task can be handed to on the server's machine, and what each can do."""
    served = get_services(request)
    found = await anyio.to_thread.run_sync(served.providers) if served.providers else []
    return answer(ProviderList(found, [one.name for one in found if one.usable]))


@operations("POST", "/api/runs/{run_id}/resume", describe_json(RunAnswer, "It goes on as soon as it can."), RunParams)
async def resume_run(request: Request, asked: RunParams) -> Response:
    """Resumes a run that has not ended and has no host, for example because its host was killed."""
    await require_run_service(request).resume(asked.run_id)
    await audit(request, "run.resumed", run_id=asked.run_id)
    return answer(RunAnswer(asked.run_id))


@operations("GET", "/api/workers", describe_json(Catalogue, "The workers, by their slugs."))
async def list_catalogue(request: Request, _: NoParams) -> Response:
    """The workers that can be run here, and what each takes."""
    run_service = get_services(request).run_service
    return answer(
        Catalogue(run_service.workers(), run_service.provider_workers()) if run_service else Catalogue([], [])
    )


_pin_request = json_decoder(PinRequest)


@operations(
    "POST", "/api/runs/{run_id}/pin", describe_json(WorkerItem, "The run as it is now."), RunParams, body=PinRequest
)
async def pin_run(request: Request, asked: RunParams) -> Response:
    """Keeps a run when old ones are pruned, or no longer."""
    served = get_services(request)
    body = await decode_body(request, _pin_request)
    if not await served.store.pin(asked.run_id, pinned=body.pinned):
        raise RunNotFound(f"there is no run {asked.run_id}")
    await audit(request, "run.pinned" if body.pinned else "run.unpinned", run_id=asked.run_id)
    await served.changes.publish_rows(asked.run_id)
    return answer(await build_worker_item(await get_owned_run(served.store, asked.run_id), served.logs))


@operations("DELETE", "/api/runs/{run_id}", describe_json(Deleted, "What is gone."), DeleteParams)
async def delete_run(request: Request, asked: DeleteParams) -> Response:
    """Deletes a run that has ended, and its sub-runs; one that failed only by force."""
    delete = get_services(request).delete_run
    if delete is None:
        raise Forbidden("runs cannot be deleted here")
    deleted = await delete(asked.run_id, force=asked.force)
    for run_id in deleted:
        await audit(
            request, "run.deleted", run_id=run_id, detail=None if run_id == asked.run_id else f"with {asked.run_id}"
        )
    return answer(Deleted(deleted))


@operations("GET", "/api/channels", describe_json(ChannelList, "The channels."))
async def list_channels(request: Request, _: NoParams) -> Response:
    """Where runs came from."""
    channels = await get_services(request).store.channels()
    return answer(ChannelList([ChannelItem(channel.id, channel.name) for channel in channels]))


@operations("GET", "/api/health", describe_json(Health, "It runs."))
async def health(request: Request, _: NoParams) -> Response:
    """Whether the server runs, and which one it is."""
    return answer(Health(get_services(request).version))
