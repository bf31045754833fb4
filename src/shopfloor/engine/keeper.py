"""The keeper of a storage: rows follow the logs, orphans get their outcome, old runs go when it is asked for."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread

from shopfloor.engine.ingest import Ingest
from shopfloor.engine.orphans import can_go_on, end_orphan, is_orphan
from shopfloor.engine.retention import prune
from shopfloor.engine.shortage import tolerating
from shopfloor.limits import HOST_CHECK_SECONDS, INTAKE_IDLE_SECONDS, RETENTION_CHECK_SECONDS
from shopfloor.log import now, timestamp_of
from shopfloor.ports import Queue, Store
from shopfloor.record import Storage, is_host_alive

if TYPE_CHECKING:
    from shopfloor.engine.resumption import Resumption


async def reconcile(storage: Storage, store: Store, resumption: Resumption | None = None) -> int:
    """Sees to every open run whose host is gone; gives how many have changed by that.

    One that can be resumed is, by `resumption`; without that, it is left for who comes. The others are ended. What
    waits for somebody outside needs no host.
    """
    changed = 0
    for run in await store.unattended():
        if not is_orphan(storage, run.id, run.host):
            continue
        if not can_go_on(storage, run.id):
            is_ended = await anyio.to_thread.run_sync(end_orphan, storage, run.id)
            if is_ended and resumption is not None:
                await resumption.notify_parent_of(run.id)
            changed += is_ended
        elif resumption is not None:
            changed += await resumption.adopt(run.id)
    if resumption is not None:
        for run_id in await store.due(now()):
            await resumption.adopt(run_id)
    return changed


async def take_over(storage: Storage, queue: Queue, resumption: Resumption | None = None) -> None:
    """Queue again what hosts that are gone had claimed and not begun, unless a server must not execute it."""
    claimed = [(run_id, host) for run_id, host in await queue.claimed() if not is_host_alive(storage.hosts, host)]
    # A log with nothing in it is of a host that died before it could write what was asked for.
    begun = [run_id for run_id, _ in claimed if can_go_on(storage, run_id)]
    await queue.started(begun)
    left = [(run_id, host) for run_id, host in claimed if run_id not in begun]
    await queue.release([claim for claim in left if resumption is None or await resumption.refusal(claim[0]) is None])


async def keep(
    storage: Storage,
    store: Store,
    queue: Queue,
    ingest: Ingest,
    resumption: Resumption,
    *,
    keep_seconds: float | None = None,
) -> None:
    """Goes on until it is cancelled."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ingest.run)
        tasks.start_soon(_reconcile_for_ever, storage, store, queue, resumption)
        if keep_seconds is not None:
            tasks.start_soon(_prune_for_ever, storage, store, queue, keep_seconds)


async def _reconcile_for_ever(storage: Storage, store: Store, queue: Queue, resumption: Resumption) -> None:
    idle_at = time.monotonic() + INTAKE_IDLE_SECONDS
    while True:
        await anyio.sleep(HOST_CHECK_SECONDS)
        # The next look may go better; a run that cannot be ended must not stop the others' rows.
        with tolerating("cannot reconcile"):
            is_idle = time.monotonic() > idle_at
            await queue.recover(is_idle=is_idle)
            if is_idle:
                idle_at = time.monotonic() + INTAKE_IDLE_SECONDS
            await take_over(storage, queue, resumption)
            await reconcile(storage, store, resumption)


async def _prune_for_ever(storage: Storage, store: Store, queue: Queue, keep_seconds: float) -> None:
    while True:
        before = timestamp_of(int((time.time() - keep_seconds) * 1000))
        # Whoever set the time has said that nothing is to be kept longer, failed or not.
        with tolerating("cannot prune"):
            await prune(storage, store, queue, before=before, force=True, by="retention")
        await anyio.sleep(RETENTION_CHECK_SECONDS)
