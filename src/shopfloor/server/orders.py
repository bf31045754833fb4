"""What is asked of runs: that there be one, that it end, that it go on with an answer."""

from __future__ import annotations

import anyio.to_thread
from starlette.requests import Request
from starlette.responses import Response

from shopfloor.decoding import json_decoder
from shopfloor.ports import RunRequest
from shopfloor.server.answers import answer, says, services_of, works_of
from shopfloor.server.auditing import audit
from shopfloor.server.bodies import AnswerOrder, CancelOrder, body_of
from shopfloor.server.operations import Operations
from shopfloor.server.parameters import NoParams, RunParams
from shopfloor.server.shapes import CancelAnswer, Catalogue, ProviderList, RunAnswer, shown_status
from shopfloor.server.workers import owned_run

_run_request = json_decoder(RunRequest)
_cancel_order = json_decoder(CancelOrder)
_answer_order = json_decoder(AnswerOrder)

operations = Operations()


@operations("POST", "/api/runs", says(RunAnswer, "It is kept, and begins as soon as it can."), body=RunRequest)
async def make_run(request: Request, _: NoParams) -> Response:
    """Has a worker run, whoever watches."""
    works = works_of(request)
    wanted = await body_of(request, _run_request)
    run_id = await works.dispatch(wanted)
    await audit(request, "run.dispatched", run_id=run_id, detail=wanted.worker)
    return answer(RunAnswer(run_id))


@operations(
    "POST",
    "/api/runs/{run_id}/cancel",
    says(CancelAnswer, "It ends as soon as it can."),
    RunParams,
    body=CancelOrder,
    body_required=False,
)
async def cancel_run(request: Request, asked: RunParams) -> Response:
    """Ends a run; what was recorded of it stays."""
    works = works_of(request)
    order = await body_of(request, _cancel_order) if await request.body() else CancelOrder()
    await works.cancel(asked.run_id, reason=order.reason or "somebody cancelled it")
    await audit(request, "run.cancelled", run_id=asked.run_id, detail=order.reason)
    run = await owned_run(services_of(request).store, asked.run_id)
    return answer(CancelAnswer(asked.run_id, shown_status(run.row.status)))


@operations(
    "POST", "/api/runs/{run_id}/answer", says(RunAnswer, "The run has the answer."), RunParams, body=AnswerOrder
)
async def answer_run(request: Request, asked: RunParams) -> Response:
    """Answers what a run waits for; the first answer counts."""
    works = works_of(request)
    order = await body_of(request, _answer_order)
    await works.answer(asked.run_id, [order.as_result()])
    await audit(request, "run.answered", run_id=asked.run_id)
    return answer(RunAnswer(asked.run_id))


@operations("GET", "/api/providers", says(ProviderList, "The agents and model APIs, and which of them are there."))
async def list_providers(request: Request, _: NoParams) -> Response:
    """Whom a task can be handed to on the server's machine, and what each can do."""
    served = services_of(request)
    found = await anyio.to_thread.run_sync(served.providers) if served.providers else []
    return answer(ProviderList(found, [one.name for one in found if one.usable]))


@operations("POST", "/api/runs/{run_id}/resume", says(RunAnswer, "It goes on as soon as it can."), RunParams)
async def resume_run(request: Request, asked: RunParams) -> Response:
    """Resumes a run that has not ended and has no host, for example because its host was killed."""
    await works_of(request).resume(asked.run_id)
    await audit(request, "run.resumed", run_id=asked.run_id)
    return answer(RunAnswer(asked.run_id))


@operations("GET", "/api/workers", says(Catalogue, "The workers, by their slugs."))
async def list_catalogue(request: Request, _: NoParams) -> Response:
    """The workers that can be run here, and what each takes."""
    works = services_of(request).works
    return answer(Catalogue(works.workers(), works.bare()) if works else Catalogue([], []))
