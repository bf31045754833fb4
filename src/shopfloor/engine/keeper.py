"""The keeper of a storage: rows follow the logs, orphans get their outcome, old runs go when it is asked for."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import anyio

from shopfloor.engine.ingest import Ingest
from shopfloor.engine.orphans import can_go_on, end_orphan, is_orphan
from shopfloor.engine.retention import prune
from shopfloor.engine.shortage import tolerating
from shopfloor.engine.storage_ports import StoragePorts
from shopfloor.limits import HOST_CHECK_SECONDS, INTAKE_IDLE_SECONDS, RETENTION_CHECK_SECONDS
from shopfloor.log import now, timestamp_of

if TYPE_CHECKING:
    from shopfloor.engine.resumption import Resumption


async def reconcile(ports: StoragePorts, resumption: Resumption | None = None) -> int:
    """Sees to every open run whose host is gone; gives how many have changed by that.

    One that can be resumed is, by `resumption`; without that, it is left for who comes. The others are ended. What
    waits for somebody outside needs no host.
    """
    changed = 0
    for run in await ports.store.unattended():
        if not await is_orphan(ports.reader, run.id, run.host):
            continue
        if not await can_go_on(ports.reader, run.id):
            is_ended = await end_orphan(ports, run.id)
            if is_ended and resumption is not None:
                await resumption.notify_parent_of(run.id)
            changed += is_ended
        elif resumption is not None:
            changed += await resumption.adopt(run.id)
    if resumption is not None:
        for run_id in await ports.store.due(now()):
            await resumption.adopt(run_id)
    return changed


async def take_over(ports: StoragePorts, resumption: Resumption | None = None) -> None:
    """Queue again what hosts that are gone had claimed and not begun, unless a server must not execute it."""
    queue = ports.queue
    claimed = [claim for claim in await queue.claimed() if not await ports.hosts.is_alive(claim[1])]
    # A log with nothing in it is of a host that died before it could write what was asked for.
    begun = [run_id for run_id, _ in claimed if await can_go_on(ports.reader, run_id)]
    await queue.started(begun)
    left = [(run_id, host) for run_id, host in claimed if run_id not in begun]
    await queue.release([claim for claim in left if resumption is None or await resumption.refusal(claim[0]) is None])


async def keep(
    ports: StoragePorts, ingest: Ingest, resumption: Resumption, *, keep_seconds: float | None = None
) -> None:
    """Goes on until it is cancelled."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ingest.run)
        tasks.start_soon(_reconcile_for_ever, ports, resumption)
        if keep_seconds is not None:
            tasks.start_soon(_prune_for_ever, ports, keep_seconds)


async def _reconcile_for_ever(ports: StoragePorts, resumption: Resumption) -> None:
    idle_at = time.monotonic() + INTAKE_IDLE_SECONDS
    while True:
        await anyio.sleep(HOST_CHECK_SECONDS)
        # The next look may go better; a run that cannot be ended must not stop the others' rows.
        with tolerating("cannot reconcile"):
            is_idle = time.monotonic() > idle_at
            await ports.queue.recover(is_idle=is_idle)
            if is_idle:
                idle_at = time.monotonic() + INTAKE_IDLE_SECONDS
            await take_over(ports, resumption)
            await reconcile(ports, resumption)


async def _prune_for_ever(ports: StoragePorts, keep_seconds: float) -> None:
    while True:
        before = timestamp_of(int((time.time() - keep_seconds) * 1000))
        # Whoever set the time has said that nothing is to be kept longer, failed or not.
        with tolerating("cannot prune"):
            await prune(ports, before=before, by="retention", force=True)
        await anyio.sleep(RETENTION_CHECK_SECONDS)
