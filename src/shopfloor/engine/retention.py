"""Deletion of ended runs and their archives. The tombstone comes first, so that a rebuild cannot restore a run."""

from __future__ import annotations

from collections.abc import AsyncIterator

from shopfloor.engine.engine_ports import StoragePorts
from shopfloor.engine.plugin_jobs import delete_job
from shopfloor.errors import NeedsForce, RunNotFound, RunRunning
from shopfloor.ports import Plugins, RunFilter, RunItem, Store, artifacts_folder, audit_entry

_BATCH = 500


async def delete_run(
    ports: StoragePorts, run_id: str, *, force: bool = False, plugins: Plugins | None = None
) -> list[str]:
    """Delete a run and its sub-runs, with the jobs of their `plugins`; return their ids.

    Raises `RunRunning` if one of them has not ended, `NeedsForce` if the run failed and `force` is not set.
    """
    root = await ports.store.get_run(run_id)
    if root is None:
        raise RunNotFound(f"there is no run {run_id}")
    subtree = await _subtree(ports.store, root)
    for item in subtree:
        if not item.row.is_ended:
            raise RunRunning(f"the run {item.row.id} has not ended", hint="cancel it first")
    if subtree[0].row.status == "failed" and not force:
        raise NeedsForce(
            f"the run {run_id} failed, and its log may still be needed",
            hint="delete it anyway with `shopfloor delete --force`; over HTTP with force=true",
        )
    return await _delete_all(ports, subtree, plugins)


async def _subtree(store: Store, root: RunItem) -> list[RunItem]:
    """Return a run and all runs below it, parents before children."""
    subtree = [root]
    for member in subtree:
        cursor: str | None = None
        while True:
            page = await store.list_runs(RunFilter(parent_run_id=member.row.id), limit=_BATCH, cursor=cursor)
            known = {item.row.id for item in subtree}
            subtree += [item for item in page.items if item.row.id not in known]
            cursor = page.next
            if cursor is None:
                break
    return subtree


async def _delete_all(ports: StoragePorts, subtree: list[RunItem], plugins: Plugins | None) -> list[str]:
    if plugins is not None:
        # Before the tombstones: without its log a run does not know its job.
        for item in subtree:
            await delete_job(plugins, ports.reader, item)
    # Children first: after a crash no child is left without its parent.
    deleted_ids = [item.row.id for item in reversed(subtree)]
    for run_id in deleted_ids:
        await delete_one(ports, run_id)
    await ports.queue.forget(deleted_ids)
    return deleted_ids


async def delete_one(ports: StoragePorts, run_id: str) -> None:
    """Delete one run. If a crash interrupts the deletion after the tombstone, the next start finishes it."""
    await ports.store.add_tombstone(run_id)
    await ports.logs.delete(run_id)
    await ports.blobs.delete(artifacts_folder(run_id))
    await ports.store.delete(run_id)
    # After the row: a process that gets the announcement reads the row at once.
    await ports.logs.announce_deletion(run_id)


async def prune(
    ports: StoragePorts, *, before: str, by: str, force: bool = False, plugins: Plugins | None = None
) -> int:
    """Delete the runs that `prunable` yields, with the jobs of their `plugins`; return their number.

    The audit trail names `by` as the actor.
    """
    pruned = 0
    async for tree in prunable(ports.store, before=before, force=force):
        deleted_ids = await _delete_all(ports, tree, plugins)
        for run_id in deleted_ids:
            await ports.audit.write(audit_entry("run.deleted", by=by, run_id=run_id, detail=f"ended before {before}"))
        pruned += len(deleted_ids)
    if pruned:
        await ports.store.compact()
    return pruned


async def prunable(store: Store, *, before: str, force: bool = False) -> AsyncIterator[list[RunItem]]:
    """Yield the trees of unpinned runs that ended before this time, parents before children.

    A tree is deleted completely or not at all: its parts are not readable alone. A tree with a failed run is kept
    unless `force` is set: its log may still be needed.
    """
    async for run_id, done in _expired(store, before):
        tree = await _tree(store, run_id)
        done |= {item.row.id for item in tree}
        if tree and all(_is_prunable(item, before, force=force) for item in tree):
            yield tree


async def prune_archives(store: Store, *, before: str) -> int:
    """Delete the archives that `prunable_archives` yields; return their number."""
    pruned = 0
    async for item in prunable_archives(store, before=before):
        await store.drop_archive(item.row.id)
        pruned += 1
    if pruned:
        await store.compact()
    return pruned


async def prunable_archives(store: Store, *, before: str) -> AsyncIterator[RunItem]:
    """Yield the unpinned runs with an archive that ended before this time, independently of their trees."""
    async for run_id, _ in _expired(store, before):
        item = await store.get_run(run_id)
        if item is not None and item.has_transcript:
            yield item


async def _expired(store: Store, before: str) -> AsyncIterator[tuple[str, set[str]]]:
    """Yield every expired run, with the set of runs that are done. Runs that the caller adds to the set are skipped."""
    done: set[str] = set()
    since, at_since = "", 0
    while True:
        page = await store.expired(before, since=since, limit=_BATCH + at_since)
        fresh = [run_id for run_id, _ in page if run_id not in done]
        if not fresh:
            return
        for run_id in fresh:
            if run_id not in done:
                done.add(run_id)
                yield run_id, done
        since = page[-1][1]
        at_since = sum(ended == since for _, ended in page)


async def _tree(store: Store, run_id: str) -> list[RunItem]:
    """Return all runs of the tree of a run, the root first."""
    top, seen = await store.get_run(run_id), {run_id}
    while top is not None and top.row.parent_run_id is not None and top.row.parent_run_id not in seen:
        seen.add(top.row.parent_run_id)
        above = await store.get_run(top.row.parent_run_id)
        if above is None:
            break
        top = above
    return await _subtree(store, top) if top is not None else []


def _is_prunable(item: RunItem, before: str, *, force: bool) -> bool:
    row = item.row
    is_old = row.completed_at is not None and row.completed_at < before
    return is_old and not item.pinned and (force or row.status != "failed")
