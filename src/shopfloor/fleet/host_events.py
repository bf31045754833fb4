"""The `worker.*` fleet events of hosts, from their records and runs. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import msgspec

from shopfloor.limits import PREVIEW_CHARS
from shopfloor.log import RunStarted, Usage
from shopfloor.ports import HostLocation, HostRecord
from shopfloor.views import (
    HEARTBEAT,
    CurrentTask,
    FleetEvent,
    FleetEventType,
    HostStatus,
    LocationFields,
    OrphanedTask,
    ResourceFields,
    RunRow,
    UsageTotal,
    WorkerHeartbeat,
    WorkerOffline,
    WorkerRegistered,
    WorkerStatusChanged,
    WorkerTaskAssigned,
    WorkerTaskCompleted,
    provider_of_type,
)


class TaskOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """How a run ended, with what it and its sub-runs have spent."""

    is_completed: bool
    duration_ms: int | None
    spent: UsageTotal


class QueuePlace(msgspec.Struct, frozen=True):
    """A queued run and its position among the runs that its host takes next, from 1."""

    run_id: str
    position: int


def registered(record: HostRecord) -> FleetEvent:
    """Return the event that a host has joined."""
    facts, resources = record.facts, record.facts.resources
    resource_fields: ResourceFields = {
        "cpuCores": resources.cpu_cores,
        "memoryMB": resources.memory_mb,
        "diskGB": resources.disk_gb,
    }
    if resources.gpu_count is not None:
        resource_fields["gpuCount"] = resources.gpu_count
    payload: WorkerRegistered = {
        "workerId": record.id,
        "info": {
            "hostname": facts.hostname,
            "type": facts.type,
            "version": facts.version,
            "location": location_fields(facts.location),
            "capabilities": list(facts.capabilities),
            "resources": resource_fields,
            "labels": facts.labels,
            "slots": facts.slots,
        },
    }
    return _event("worker.registered", record.started_at, payload)


def location_fields(location: HostLocation) -> LocationFields:
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
    """Return the last heartbeat of a host; None before its first one, and for a host that does nothing any more."""
    if record.heartbeat_at is None or record.metrics is None or record.status in ("starting", "offline"):
        return None
    metrics = record.metrics
    payload: WorkerHeartbeat = {
        "workerId": record.id,
        "status": record.status,
        "metrics": {
            "cpuUsage": metrics.cpu_percent,
            "memoryUsage": metrics.memory_percent,
            "diskUsage": metrics.disk_percent,
            "uptime": metrics.uptime_seconds,
        },
    }
    tasks: list[CurrentTask] = [
        {"taskId": run.run_id, "progress": run.progress, "startedAt": run.started_at} for run in record.runs
    ]
    if tasks:
        payload["currentTask"] = tasks[0]
        payload["currentTasks"] = tasks
        payload["currentTasksTotal"] = len(tasks)
    return _event(HEARTBEAT, record.heartbeat_at, payload)


def status_changed(
    host: str, at: str, previous: HostStatus, current: HostStatus, *, reason: str | None = None, run: str | None = None
) -> FleetEvent:
    """Return the event that the status of a host has changed, where they apply with the reason and the run."""
    payload: WorkerStatusChanged = {"workerId": host, "previous": previous, "current": current}
    if reason is not None:
        payload["reason"] = reason
    if run is not None:
        payload["taskId"] = run
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
    payload: WorkerTaskAssigned = {
        "workerId": host,
        "taskId": run_id,
        "providerId": provider,
        "task": {
            "prompt": prompt if len(prompt) <= PREVIEW_CHARS else f"{prompt[: PREVIEW_CHARS - 1]}…",
            "taskType": started.name,
            "priority": started.priority,
        },
    }
    if estimated_seconds is not None:
        payload["estimatedDuration"] = estimated_seconds
    return _event("worker.task_assigned", at, payload, run_id=run_id, provider=provider)


def task_completed(
    host: str, at: str, run_id: str, outcome: TaskOutcome, provider: str | None, *, next_run: QueuePlace | None = None
) -> FleetEvent:
    """Return the event that a host has ended a run. `next_run` is the run that the host takes next."""
    usage = outcome.spent.usage
    tokens = usage.input + usage.output + usage.cache_read + usage.cache_write
    payload: WorkerTaskCompleted = {
        "workerId": host,
        "taskId": run_id,
        "result": {
            "success": outcome.is_completed,
            "duration": outcome.duration_ms,
            "tokensUsed": tokens if usage != Usage() else None,
            # The sum of the known prices would be read as the cost of everything.
            "cost": outcome.spent.cost_usd if outcome.spent.is_priced else None,
        },
    }
    if next_run is not None:
        payload["nextTask"] = {"taskId": next_run.run_id, "queuePosition": next_run.position}
    return _event("worker.task_completed", at, payload, run_id=run_id, provider=provider)


def task_completed_by_row(host: str, at: str, row: RunRow) -> FleetEvent:
    """Return the event for a run that a host ended without sending it, because the host was lost right after."""
    outcome = TaskOutcome(is_completed=row.status == "completed", duration_ms=row.duration_ms, spent=row.spending.tree)
    return task_completed(host, at, row.id, outcome, row.provider)


def offline(record: HostRecord, at: str, new_hosts: Mapping[str, str | None]) -> FleetEvent:
    """Return the event that a host went away. `new_hosts` has the new host of each run that it left behind."""
    payload: WorkerOffline = {
        "workerId": record.id,
        "hostname": record.facts.hostname,
        "reason": record.loss.reason if record.loss else "error",
        "lastHeartbeat": record.heartbeat_at,
    }
    orphans = [_orphaned_task(run_id, new_host) for run_id, new_host in new_hosts.items()]
    if orphans:
        payload["orphanedTask"] = orphans[0]
        payload["orphanedTasks"] = orphans
        payload["orphanedTasksTotal"] = len(orphans)
    return _event("worker.offline", at, payload)


def _orphaned_task(run_id: str, new_host: str | None) -> OrphanedTask:
    if new_host is None:
        return {"taskId": run_id, "reassigned": False}
    return {"taskId": run_id, "reassigned": True, "newWorkerId": new_host}


def offline_events(record: HostRecord, at: str, new_hosts: Mapping[str, str | None]) -> list[FleetEvent]:
    """Return the events that a host is gone: its last status, and the runs that it left behind."""
    return [
        status_changed(record.id, at, record.status, "offline", reason=record.loss.reason if record.loss else None),
        offline(record, at, new_hosts),
    ]


HostPayload = (
    WorkerRegistered | WorkerHeartbeat | WorkerStatusChanged | WorkerTaskAssigned | WorkerTaskCompleted | WorkerOffline
)


def _event(
    event_type: FleetEventType, at: str, payload: HostPayload, *, run_id: str | None = None, provider: str | None = None
) -> FleetEvent:
    fields = cast("Mapping[str, Any]", payload)
    return FleetEvent(type=event_type, payload=fields, timestamp=at, run_id=run_id, provider=provider)
