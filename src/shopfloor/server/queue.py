"""The queue: which runs have not started, and why."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from starlette.requests import Request
from starlette.responses import Response

from shopfloor.limits import QUEUE_GROUP_RUNS, QUEUE_WAITS, QUEUE_WAITS_SECONDS
from shopfloor.log import format_timestamp
from shopfloor.ports import Queue, QueuedRun, QueueReason, RunItem, interruption_reason, queue_reason
from shopfloor.server.fleet_models import QueuedItem, QueueGroupItem, QueueOverview
from shopfloor.server.openapi import Operations
from shopfloor.server.parameters import NoParams
from shopfloor.server.response_models import WorkerItem, build_worker_item
from shopfloor.server.responses import describe_json, get_services, json_response
from shopfloor.server.services import Services

operations = Operations()


async def build_worker_items(services: Services, runs: Sequence[RunItem]) -> list[WorkerItem]:
    """Return runs as the list contains them."""
    reasons = await find_queue_reasons(services, runs)
    return [await build_worker_item(run, services.logs, reasons.get(run.row.id)) for run in runs]


async def find_queue_reasons(services: Services, runs: Sequence[RunItem]) -> dict[str, str]:
    """Return why no host executes those of these runs that are queued or interrupted, by run id."""
    queued = [run.row for run in runs if run.row.status == "queued"]
    started = [run.row for run in runs if run.row.status == "running"]
    if services.queue is None or not (queued or started):
        return {}
    offers, claims = services.offers(), await _find_claims(services.queue, {row.id for row in queued})
    claimed = {run.run_id: reason for run, reason in claims}
    reasons = {row.id: claimed.get(row.id) or queue_reason(row.requires, offers) for row in queued}
    for row in started:
        reason = interruption_reason(row.requires, offers)
        # Checking for a host costs a system call, so the reason comes first.
        if reason is not None and not await services.logs.has_active_host(row.id, row.host):
            reasons[row.id] = reason
    return {run_id: reason.message for run_id, reason in reasons.items()}


async def _find_claims(queue: Queue, run_ids: set[str] | None = None) -> list[tuple[QueuedRun, QueueReason]]:
    """Return the claimed runs that have not started, with their reasons; with `run_ids` only these."""
    found: list[tuple[QueuedRun, QueueReason]] = []
    for run_id, host in await queue.claimed():
        run = await queue.find(run_id) if run_ids is None or run_id in run_ids else None
        if run is not None:
            is_caller = run.started.executor == "caller"
            found.append((run, queue_reason(None, (), claimed_by=host, is_caller=is_caller)))
    return found


@operations("GET", "/api/queue", describe_json(QueueOverview, "The queued runs by the reason why they wait."))
async def show_queue(request: Request, _: NoParams) -> Response:
    """Show how many runs are queued and why they have not started, and how long runs waited in the last hour."""
    services = get_services(request)
    since = format_timestamp(int((datetime.now(UTC) - timedelta(seconds=QUEUE_WAITS_SECONDS)).timestamp() * 1000))
    waits = sorted(await services.store.start_waits(since, limit=QUEUE_WAITS))
    groups, oldest = await _groups(services)
    return json_response(
        QueueOverview(
            total=sum(group.total for group in groups),
            oldest_queued_at=oldest,
            groups=groups,
            wait_p50_seconds=percentile(waits, 50),
            wait_p95_seconds=percentile(waits, 95),
            started_last_hour=len(waits),
        )
    )


async def _groups(services: Services) -> tuple[list[QueueGroupItem], str | None]:
    """Return the queued runs by reason, and when the oldest of them was queued."""
    if services.queue is None:
        return [], None
    offers, queue = services.offers(), services.queue
    totals: dict[QueueReason, int] = {}
    first: dict[QueueReason, list[QueuedRun]] = {}
    times: list[str | None] = []
    # Runs with different requirements may wait for the same reason.
    for group in await queue.groups(limit=QUEUE_GROUP_RUNS):
        reason = queue_reason(group.requires, offers)
        totals[reason] = totals.get(reason, 0) + group.total
        first.setdefault(reason, []).extend(group.first)
        times.append(group.oldest_queued_at)
    for run, reason in await _find_claims(queue):
        totals[reason] = totals.get(reason, 0) + 1
        first.setdefault(reason, []).append(run)
        times.append(run.started.queued_at)
    items = [
        QueueGroupItem(reason=reason.code, message=reason.message, total=totals[reason], runs=_queued_items(runs))
        for reason, runs in first.items()
    ]
    return sorted(items, key=lambda item: -item.total), min((time for time in times if time), default=None)


def _queued_items(runs: list[QueuedRun]) -> list[QueuedItem]:
    """Return the runs that start first."""
    ordered = sorted(runs, key=lambda run: (-run.started.priority, run.started.queued_at or ""))
    return [
        QueuedItem(
            run_id=run.run_id,
            worker=run.started.name,
            task=run.started.task or run.started.name,
            priority=run.started.priority,
            queued_at=run.started.queued_at,
        )
        for run in ordered[:QUEUE_GROUP_RUNS]
    ]


def percentile(ordered: Sequence[float], percent: int) -> float | None:
    """Return the value that `percent` of the values do not exceed; None without values."""
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)] if ordered else None
