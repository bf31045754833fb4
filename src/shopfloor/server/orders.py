"""What is asked of runs: that there be one, that it end, that it go on with an answer."""

from __future__ import annotations

import anyio.to_thread
import msgspec
from fastapi import Request
from starlette.responses import Response

from shopfloor.server.answers import Served, Working, answer, says
from shopfloor.server.auditing import audit
from shopfloor.server.bodies import AnswerOrder, CancelOrder, RunOrder, body_of, takes
from shopfloor.server.parameters import RunId, api_router
from shopfloor.server.shapes import CancelAnswer, Catalogue, ProviderList, RunAnswer, shown_status
from shopfloor.server.workers import owned_run

_run_order = msgspec.json.Decoder(RunOrder)
_cancel_order = msgspec.json.Decoder(CancelOrder)
_answer_order = msgspec.json.Decoder(AnswerOrder)

router = api_router("/api")


@router.post(
    "/runs", responses=says(RunAnswer, "It is kept, and begins as soon as it can."), openapi_extra=takes(RunOrder)
)
async def make_run(request: Request, works: Working) -> Response:
    """Has a worker run, whoever watches."""
    order = await body_of(request, _run_order)
    run_id = await works.dispatch(order.asked())
    audit(request, "run.dispatched", run_id=run_id, detail=order.worker)
    return answer(RunAnswer(run_id))


@router.post(
    "/runs/{run_id}/cancel",
    responses=says(CancelAnswer, "It ends as soon as it can."),
    openapi_extra=takes(CancelOrder, required=False),
)
async def cancel_run(request: Request, run_id: RunId, served: Served, works: Working) -> Response:
    """Ends a run; what was recorded of it stays."""
    order = await body_of(request, _cancel_order) if await request.body() else CancelOrder()
    await works.cancel(run_id, reason=order.reason or "somebody cancelled it")
    audit(request, "run.cancelled", run_id=run_id, detail=order.reason)
    run = await owned_run(served.store, run_id)
    return answer(CancelAnswer(run_id, shown_status(run.row.status)))


@router.post(
    "/runs/{run_id}/answer", responses=says(RunAnswer, "The run has the answer."), openapi_extra=takes(AnswerOrder)
)
async def answer_run(request: Request, run_id: RunId, works: Working) -> Response:
    """Answers what a run waits for; the first answer counts."""
    order = await body_of(request, _answer_order)
    await works.answer(run_id, [order.as_result()])
    audit(request, "run.answered", run_id=run_id)
    return answer(RunAnswer(run_id))


@router.get("/providers", responses=says(ProviderList, "The agents and model APIs, and which of them are there."))
async def list_providers(served: Served) -> Response:
    """Whom a task can be handed to on the server's machine, and what each can do."""
    found = await anyio.to_thread.run_sync(served.providers) if served.providers else []
    return answer(ProviderList(found, [one.name for one in found if one.usable]))


@router.post("/runs/{run_id}/resume", responses=says(RunAnswer, "It goes on as soon as it can."))
async def resume_run(request: Request, run_id: RunId, works: Working) -> Response:
    """Has a run gone on with that has not ended and that nobody is at, as where its host is gone."""
    await works.resume(run_id)
    audit(request, "run.resumed", run_id=run_id)
    return answer(RunAnswer(run_id))


@router.get("/workers", responses=says(Catalogue, "The workers, by their slugs."))
async def list_catalogue(served: Served) -> Response:
    """The workers that can be run here, and what each takes."""
    if served.works is None:
        return answer(Catalogue([], []))
    return answer(Catalogue(served.works.workers(), served.works.bare()))
