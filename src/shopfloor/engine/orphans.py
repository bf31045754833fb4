"""Runs whose host is gone: nobody will ever write their outcome, so somebody else has to."""

from __future__ import annotations

import contextlib

from shopfloor.engine.journal import events_of
from shopfloor.engine.storage_ports import StoragePorts
from shopfloor.errors import InvalidEvent, LogBusy, RunEnded, TranscriptBroken
from shopfloor.log import (
    AssistantMessage,
    CallCompleted,
    RunCompleted,
    RunError,
    RunStarted,
    StepCompleted,
    decode,
)
from shopfloor.ports import Log, LogReader
from shopfloor.views import Outline, PartialMessages, Step, outline

HOST_LOST = "host_lost"


async def is_orphan(reader: LogReader, run_id: str, host: str | None) -> bool:
    """Whether nobody is left to go on with this run: its host is gone, and nobody writes its log."""
    return await reader.has_log(run_id) and not await reader.is_attended(run_id, host)


async def can_go_on(reader: LogReader, run_id: str) -> bool:
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
        partial.take(event)
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
