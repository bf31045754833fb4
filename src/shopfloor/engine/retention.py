"""Deleting runs: only what has ended, tombstone first, so that a rebuild does not bring it back."""

from __future__ import annotations

from collections.abc import AsyncIterator

from shopfloor.engine.engine_ports import StoragePorts
from shopfloor.errors import NeedsForce, RunNotFound, RunRunning
from shopfloor.ports import RunFilter, RunItem, Store, audit_entry

_BATCH = 500


async def delete_run(ports: StoragePorts, run_id: str, *, force: bool = False) -> list[str]:
    """Deletes a run and its sub-runs; a failed one only by `force`. Gives the ids of what is gone."""
    root = await ports.store.get_run(run_id)
    if root is None:
        raise RunNotFound(f"there is no run {run_id}")
    family = await _family(ports.store, root)
    for item in family:
        if not item.row.is_ended:
            raise RunRunning(f"the run {item.row.id} has not ended", hint="cancel it first")
    if family[0].row.status == "failed" and not force:
        raise NeedsForce(
            f"the run {run_id} failed, and may yet be looked into",
            hint="`shopfloor delete --force` deletes it all the same; over HTTP, force=true",
        )
    return await _erase_all(ports, family)


async def _family(store: Store, root: RunItem) -> list[RunItem]:
    """A run and all below it, parents before children."""
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


async def _erase_all(ports: StoragePorts, family: list[RunItem]) -> list[str]:
    # The children first: what is left after a crash is a family without some of its members, not orphans.
    gone = [item.row.id for item in reversed(family)]
    for run_id in gone:
        await erase(ports, run_id)
    await ports.queue.forget(gone)
    return gone


async def erase(ports: StoragePorts, run_id: str) -> None:
    """Delete one run. Once the tombstone is written, a restart finishes what a crash cut off."""
    await ports.store.add_tombstone(run_id)
    await ports.logs.delete(run_id)
    await ports.store.delete(run_id)
    # After the row: a process that hears of the deletion looks for the row at once.
    await ports.logs.announce_deletion(run_id)


async def prune(ports: StoragePorts, *, before: str, by: str, force: bool = False) -> int:
    """Delete what `prunable` gives; return how many runs that were. The audit trail says that `by` did it."""
    pruned = 0
    async for tree in prunable(ports.store, before=before, force=force):
        gone = await _erase_all(ports, tree)
        for run_id in gone:
            await ports.audit.write(audit_entry("run.deleted", by=by, run_id=run_id, detail=f"ended before {before}"))
        pruned += len(gone)
    if pruned:
        await ports.store.compact()
    return pruned


async def prunable(store: Store, *, before: str, force: bool = False) -> AsyncIterator[list[RunItem]]:
    """Yield the trees of runs that ended before that time and are not pinned, parents before children.

    A run goes with its whole tree or not at all: nobody could read the rest. A tree with a run that failed stays unless
    `force` is set: it may yet be looked into.
    """
    async for run_id, done in _expired(store, before):
        tree = await _tree(store, run_id)
        done |= {item.row.id for item in tree}
        if tree and all(_may_go(item, before, force=force) for item in tree):
            yield tree


async def prune_archives(store: Store, *, before: str) -> int:
    """Drop the archives that `prunable_archives` gives; return how many those were."""
    pruned = 0
    async for item in prunable_archives(store, before=before):
        await store.drop_archive(item.row.id)
        pruned += 1
    if pruned:
        await store.compact()
    return pruned


async def prunable_archives(store: Store, *, before: str) -> AsyncIterator[RunItem]:
    """Yield the runs with an archive that ended before that time and are not pinned, each by itself."""
    async for run_id, _ in _expired(store, before):
        item = await store.get_run(run_id)
        if item is not None and item.has_transcript:
            yield item


async def _expired(store: Store, before: str) -> AsyncIterator[tuple[str, set[str]]]:
    """Yield the runs that have expired, and those that are done with: whoever looks at more of them adds to these."""
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
    """All that belongs together with a run, the one that nobody called first."""
    top, seen = await store.get_run(run_id), {run_id}
    while top is not None and top.row.parent_run_id is not None and top.row.parent_run_id not in seen:
        seen.add(top.row.parent_run_id)
        above = await store.get_run(top.row.parent_run_id)
        if above is None:
            break
        top = above
    return await _family(store, top) if top is not None else []


def _may_go(item: RunItem, before: str, *, force: bool) -> bool:
    row = item.row
    is_old = row.completed_at is not None and row.completed_at < before
    return is_old and not item.pinned and (force or row.status != "failed")
