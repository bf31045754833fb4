"""The `worker.*` fleet events of hosts, from their records and runs. Pure functions."""

from __future__ import annotations

from typing import Any, cast

from shopfloor.limits import PREVIEW_CHARS
from shopfloor.log import Cost, RunCompleted, RunStarted, Status, Usage
from shopfloor.ports import HostLocation, HostRecord
from shopfloor.views import (
    HEARTBEAT,
    FleetEvent,
    FleetEventType,
    HostStatus,
    RunRow,
    add_costs,
    add_usage,
    provider_of_type,
)

Fields = dict[str, Any]


def registered(record: HostRecord) -> FleetEvent:
    """Return the event that a host has joined."""
    facts, resources = record.facts, record.facts.resources
    info: Fields = {
        "hostname": facts.hostname,
        "type": facts.type,
        "version": facts.version,
        "location": location_fields(facts.location),
        "capabilities": list(facts.capabilities),
        "resources": {
            "cpuCores": resources.cpu_cores,
            "memoryMB": resources.memory_mb,
            "diskGB": resources.disk_gb,
            **_known(gpuCount=resources.gpu_count),
        },
        "labels": facts.labels,
        "slots": facts.slots,
    }
    return _event("worker.registered", record.started_at, {"workerId": record.id, "info": info})


def location_fields(location: HostLocation) -> Fields:
    """Return the location of a host in the names of the wire: all fields of its type, null if not known."""
    match location.type:
        case "kubernetes":
            return {"type": "kubernetes", "namespace": location.namespace, "pod": location.pod}
        case "docker":
            return {"type": "docker", "container": location.container}
        case "ec2":
            return {"type": "ec2", "instanceId": location.instance_id, "region": location.region}
        case "local":
            return {"type": "local"}


def heartbeat(record: HostRecord) -> FleetEvent | None:
    """Return the last heartbeat of a host; None before its first one."""
    if record.heartbeat_at is None or record.metrics is None:
        return None
    metrics = record.metrics
    tasks = [{"taskId": run.run_id, "progress": run.progress, "startedAt": run.started_at} for run in record.runs]
    payload: Fields = {
        "workerId": record.id,
        "status": record.status,
        **({"currentTask": tasks[0], "currentTasks": tasks} if tasks else {}),
        "metrics": {
            "cpuUsage": metrics.cpu_percent,
            "memoryUsage": metrics.memory_percent,
            "diskUsage": metrics.disk_percent,
            "uptime": metrics.uptime_seconds,
        },
    }
    return _event(HEARTBEAT, record.heartbeat_at, payload)


def status_changed(
    host: str, at: str, previous: HostStatus, current: HostStatus, *, reason: str | None = None, run: str | None = None
) -> FleetEvent:
    """Return the event that the status of a host has changed, where they apply with the reason and the run."""
    payload = {"workerId": host, "previous": previous, "current": current, **_known(reason=reason, taskId=run)}
    # Without `run_id`: the event is about the host, and stays when the run is deleted.
    return _event("worker.status_changed", at, payload)


def provider_of_run(started: RunStarted) -> str | None:
    """Return the one provider that a run uses, by its first event; None if it uses none or several."""
    required = started.requires.providers if started.requires is not None else []
    return provider_of_type(started.worker_type) or (required[0] if len(required) == 1 else None)


def task_assigned(
    host: str, at: str, run_id: str, started: RunStarted, *, estimated_seconds: float | None
) -> FleetEvent:
    """Return the event that a host has taken a run. `started` is the first event of the run's log."""
    prompt = started.task or started.name
    provider = provider_of_run(started)
    payload = {
        "workerId": host,
        "taskId": run_id,
        "providerId": provider,
        "task": {
            "prompt": prompt if len(prompt) <= PREVIEW_CHARS else f"{prompt[: PREVIEW_CHARS - 1]}…",
            "taskType": started.name,
            "priority": started.priority,
        },
        **_known(estimatedDuration=estimated_seconds),
    }
    return _event("worker.task_assigned", at, payload, run_id=run_id, provider=provider)


def task_completed(
    host: str, at: str, run_id: str, outcome: RunCompleted, provider: str | None, *, next_run: str | None
) -> FleetEvent:
    """Return the event that a host has ended a run. `next_run` is the first run in the queue."""
    usage = add_usage(outcome.usage or Usage(), outcome.sub_usage)
    cost = add_costs(outcome.cost, outcome.sub_cost)
    is_known = outcome.usage is not None or outcome.sub_usage is not None
    payload = {
        "workerId": host,
        "taskId": run_id,
        "result": {
            "success": outcome.status == "completed",
            "duration": outcome.duration_ms,
            "tokensUsed": usage.input + usage.output + usage.cache_read + usage.cache_write if is_known else None,
            "cost": cost.usd if cost is not None else None,
        },
        **({} if next_run is None else {"nextTask": {"taskId": next_run, "queuePosition": 1}}),
    }
    return _event("worker.task_completed", at, payload, run_id=run_id, provider=provider)


def task_completed_by_row(host: str, at: str, row: RunRow) -> FleetEvent:
    """Return the event for a run that a host ended without sending it, because the host was lost right after."""
    tree = row.spending.tree
    outcome = RunCompleted(
        name=row.name,
        kind=row.kind,
        status=cast("Status", row.status),
        usage=tree.usage if tree.usage != Usage() else None,
        cost=None if tree.cost_usd is None else Cost(usd=tree.cost_usd, source="row"),
        duration_ms=row.duration_ms,
    )
    return task_completed(host, at, row.id, outcome, row.provider, next_run=None)


def offline(record: HostRecord, at: str, takers: dict[str, str | None]) -> FleetEvent:
    """Return the event that a host went away. `takers` has the host that took over each run that it left behind."""
    orphans = [
        {"taskId": run_id, "reassigned": taker is not None, **_known(newWorkerId=taker)}
        for run_id, taker in takers.items()
    ]
    payload = {
        "workerId": record.id,
        "hostname": record.facts.hostname,
        "reason": record.loss.reason if record.loss else "error",
        "lastHeartbeat": record.heartbeat_at,
        **({"orphanedTask": orphans[0], "orphanedTasks": orphans} if orphans else {}),
    }
    return _event("worker.offline", at, payload)


def offline_events(record: HostRecord, at: str, takers: dict[str, str | None]) -> list[FleetEvent]:
    """Return the events that a host is gone: its last status, and the runs that it left behind."""
    return [
        status_changed(record.id, at, record.status, "offline", reason=record.loss.reason if record.loss else None),
        offline(record, at, takers),
    ]


def _known(**fields: Any) -> Fields:
    """Return the fields that are not None."""
    return {name: value for name, value in fields.items() if value is not None}


def _event(
    event_type: FleetEventType, at: str, payload: Fields, *, run_id: str | None = None, provider: str | None = None
) -> FleetEvent:
    return FleetEvent(type=event_type, payload=payload, timestamp=at, run_id=run_id, provider=provider)
