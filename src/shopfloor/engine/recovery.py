"""What a crash or a lost database left undone: acknowledged work that no log has, deletions that were cut off."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import anyio

from shopfloor.engine.retention import erase
from shopfloor.engine.storage_ports import StoragePorts
from shopfloor.errors import ShopfloorError, StorageLost
from shopfloor.limits import STORAGE_CHECK_SECONDS
from shopfloor.ports import Store

if TYPE_CHECKING:
    from shopfloor.engine.scheduler import Scheduler

_log = logging.getLogger("shopfloor.engine")


async def finish_deletions(ports: StoragePorts) -> int:
    """Delete what is left of runs whose deletion was cut off; give how many those are."""
    left = await ports.store.half_deleted()
    for run_id in left:
        await erase(ports, run_id)
    await ports.queue.forget(left)
    return len(left)


async def keep_until_lost(store: Store, scheduler: Scheduler, upkeep: Callable[[], Awaitable[None]]) -> ShopfloorError:
    """Keep a storage up until its store is lost; give the reason when the scheduler has nothing more to execute.

    The logs of the runs that are being executed are sound, so these runs go on to their end. Where the whole folder is
    gone nothing can be recorded any more, and nobody is waited for.
    """
    failures: list[ShopfloorError] = []

    async def watch() -> None:
        while (failure := store.failure()) is None:  # noqa: ASYNC110 - a store tells nobody that it is lost
            await anyio.sleep(STORAGE_CHECK_SECONDS)
        failures.append(failure)
        tasks.cancel_scope.cancel()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch)
        await upkeep()
    failure = failures[0]
    scheduler.retire()
    if not isinstance(failure, StorageLost):
        _log.error("%s; no new runs, and the server stops when those that are being executed have ended", failure)
        while scheduler.executing:  # noqa: ASYNC110 - a scheduler tells nobody of its last run
            await anyio.sleep(STORAGE_CHECK_SECONDS)
    return failure
