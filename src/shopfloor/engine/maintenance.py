"""Runs whose host is gone: nobody will ever write their outcome, so somebody else has to."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import anyio

from shopfloor.engine.engine_ports import StoragePorts
from shopfloor.engine.error_mapping import tolerate_temporary_errors
from shopfloor.engine.ingest import Ingest
from shopfloor.engine.replay_state import events_of
from shopfloor.engine.retention import erase, prune
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
from shopfloor.ports import Log, LogReader, Store
from shopfloor.views import Outline, PartialMessages, Step, outline

if TYPE_CHECKING:
    from shopfloor.engine.resumption import Resumption
    from shopfloor.engine.scheduler import Scheduler


HOST_LOST = "host_lost"


async def is_orphan(reader: LogReader, run_id: str, host: str | None) -> bool:
    """Whether nobody is left to go on with this run: its host is gone, and nobody writes its log."""
    return await reader.has_log(run_id) and not await reader.has_active_host(run_id, host)


async def is_resumable(reader: LogReader, run_id: str) -> bool:
    """Whether its log says what was to be done, so that another attempt can do the rest."""
    first = await reader.page(run_id, limit=1)
    with contextlib.suppress(InvalidEvent):
        payload = decode(first[0].raw).payload if first else None
        return isinstance(payload, RunStarted) and payload.definition is not None
    return False


async def end_orphan(
    ports: StoragePorts, run_id: str, *, cancelled: str | None = None, failure: RunError | None = None
) -> bool:
    """Writes the outcome that the host can no longer write; False where there is one, or somebody at it, after all.

    `cancelled` is the reason, where somebody asked for its end; `failure` why it failed, where it is not the host.
    """
    run, partial = Outline(), PartialMessages()
    async for event in events_of(ports.reader, run_id):
        partial.feed(event)
        run = outline((event,), run)
    if not run.events or run.is_ended:
        return False
    if not run.attempt:
        broken = "the beginning of its log cannot be read: nobody can go on with it"
        failure = failure or RunError(code=TranscriptBroken.code, message=broken)
    # A log has one writer, and a run one outcome: whoever else is ending this run keeps us out, or has kept us out.
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
    payload = ended(name=step.name, kind=step.kind, try_=step.try_, error="the host is gone")
    await log.append(payload, path=step.path, iteration=step.iteration, child_run_id=step.child_run_id)


def _cancelled(run: Outline, reason: str) -> RunCompleted:
    error = RunError(code="cancelled", message=reason)
    return RunCompleted(name=run.name, kind=run.kind, status="cancelled", error=error)


def _outcome(run: Outline, open_steps: list[Step], failure: RunError | None) -> RunCompleted:
    at = f", while it was at {', '.join(step.path for step in open_steps)}" if open_steps else ""
    error = RunError(code=HOST_LOST, message=f"the process that ran this is gone{at}", retryable=True)
    return RunCompleted(name=run.name, kind=run.kind, status="failed", error=failure or error)


_log = logging.getLogger("shopfloor.engine")


async def finish_deletions(ports: StoragePorts) -> int:
    """Delete what is left of runs whose deletion was cut off; give how many those are."""
    left = await ports.store.partially_deleted_runs()
    for run_id in left:
        await erase(ports, run_id)
    await ports.queue.forget(left)
    return len(left)


async def maintain_until_lost(
    store: Store, scheduler: Scheduler, upkeep: Callable[[], Awaitable[None]]
) -> ShopfloorError:
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
    scheduler.stop_claiming()
    if not isinstance(failure, StorageLost):
        _log.error("%s; no new runs, and the server stops when those that are being executed have ended", failure)
        while scheduler.is_executing:  # noqa: ASYNC110 - a scheduler tells nobody of its last run
            await anyio.sleep(STORAGE_CHECK_SECONDS)
    return failure


async def reconcile(ports: StoragePorts, resumption: Resumption | None = None) -> int:
    """Sees to every open run whose host is gone; gives how many have changed by that.

    One that can be resumed is, by `resumption`; without that, it is left for who comes. The others are ended. What
    waits for somebody outside needs no host.
    """
    changed = 0
    for run in await ports.store.runs_needing_host():
        if not await is_orphan(ports.reader, run.id, run.host):
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
    return changed


async def requeue_abandoned(ports: StoragePorts, resumption: Resumption | None = None) -> None:
    """Queue again what hosts that are gone had claimed and not begun, unless a server must not execute it."""
    queue = ports.queue
    claimed = [claim for claim in await queue.claimed() if not await ports.hosts.is_alive(claim[1])]
    # A log with nothing in it is of a host that died before it could write what was asked for.
    begun = [run_id for run_id, _ in claimed if await is_resumable(ports.reader, run_id)]
    await queue.started(begun)
    left = [(run_id, host) for run_id, host in claimed if run_id not in begun]
    await queue.release(
        [claim for claim in left if resumption is None or await resumption.refusal_reason(claim[0]) is None]
    )


async def run_maintenance(
    ports: StoragePorts, ingest: Ingest, resumption: Resumption, *, retention_seconds: float | None = None
) -> None:
    """Goes on until it is cancelled."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ingest.run)
        tasks.start_soon(_reconcile_for_ever, ports, resumption)
        if retention_seconds is not None:
            tasks.start_soon(_prune_for_ever, ports, retention_seconds)


async def _reconcile_for_ever(ports: StoragePorts, resumption: Resumption) -> None:
    idle_at = time.monotonic() + INTAKE_IDLE_SECONDS
    while True:
        await anyio.sleep(HOST_CHECK_SECONDS)
        # The next look may go better; a run that cannot be ended must not stop the others' rows.
        with tolerate_temporary_errors("cannot reconcile"):
            is_idle = time.monotonic() > idle_at
            await ports.queue.recover(is_idle=is_idle)
            if is_idle:
                idle_at = time.monotonic() + INTAKE_IDLE_SECONDS
            await requeue_abandoned(ports, resumption)
            await reconcile(ports, resumption)


async def _prune_for_ever(ports: StoragePorts, retention_seconds: float) -> None:
    while True:
        before = format_timestamp(int((time.time() - retention_seconds) * 1000))
        # Whoever set the time has said that nothing is to be kept longer, failed or not.
        with tolerate_temporary_errors("cannot prune"):
            await prune(ports, before=before, by="retention", force=True)
        await anyio.sleep(RETENTION_CHECK_SECONDS)
