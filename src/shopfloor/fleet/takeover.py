"""The loss of hosts: found once their lock or lease is gone, recorded before their runs are taken over, told once."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime

import msgspec

from shopfloor.fleet.host_events import offline_events, task_completed_by_row
from shopfloor.fleet.limits import (
    HOST_HEARTBEATS_MISSED,
    OFFLINE_HOSTS_KEPT,
    OFFLINE_HOSTS_SECONDS,
    OFFLINE_NOTICE_SECONDS,
)
from shopfloor.log import format_timestamp, now
from shopfloor.ports import Bus, HostLoss, HostRecord, HostRegistry, Hosts, OfflineReason, RunItem, Store
from shopfloor.views import FleetEvent


def _seconds(timestamp: str) -> float:
    """Return a timestamp as seconds since 1970."""
    return datetime.fromisoformat(timestamp).timestamp()


def has_missed_heartbeats(record: HostRecord, at_seconds: float) -> bool:
    """Return whether a host has been silent for three heartbeats or more, at this time in seconds since 1970."""
    last = _seconds(record.heartbeat_at or record.started_at)
    return at_seconds - last >= HOST_HEARTBEATS_MISSED * record.heartbeat_seconds


class OrphanedRuns(msgspec.Struct, frozen=True):
    """The runs that a lost host left behind."""

    new_hosts: dict[str, str | None]
    """The host that has taken over each run; None for a run without a new host."""
    is_settled: bool
    """Whether every run has a new host, has ended or was deleted."""


def find_new_hosts(host: str, loss: HostLoss, runs: Sequence[RunItem]) -> OrphanedRuns:
    """Return the runs that a lost host left behind, with their new hosts. `runs` are those of the loss with a row.

    A run that the host itself had ended before the loss is left out: its row was behind its log when the loss was
    recorded.
    """
    found = {item.row.id: item.row for item in runs}
    new_hosts: dict[str, str | None] = {}
    is_settled = True
    for run_id in loss.orphans:
        row = found.get(run_id)
        if row is not None and row.host == host and row.completed_at is not None and row.completed_at <= loss.at:
            continue
        new_hosts[run_id] = row.host if row is not None and row.host != host else None
        is_settled = is_settled and (row is None or row.is_ended or new_hosts[run_id] is not None)
    return OrphanedRuns(new_hosts, is_settled)


class Takeover:
    """The check of all hosts, by each host. Each loss is stored once, by the first host that finds it."""

    def __init__(
        self,
        host_id: str,
        registry: HostRegistry,
        hosts: Hosts,
        store: Store,
        bus: Bus,
        *,
        notice_seconds: float = OFFLINE_NOTICE_SECONDS,
    ) -> None:
        self._host_id = host_id
        self._registry = registry
        self._hosts = hosts
        self._store = store
        self._bus = bus
        self._notice_seconds = notice_seconds

    async def check(self) -> set[str]:
        """Record the hosts that are gone, and tell of those whose runs have been taken over.

        Return the hosts whose runs must not be taken over yet: their loss is not recorded with the runs they left.
        """
        excluded: set[str] = set()
        for record in await self._registry.all():
            if record.id == self._host_id or record.offline_at is not None:
                continue
            if record.loss is not None:
                await self._send_offline(record, record.loss)
            elif await self._hosts.is_alive(record.id):
                # The runs of a draining host may be taken over while it is alive.
                excluded |= {record.id} if await self._hosts.is_accepting(record.id) else set()
            elif not await self._hosts.reap(record.id):
                excluded.add(record.id)
            else:
                reason: OfflineReason = "timeout" if has_missed_heartbeats(record, time.time()) else "error"
                await self._registry.record_loss(record.id, at=now(), reason=reason)
        return excluded

    async def _send_offline(self, record: HostRecord, loss: HostLoss) -> None:
        orphaned = find_new_hosts(record.id, loss, await self._store.get_runs(loss.orphans))
        if not orphaned.is_settled and time.time() - _seconds(loss.at) < self._notice_seconds:
            return
        at = now()
        events = [*await self._missing_outcomes(record, at), *offline_events(record, at, orphaned.new_hosts)]
        if await self._registry.mark_offline(record.id, at, events):
            self._bus.notify_fleet()
            before = format_timestamp(int((time.time() - OFFLINE_HOSTS_SECONDS) * 1000))
            await self._registry.forget_offline(before, keep=OFFLINE_HOSTS_KEPT)

    async def _missing_outcomes(self, record: HostRecord, at: str) -> list[FleetEvent]:
        """Return the events of runs that the host ended, but was lost before it sent them."""
        runs = await self._store.get_runs([run.run_id for run in record.runs])
        ended = [item.row for item in runs if item.row.is_ended and item.row.host == record.id]
        return [task_completed_by_row(record.id, at, row) for row in ended]
