"""Deleting runs: only what has ended, tombstone first, so that a rebuild does not bring it back."""

from __future__ import annotations

from shopfloor.errors import NeedsForce, RunNotFound, RunRunning
from shopfloor.ports import Queue, RunFilter, RunItem, Store
from shopfloor.record import Storage, torn_files

_BATCH = 500


async def delete_run(storage: Storage, store: Store, queue: Queue, run_id: str, *, force: bool = False) -> list[str]:
    """Deletes a run and its sub-runs; a failed one only by `force`. Gives the ids of what is gone."""
    family = await _family(store, run_id)
    for item in family:
        if not item.row.ended:
            raise RunRunning(f"the run {item.row.id} has not ended", hint="cancel it first")
    if family[0].row.status == "failed" and not force:
        raise NeedsForce(f"the run {run_id} failed, and may yet be looked into", hint="say force=true to delete it")
    # The children first: what is left after a crash is a family without some of its members, not orphans.
    gone = [item.row.id for item in reversed(family)]
    for one in gone:
        await _erase(storage, store, one)
    await queue.forget(gone)
    return gone


async def _family(store: Store, run_id: str) -> list[RunItem]:
    """A run and all below it, parents before children."""
    root = await store.get_run(run_id)
    if root is None:
        raise RunNotFound(f"there is no run {run_id}")
    family = [root]
    for member in family:
        cursor: str | None = None
        while True:
            page = await store.list_runs(RunFilter(parent_run_id=member.row.id), limit=_BATCH, cursor=cursor)
            known = {item.row.id for item in family}
            family += [item for item in page.items if item.row.id not in known]
            cursor = page.next
            if cursor is None:
                break
    return family


async def _erase(storage: Storage, store: Store, run_id: str) -> None:
    await store.bury(run_id)
    path = storage.log_path(run_id)
    for file in (path, *torn_files(path)):
        file.unlink(missing_ok=True)
    await store.delete(run_id)


async def prune(storage: Storage, store: Store, queue: Queue, *, before: str, archives_only: bool = False) -> int:
    """Deletes what ended before that time and is not pinned, or its archive alone; gives how many runs that was."""
    pruned = 0
    done: set[str] = set()
    while expired := [run_id for run_id in await store.expired(before, limit=_BATCH + len(done)) if run_id not in done]:
        for run_id in expired:
            if archives_only:
                await store.drop_archive(run_id)
                done.add(run_id)
            else:
                await _erase(storage, store, run_id)
            pruned += 1
        if not archives_only:
            await queue.forget(expired)
    if pruned:
        await store.compact()
    return pruned
