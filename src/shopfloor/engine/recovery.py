"""What a crash or a lost database left undone: acknowledged work that no log has, deletions that were cut off."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Protocol

import anyio

from shopfloor.engine.retention import erase
from shopfloor.errors import FileMissing, InvalidEvent, ShopfloorError, StorageError, StorageLost
from shopfloor.limits import STORAGE_CHECK_SECONDS
from shopfloor.log import RunCompleted, ToolResult, decode
from shopfloor.ports import Dispatch, Order, Queue, Store
from shopfloor.record import Storage, read

_log = logging.getLogger("shopfloor.engine")


async def recover(storage: Storage, queue: Queue, *, is_idle: bool = False) -> int:
    """Queue again what was acknowledged before the database was lost; give how many dispatches and messages."""
    return await queue.recover(partial(_is_recorded, storage), is_idle=is_idle)


def _is_recorded(storage: Storage, entry: Dispatch | Order) -> bool:
    try:
        for line in read(storage.log_path(entry.run_id), report=lambda problem: None):
            if isinstance(entry, Dispatch):
                return True
            payload = decode(line.raw).payload
            if isinstance(payload, RunCompleted):
                return True
            if isinstance(payload, ToolResult) and payload.call_id == entry.body.get("call_id"):
                return True
    except (FileMissing, InvalidEvent, StorageError):
        # No log, or none to be read: the engine finds out when it takes the entry up.
        pass
    return False


async def finish_deletions(storage: Storage, store: Store, queue: Queue) -> int:
    """Delete what is left of runs whose deletion was cut off; give how many those are."""
    left = await store.half_deleted()
    for run_id in left:
        await erase(storage, store, run_id)
    await queue.forget(left)
    return len(left)


class _Executing(Protocol):
    """A host, as far as its end matters here."""

    @property
    def executing(self) -> bool: ...

    def retire(self) -> None: ...


async def keep_until_lost(store: Store, host: _Executing, upkeep: Callable[[], Awaitable[None]]) -> ShopfloorError:
    """Keep a storage up until its store is lost; give the reason when the host has nothing more to execute.

    The logs of the runs that are being executed are sound, so these runs go on to their end. Where the whole folder is
    gone nothing can be recorded any more, and nobody is waited for.
    """
    failures: list[ShopfloorError] = []

    async def watch() -> None:
        failures.append(await _failure_of(store))
        tasks.cancel_scope.cancel()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch)
        await upkeep()
    failure = failures[0]
    host.retire()
    if not isinstance(failure, StorageLost):
        _log.error("%s; no new runs, and the server stops when those that are being executed have ended", failure)
        while host.executing:  # noqa: ASYNC110 - a host tells nobody of its last run
            await anyio.sleep(STORAGE_CHECK_SECONDS)
    return failure


async def _failure_of(store: Store) -> ShopfloorError:
    while True:
        failure = store.failure()
        if failure is not None:
            return failure
        await anyio.sleep(STORAGE_CHECK_SECONDS)
