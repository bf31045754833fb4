"""What waits for a person: pending calls, failures that only a person can repair, and runs that nothing resumes."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from shopfloor.errors import ConflictError
from shopfloor.limits import NEEDS_PERSON_SECONDS
from shopfloor.log import decode, format_timestamp
from shopfloor.ports import RunFilter, RunItem
from shopfloor.server.audit import audit
from shopfloor.server.limits import MAX_SAFE_INTEGER, WAITING_RUNS_MAX
from shopfloor.server.openapi import Operations
from shopfloor.server.parameters import NoParams, RunParams
from shopfloor.server.response_models import RunAnswer
from shopfloor.server.responses import describe_json, get_services, json_response
from shopfloor.server.runs import get_owned_run
from shopfloor.server.services import Services
from shopfloor.server.waiting_models import (
    WaitingItem,
    WaitingList,
    build_call_items,
    build_failure_item,
    build_held_item,
    build_interrupted_item,
)

operations = Operations()


def needs_person_after() -> str:
    """Return the time since which failures are listed as waiting for a person."""
    return format_timestamp(int((datetime.now(UTC).timestamp() - NEEDS_PERSON_SECONDS) * 1000))


@operations("GET", "/api/waiting", describe_json(WaitingList, "The longest wait first."))
async def list_waiting(request: Request, _: NoParams) -> Response:
    """List what waits for a person or a client.

    These are unanswered questions, approvals and tool calls; runs of the last 7 days that failed for a reason that only
    a person can remove, until they are rerun, replied to, forked or dismissed; and runs that nothing resumes by itself.
    """
    services = get_services(request)
    waiting = await services.store.waiting(failed_after=needs_person_after(), limit=WAITING_RUNS_MAX)
    interrupted = await find_interrupted(services, RunFilter())
    items = [
        *(item for run in waiting.pending for item in build_call_items(run)),
        *(build_failure_item(run) for run in waiting.failed),
        *await _held_items(services, waiting.pending),
        *(build_interrupted_item(found.run, found.refusal, found.since) for found in interrupted),
    ]
    total = waiting.calls + waiting.failures + len(interrupted)
    return json_response(WaitingList(sorted(items, key=lambda item: item.since), total))


async def _held_items(services: Services, waiting: list[RunItem]) -> list[WaitingItem]:
    """Return the runs that are held because their worker changed."""
    held = [run for run in waiting if run.row.waits.awaits_definition]
    return [build_held_item(run, await _refusal(services, run)) for run in held]


class InterruptedRun(NamedTuple):
    """A run that no server resumes."""

    run: RunItem
    refusal: str
    """Why no server resumes it."""
    since: str
    """The time of the last event in its log."""


async def find_interrupted(services: Services, run_filter: RunFilter) -> list[InterruptedRun]:
    """Return the matching runs without a host that no server resumes and for which no person has to act first.

    A run of a tree is resumed with its root. Of many runs without a host, those that started first are returned.
    """
    roots = await services.store.open_roots(run_filter)
    lost = await services.logs.without_host({root.id: root.host for root in roots})
    first = [root.id for root in roots if root.id in lost][:WAITING_RUNS_MAX]
    runs = await services.store.get_runs(first) if first else []
    found: list[InterruptedRun] = []
    for run in sorted(runs, key=lambda run: run.row.started_at):
        refusal = None if run.row.is_ended else await _refusal(services, run)
        if refusal is not None:
            last = await services.logs.page(run.row.id, before=MAX_SAFE_INTEGER, limit=1)
            since = decode(last[-1].raw).timestamp if last else run.row.started_at
            found.append(InterruptedRun(run, refusal, since))
    return found


async def _refusal(services: Services, run: RunItem) -> str | None:
    """Return why no server resumes a run; None if one does."""
    if services.run_service is None:
        return "no server is running"
    return await services.run_service.resume_refusal(run.row.id)


@operations("POST", "/api/runs/{run_id}/dismiss", describe_json(RunAnswer, "The run no longer waits."), RunParams)
async def dismiss_run(request: Request, params: RunParams) -> Response:
    """Dismiss a failed run, so that it no longer waits for a person. Its record stays."""
    services = get_services(request)
    run = await get_owned_run(services.store, params.run_id)
    if run.row.needs_person_since is None:
        raise ConflictError(
            f"the run {params.run_id} is no failure that waits for a person",
            hint="`shopfloor waiting` lists what waits and what can be done",
        )
    await services.store.dismiss(params.run_id)
    await audit(request, "run.dismissed", run_id=params.run_id)
    await services.changes.publish_rows(params.run_id)
    return json_response(RunAnswer(params.run_id))
