"""The keeper of a storage: rows follow the logs, orphans get their outcome, old runs go when it is asked for."""

from __future__ import annotations

import logging
import time

import anyio
import anyio.to_thread

from shopfloor.engine.ingest import Ingest
from shopfloor.engine.reconcile import end_orphan, is_orphan
from shopfloor.engine.retention import prune
from shopfloor.errors import ShopfloorError
from shopfloor.limits import HOST_CHECK_SECONDS, RETENTION_CHECK_SECONDS
from shopfloor.log import timestamp_of
from shopfloor.ports import Store
from shopfloor.record import Storage

_log = logging.getLogger("shopfloor.engine")


async def reconcile(storage: Storage, store: Store) -> int:
    """Ends every open run that nobody is left to end; gives how many."""
    ended = 0
    for run_id in await store.open_runs():
        item = await store.get_run(run_id)
        if item is not None and is_orphan(storage, run_id, item.row.host):
            ended += await anyio.to_thread.run_sync(end_orphan, storage, run_id)
    return ended


async def keep(storage: Storage, store: Store, ingest: Ingest, *, keep_seconds: float | None = None) -> None:
    """Goes on until it is cancelled."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ingest.run)
        tasks.start_soon(_reconcile_for_ever, storage, store)
        if keep_seconds is not None:
            tasks.start_soon(_prune_for_ever, storage, store, keep_seconds)


async def _reconcile_for_ever(storage: Storage, store: Store) -> None:
    while True:
        await anyio.sleep(HOST_CHECK_SECONDS)
        try:
            await reconcile(storage, store)
        except (ShopfloorError, OSError) as error:
            # The next look may go better; a run that cannot be ended must not stop the others' rows.
            _log.warning("cannot reconcile: %s", error)


async def _prune_for_ever(storage: Storage, store: Store, keep_seconds: float) -> None:
    while True:
        before = timestamp_of(int((time.time() - keep_seconds) * 1000))
        try:
            await prune(storage, store, before=before)
        except (ShopfloorError, OSError) as error:
            _log.warning("cannot prune: %s", error)
        await anyio.sleep(RETENTION_CHECK_SECONDS)
