"""The hosts of a storage for people and programs: their records, whether they respond, and their runs."""

from __future__ import annotations

import time
from collections.abc import Sequence

import msgspec

from shopfloor.errors import ConflictError, HostNotFound
from shopfloor.fleet.limits import HOST_RUNS_SHOWN
from shopfloor.fleet.takeover import has_missed_heartbeats
from shopfloor.log import format_timestamp
from shopfloor.ports import DrainRequest, HostOffer, HostRecord, HostRegistry, Hosts, RunFilter, RunItem, Store
from shopfloor.views import HostStatus

REQUESTED = "requested"
"""The reason of a drain that a user requested."""
SHUTDOWN = "shutdown"
"""The reason of the drain before a host stops."""


async def live_offers(records: Sequence[HostRecord], hosts: Hosts) -> list[HostOffer]:
    """Return what these hosts offer to queued runs, without those that are gone. No provider counts as disabled."""
    return [
        HostOffer(
            labels=record.facts.labels,
            providers=None if record.offered is None else frozenset(record.offered),
            is_draining=not await hosts.is_accepting(record.id),
        )
        for record in records
        if record.loss is None and await hosts.is_alive(record.id)
    ]


class ListedHost(msgspec.Struct, frozen=True, kw_only=True):
    """A host as it is now."""

    record: HostRecord
    status: HostStatus
    is_responsive: bool
    """False if it has missed three heartbeats while it is alive."""
    slots_used: int
    runs: Sequence[RunItem]
    """Its open runs, the newest first, at most `HOST_RUNS_SHOWN`."""


class HostDirectory:
    """The hosts of a storage, and the requests that people make of them."""

    def __init__(self, registry: HostRegistry, hosts: Hosts, store: Store) -> None:
        self._registry = registry
        self._hosts = hosts
        self._store = store

    async def list(self) -> list[ListedHost]:
        """Return all hosts, in the order of their registration, with those that went offline a short time ago."""
        return [await self._describe(record) for record in await self._registry.all()]

    async def _describe(self, record: HostRecord) -> ListedHost:
        is_alive = record.loss is None and await self._hosts.is_alive(record.id)
        slots_used, runs = await self._open_runs(record) if is_alive else (0, [])
        return ListedHost(
            record=record,
            status=record.status if is_alive else "offline",
            is_responsive=is_alive and not has_missed_heartbeats(record, time.time()),
            slots_used=slots_used,
            runs=runs,
        )

    async def _open_runs(self, record: HostRecord) -> tuple[int, list[RunItem]]:
        """Return how many runs a host executes, and the newest of its open runs."""
        host = record.id
        if record.drain is not None:
            # Its rows include the runs that it handed over and that no other host has resumed yet.
            newest_first = [run.run_id for run in reversed(record.runs)]
            found = {item.row.id: item for item in await self._store.get_runs(newest_first)}
            held = [found[run_id] for run_id in newest_first if run_id in found and not found[run_id].row.is_ended]
            return sum(item.row.status == "running" for item in held), held[:HOST_RUNS_SHOWN]
        started = await self._store.list_runs(
            RunFilter(open_on_host=host, statuses=("running", "waiting")), limit=HOST_RUNS_SHOWN
        )
        running = sum(item.row.status == "running" for item in started.items)
        if started.next is not None:
            running = (await self._store.count_by_status(RunFilter(open_on_host=host)))["running"]
        return running, started.items

    async def drain(self, host: str, seconds: float | None) -> ListedHost:
        """Request that a host claims no more runs; after `seconds`, other hosts resume those that it still has.

        Raises HostNotFound or ConflictError.
        """
        deadline = None if seconds is None else format_timestamp(int((time.time() + seconds) * 1000))
        return await self._request(host, DrainRequest(reason=REQUESTED, deadline=deadline))

    async def undrain(self, host: str) -> ListedHost:
        """Withdraw the request. Raises HostNotFound or ConflictError."""
        return await self._request(host, None)

    async def _request(self, host: str, request: DrainRequest | None) -> ListedHost:
        record = await self._registry.find(host)
        if record is None:
            raise HostNotFound(f"there is no host {host!r}", hint="`shopfloor hosts` lists them")
        is_alive = await self._hosts.is_alive(host)
        if is_alive and record.drain is not None and record.drain.reason == SHUTDOWN:
            raise ConflictError(f"the host {host} is stopping", hint="`shopfloor host` starts another host")
        if not is_alive or not await self._registry.request_drain(host, request):
            raise ConflictError(
                f"the host {host} is offline", hint="`shopfloor hosts` lists the hosts that are running"
            )
        return await self._describe(msgspec.structs.replace(record, drain=request))
