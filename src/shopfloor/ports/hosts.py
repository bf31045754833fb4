"""Hosts: the processes that execute runs, as seen by other processes, and the records of those that serve a storage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

import msgspec

from shopfloor.views import FleetEvent, HostStatus

OfflineReason = Literal["shutdown", "timeout", "error"]
"""Why a host went: it was stopped, it had missed its heartbeats when it was found gone, or it ended unexpectedly."""


class Hosts(Protocol):
    """The liveness of hosts."""

    async def is_alive(self, host: str) -> bool:
        """Return whether the process may still write logs. A suspended process counts as alive.

        With a lease, a process that is silent for longer than its lease is not alive, and its appends are refused.
        """
        ...

    async def is_accepting(self, host: str) -> bool:
        """Return whether the host is alive and not draining, so that it resumes its waiting runs itself."""
        ...

    async def set_draining(self, host: str, *, draining: bool) -> None:
        """Let other hosts resume the runs of this host that no process executes, or stop that again.

        Called by the host itself.
        """
        ...

    async def reap(self, host: str) -> bool:
        """End the processes that a dead host has left behind. Return False while some remain, or the host is alive.

        Its runs must not be resumed before.
        """
        ...

    async def is_dedicated(self, host: str) -> bool:
        """Return whether the host executes only the runs of its caller, so that ending it affects no other run."""
        ...

    async def interrupt(self, host: str) -> None:
        """Ask a dedicated host to cancel its runs. Does nothing for other hosts."""
        ...

    async def kill(self, host: str) -> None:
        """Kill a dedicated host and all processes it started. Does nothing for other hosts."""
        ...


class HostLocation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where a host is: its type, with the fields of that type."""

    type: Literal["kubernetes", "docker", "ec2", "local"]
    namespace: str | None = None
    pod: str | None = None
    container: str | None = None
    instance_id: str | None = None
    region: str | None = None


class HostResources(msgspec.Struct, frozen=True, kw_only=True):
    """The resources of a host's machine, or of its container."""

    cpu_cores: int
    memory_mb: int
    disk_gb: int
    """The size of the disk with the storage."""
    gpu_count: int | None = None
    """None if there are none, or the number is not known."""


class HostMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """How busy a host's machine is."""

    cpu_percent: float | None
    """Of all processors, since the last measurement; None if there was none."""
    memory_percent: float
    """Of the memory that the host may use."""
    disk_percent: float
    uptime_seconds: float
    """Since the host started."""


class HostFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a host reports about itself when it registers."""

    hostname: str
    type: Literal["local", "remote", "cloud"]
    version: str
    location: HostLocation
    resources: HostResources
    slots: int
    capabilities: tuple[str, ...] = ()
    """The providers that can be used on its machine: installed, with credentials."""
    labels: dict[str, str] = {}


class HostRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run that a host executes."""

    run_id: str
    started_at: str
    """When this host started or resumed it."""
    worker: str
    progress: float | None = None
    """The part that is done, from 0 to 1; None if it is not known."""


class DrainRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The request that a host claims no more runs."""

    reason: str
    deadline: str | None = None
    """When its runs are handed over to other hosts; None if they may take as long as they need."""


class HostLoss(msgspec.Struct, frozen=True, kw_only=True):
    """How a host was found gone, and the runs that it left behind."""

    at: str
    reason: OfflineReason
    orphans: tuple[str, ...] = ()


class HostRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A host that serves a storage. The host itself writes its record; others write the last three fields."""

    id: str
    facts: HostFacts
    status: HostStatus
    started_at: str
    heartbeat_seconds: float
    offered: tuple[str, ...] | None = None
    """The providers that it offers to queued runs: all that are installed. None if they are not known."""
    heartbeat_at: str | None = None
    """None before the first heartbeat."""
    metrics: HostMetrics | None = None
    """As measured at the last heartbeat."""
    cpu_history: tuple[float, ...] = ()
    """The processor usage at the last heartbeats, newest last."""
    runs: tuple[HostRun, ...] = ()
    """The runs that it was assigned and has not left, by its last report, the oldest first."""
    drain: DrainRequest | None = None
    loss: HostLoss | None = None
    """Set once the host is found gone: from then on other hosts may take over its runs."""
    offline_at: str | None = None
    """Set when `worker.offline` was stored."""


class HostRegistry(Protocol):
    """The records of the hosts that serve a storage. Durable in their own right.

    Each method is one transaction, with the fleet events that it is given. The caller notifies the bus afterwards.
    """

    async def save(self, record: HostRecord, events: Sequence[FleetEvent] = (), /) -> None:
        """Store the record of this host. What other hosts have stored about it stays."""
        ...

    async def find(self, host: str) -> HostRecord | None:
        """Return the record of a host."""
        ...

    async def all(self) -> list[HostRecord]:
        """Return all records, in the order of their registration."""
        ...

    async def request_drain(self, host: str, request: DrainRequest | None, /) -> bool:
        """Store or, with None, withdraw a request. Return False if there is no such host, or it is gone."""
        ...

    async def record_loss(self, host: str, *, at: str, reason: OfflineReason) -> bool:
        """Record that a host is gone, with the runs that it left behind: those that need a host, and its claims.

        The first call counts. Return False if there is no such record, or the loss is recorded already.
        """
        ...

    async def mark_offline(self, host: str, at: str, events: Sequence[FleetEvent], /) -> bool:
        """Mark a host as offline and store these events. The first call counts; return False for any other."""
        ...

    async def forget_offline(self, before: str, *, keep: int) -> None:
        """Delete the records of hosts that went offline before this time, and of all but the newest `keep` of them."""
        ...
