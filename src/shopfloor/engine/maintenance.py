"""Maintenance of a storage: keep rows up to date, end or resume orphaned runs, finish deletions, apply retention.

A run is orphaned when its host is gone: no process will ever write its outcome.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import TYPE_CHECKING

import anyio

from shopfloor.engine.engine_ports import StoragePorts
from shopfloor.engine.error_mapping import tolerate_temporary_errors
from shopfloor.engine.ingest import Ingest
from shopfloor.engine.replay_state import events_of
from shopfloor.engine.retention import delete_one, prune
from shopfloor.errors import InvalidEvent, LogBusy, RunEnded, ShopfloorError, StorageLost, TranscriptBroken
from shopfloor.limits import HOST_CHECK_SECONDS, INTAKE_IDLE_SECONDS, RETENTION_CHECK_SECONDS, STORAGE_CHECK_SECONDS
from shopfloor.log import (
    AssistantMessage,
    CallCompleted,
    RunCompleted,
    RunError,
    RunStarted,
    StepCompleted,
    decode,
    format_timestamp,
    now,
)
from shopfloor.ports import Log, LogReader, Plugins, Store
from shopfloor.views import Outline, PartialMessages, Step, outline

if TYPE_CHECKING:
    from shopfloor.engine.resumption import Resumption
    from shopfloor.engine.scheduler import Scheduler

_log = logging.getLogger("shopfloor.engine")
HOST_LOST = "host_lost"
"""The error code of a run whose host is gone."""


async def is_orphan(reader: LogReader, run_id: str, host: str | None) -> bool:
    """Return whether the run has a log, but its host is gone and no process writes the log."""
    return await reader.has_log(run_id) and not await reader.has_active_host(run_id, host)


async def is_resumable(reader: LogReader, run_id: str) -> bool:
    """Return whether the log has a readable definition, so that another attempt can continue the run."""
    first = await reader.page(run_id, limit=1)
    with contextlib.suppress(InvalidEvent):
        payload = decode(first[0].raw).payload if first else None
        return isinstance(payload, RunStarted) and payload.definition is not None
    return False


async def end_orphan(
    ports: StoragePorts, run_id: str, *, cancelled: str | None = None, failure: RunError | None = None
) -> bool:
    """Write the outcome that the lost host cannot write. Return False if the run has ended or has a writer after all.

    `cancelled` is the reason of a requested cancel; `failure` is the error if the run did not fail because of the host.
    """
    run, partial = Outline(), PartialMessages()
    async for event in events_of(ports.reader, run_id):
        partial.feed(event)
        run = outline((event,), run)
    if not run.events or run.is_ended:
        return False
    if not run.attempt:
        broken = "the beginning of the log cannot be read: the run cannot be resumed"
        failure = failure or RunError(code=TranscriptBroken.code, message=broken)
    # A log has one writer and a run one outcome: if another process ends this run too, one of the two gets an error.
    with contextlib.suppress(LogBusy, RunEnded):
        async with ports.logs.open(run_id) as log:
            for event in partial.rest():
                if isinstance(event.payload, AssistantMessage):
                    await log.append(event.payload, path=event.path, iteration=event.iteration)
            open_steps = [step for step in run.steps.values() if not step.done and not step.is_question]
            for step in reversed(open_steps):
                await _end_step(log, step)
            await log.append(
                _cancelled(run, cancelled) if cancelled is not None else _outcome(run, open_steps, failure)
            )
        return True
    return False


async def _end_step(log: Log, step: Step) -> None:
    ended = CallCompleted if step.child_run_id else StepCompleted
    payload = ended(
        name=step.name, kind=step.kind, try_=step.try_, error="the process that executed the run ended unexpectedly"
    )
    await log.append(payload, path=step.path, iteration=step.iteration, child_run_id=step.child_run_id)


def _cancelled(run: Outline, reason: str) -> RunCompleted:
    error = RunError(code="cancelled", message=reason)
    return RunCompleted(name=run.name, kind=run.kind, status="cancelled", error=error)


def _outcome(run: Outline, open_steps: list[Step], failure: RunError | None) -> RunCompleted:
    during = f" during {', '.join(step.path for step in open_steps)}" if open_steps else ""
    message = f"the process that executed the run ended unexpectedly{during}"
    error = RunError(code=HOST_LOST, message=message, retryable=True)
    return RunCompleted(name=run.name, kind=run.kind, status="failed", error=failure or error)


async def finish_deletions(ports: StoragePorts) -> int:
    """Finish the deletions that a crash interrupted; return the number of runs."""
    run_ids = await ports.store.partially_deleted_runs()
    for run_id in run_ids:
        await delete_one(ports, run_id)
    await ports.queue.forget(run_ids)
    return len(run_ids)


async def maintain_until_lost(
    store: Store, scheduler: Scheduler, maintenance: Callable[[], Awaitable[None]]
) -> ShopfloorError:
    """Run the maintenance until the store is lost, then return the failure once the scheduler executes no run.

    The logs of the executing runs are intact, so these runs continue to their end. If the whole storage folder is gone,
    nothing can be recorded, and the runs are not waited for.
    """
    failures: list[ShopfloorError] = []

    async def watch() -> None:
        while (failure := store.failure()) is None:  # noqa: ASYNC110 - a store has no event for its loss
            await anyio.sleep(STORAGE_CHECK_SECONDS)
        failures.append(failure)
        tasks.cancel_scope.cancel()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch)
        await maintenance()
    failure = failures[0]
    scheduler.stop_claiming()
    if not isinstance(failure, StorageLost):
        _log.error("%s; new runs are refused, and the server stops when the executing runs have ended", failure)
        while scheduler.is_executing:  # noqa: ASYNC110 - a scheduler has no event for its last run
            await anyio.sleep(STORAGE_CHECK_SECONDS)
    return failure


async def resume_or_end_orphans(
    ports: StoragePorts, resumption: Resumption | None = None, *, excluded: Collection[str] = ()
) -> int:
    """Resume or end every open run whose host is gone; return how many runs changed.

    Resumable runs are resumed by `resumption`; without it they stay as they are. The others are ended. Runs that wait
    for an answer from outside need no host, and are resumed here only when their time-out is due. Runs of the hosts
    in `excluded` are left alone.
    """
    changed = 0
    for run in await ports.store.runs_needing_host():
        if run.host in excluded or not await is_orphan(ports.reader, run.id, run.host):
            continue
        if run.host is not None and not await ports.hosts.is_alive(run.host) and not await ports.hosts.reap(run.host):
            # A process of the run is still running: its step must not be executed a second time meanwhile.
            continue
        if not await is_resumable(ports.reader, run.id):
            is_ended = await end_orphan(ports, run.id)
            if is_ended and resumption is not None:
                await resumption.notify_parent_of(run.id)
            changed += is_ended
        elif resumption is not None:
            changed += await resumption.resume_if_allowed(run.id)
    if resumption is not None:
        for run_id in await ports.store.due_runs(now()):
            await resumption.resume_if_allowed(run_id)
        for run_id in await ports.store.overdue_parents():
            # The process that ended the sub-run notifies its parent, unless that process died before.
            if not await ports.reader.has_writer(run_id):
                await resumption.resume_if_allowed(run_id)
    return changed


async def requeue_abandoned(
    ports: StoragePorts, resumption: Resumption | None = None, *, excluded: Collection[str] = ()
) -> None:
    """Requeue the runs that lost hosts had claimed but not started, unless a server must not execute them.

    Claims of the hosts in `excluded` are left alone.
    """
    claimed = [
        (run_id, host)
        for run_id, host in await ports.queue.claimed()
        if host not in excluded and not await ports.hosts.is_alive(host)
    ]
    await requeue_claims(ports, claimed, resumption)


async def requeue_claims(
    ports: StoragePorts, claimed: Sequence[tuple[str, str]], resumption: Resumption | None = None
) -> None:
    """Requeue these runs, each with the host that had claimed it, unless a server must not execute them."""
    queue = ports.queue
    # A log without a definition is from a host that died before it could write the first event.
    started_ids = [run_id for run_id, _ in claimed if await is_resumable(ports.reader, run_id)]
    await queue.mark_started(started_ids)
    unstarted = [(run_id, host) for run_id, host in claimed if run_id not in started_ids]
    await queue.release(
        [claim for claim in unstarted if resumption is None or await resumption.refusal_reason(claim[0]) is None]
    )


CheckHosts = Callable[[], Awaitable[Collection[str]]]


async def _exclude_none() -> Collection[str]:
    return ()


async def run_maintenance(
    ports: StoragePorts,
    ingest: Ingest,
    resumption: Resumption,
    plugins: Plugins,
    *,
    retention_seconds: float | None = None,
    check_hosts: CheckHosts = _exclude_none,
) -> None:
    """Run all maintenance tasks until cancelled. Runs older than `retention_seconds` are deleted; None keeps all.

    `check_hosts` is called before runs of lost hosts are resumed, and returns the hosts whose runs are left alone.
    """
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ingest.run)
        tasks.start_soon(_resume_or_end_orphans_forever, ports, resumption, check_hosts)
        if retention_seconds is not None:
            tasks.start_soon(_prune_forever, ports, plugins, retention_seconds)


async def _resume_or_end_orphans_forever(ports: StoragePorts, resumption: Resumption, check_hosts: CheckHosts) -> None:
    idle_at = time.monotonic() + INTAKE_IDLE_SECONDS
    while True:
        await anyio.sleep(HOST_CHECK_SECONDS)
        # Retried at the next check: a run that cannot be ended must not stop the ingest of the others.
        with tolerate_temporary_errors("cannot resume or end orphaned runs"):
            is_idle = time.monotonic() > idle_at
            await ports.queue.recover(is_idle=is_idle)
            if is_idle:
                idle_at = time.monotonic() + INTAKE_IDLE_SECONDS
            excluded = await check_hosts()
            await requeue_abandoned(ports, resumption, excluded=excluded)
            await resume_or_end_orphans(ports, resumption, excluded=excluded)


async def _prune_forever(ports: StoragePorts, plugins: Plugins, retention_seconds: float) -> None:
    while True:
        before = format_timestamp(int((time.time() - retention_seconds) * 1000))
        # `force`: the configured retention applies to failed runs too.
        with tolerate_temporary_errors("cannot prune"):
            await prune(ports, before=before, by="retention", force=True, plugins=plugins)
        await anyio.sleep(RETENTION_CHECK_SECONDS)
