"""Request and response models of hosts, in the names of the API."""

from __future__ import annotations

from typing import Annotated, Any, cast

import msgspec
from msgspec import Meta

from shopfloor.fleet import ListedHost, location_fields
from shopfloor.ports import HostMetrics, HostResources, RunItem
from shopfloor.views import HostStatus


class HostRunItem(msgspec.Struct, frozen=True, kw_only=True):
    """An open run of a host."""

    run_id: str
    worker: str
    task: str
    status: str
    """`running` or `waiting`."""
    started_at: str
    progress: float | None = None
    """From 0 to 1; null if it is not known."""


class HostItem(msgspec.Struct, frozen=True, kw_only=True):
    """A host: a process that executes runs."""

    id: str
    hostname: str
    type: str
    """`local`, `remote` or `cloud`, seen from the server."""
    version: str
    location: dict[str, str | None]
    """Its `type` (`kubernetes`, `docker`, `ec2` or `local`), with the fields of that type."""
    capabilities: list[str]
    """The providers that can be used on its machine: installed, with credentials."""
    labels: dict[str, str]
    resources: HostResources
    slots: int
    """How many runs it executes at once."""
    slots_used: int
    status: HostStatus
    responsive: bool
    """False if it has missed three heartbeats or is offline. While it is alive, its runs stay with it."""
    drain_reason: str | None
    drain_deadline: str | None
    """When its runs are handed over to other hosts; null if they may take as long as they need."""
    started_at: str
    heartbeat_at: str | None
    heartbeat_seconds: float
    metrics: HostMetrics | None
    cpu_history: list[float]
    """The processor usage in percent at the last heartbeats, newest last."""
    runs: list[HostRunItem]
    """Its newest open runs, at most 200, newest first."""


class HostList(msgspec.Struct, frozen=True):
    """The hosts, in the order of their registration."""

    hosts: list[HostItem]


class HostAnswer(msgspec.Struct, frozen=True):
    """The host that a request was about."""

    id: str
    status: HostStatus


class DrainParameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How to drain a host."""

    seconds: Annotated[
        float | None,
        Meta(description="After this time, other hosts resume the runs that it still has. Null: they may end there."),
    ] = None


def build_host_item(host: ListedHost) -> HostItem:
    """Return a host in the names of the API."""
    record, facts = host.record, host.record.facts
    fields: dict[str, Any] = {
        name: getattr(facts, name) for name in ("hostname", "type", "version", "labels", "resources", "slots")
    }
    return HostItem(
        **fields,
        id=record.id,
        location=cast("dict[str, str | None]", location_fields(facts.location)),
        capabilities=list(facts.capabilities),
        slots_used=host.slots_used,
        status=host.status,
        responsive=host.is_responsive,
        drain_reason=record.drain.reason if record.drain else None,
        drain_deadline=record.drain.deadline if record.drain else None,
        started_at=record.started_at,
        heartbeat_at=record.heartbeat_at,
        heartbeat_seconds=record.heartbeat_seconds,
        metrics=record.metrics,
        cpu_history=list(record.cpu_history),
        runs=[_build_run(item) for item in host.runs],
    )


def _build_run(item: RunItem) -> HostRunItem:
    row = item.row
    return HostRunItem(
        run_id=row.id,
        worker=row.name,
        task=row.task,
        status=row.status,
        started_at=row.started_at,
        progress=row.progress.fraction,
    )
