"""Runs whose host is gone: nobody will ever write their outcome, so somebody else has to."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator

from shopfloor.errors import LogBusy, RunEnded, TranscriptBroken
from shopfloor.log import (
    AssistantMessage,
    CallCompleted,
    Event,
    RunCompleted,
    RunError,
    RunStarted,
    StepCompleted,
    decode,
)
from shopfloor.record import Recorder, Storage, is_attended, read
from shopfloor.views import Outline, PartialMessages, Step, outline

HOST_LOST = "host_lost"


def is_orphan(storage: Storage, run_id: str, host: str | None) -> bool:
    """Whether nobody is left to go on with this run: its host holds no lock, and nobody writes its log."""
    path = storage.log_path(run_id)
    return path.exists() and not is_attended(path, host)


def can_go_on(storage: Storage, run_id: str) -> bool:
    """Whether its log says what was to be done, so that another attempt can do the rest."""
    path = storage.log_path(run_id)
    first = next(read(path, limit=1, report=lambda problem: None), None) if path.exists() else None
    if first is None:
        return False
    payload = decode(first.raw).payload
    return isinstance(payload, RunStarted) and payload.definition is not None


def end_orphan(storage: Storage, run_id: str, *, cancelled: str | None = None, failure: RunError | None = None) -> bool:
    """Writes the outcome that the host can no longer write; False where there is one, or somebody at it, after all.

    `cancelled` is the reason, where somebody asked for its end; `failure` why it failed, where it is not the host.
    """
    path = storage.log_path(run_id)
    partial = PartialMessages()
    run = outline(_watched(partial, (decode(entry.raw) for entry in read(path, report=lambda problem: None))))
    if not run.events or run.is_ended:
        return False
    if not run.attempt:
        broken = "the beginning of its log cannot be read: nobody can go on with it"
        failure = failure or RunError(code=TranscriptBroken.code, message=broken)
    # A log has one writer, and a run one outcome: whoever else is ending this run keeps us out, or has kept us out.
    with contextlib.suppress(LogBusy, RunEnded), Recorder(path, run_id) as recorder:
        storage.announce(run_id)
        for event in partial.rest():
            if isinstance(event.payload, AssistantMessage):
                recorder.append(event.payload, path=event.path, iteration=event.iteration)
        open_steps = [step for step in run.steps.values() if not step.done and not step.is_question]
        for step in reversed(open_steps):
            _end_step(recorder, step)
        recorder.append(_cancelled(run, cancelled) if cancelled is not None else _outcome(run, open_steps, failure))
        return True
    return False


def _watched(partial: PartialMessages, events: Iterable[Event]) -> Iterator[Event]:
    for event in events:
        partial.take(event)
        yield event


def _end_step(recorder: Recorder, step: Step) -> None:
    ended = CallCompleted if step.child_run_id else StepCompleted
    payload = ended(name=step.name, kind=step.kind, try_=step.try_, error="the host is gone")
    recorder.append(payload, path=step.path, iteration=step.iteration, child_run_id=step.child_run_id)


def _cancelled(run: Outline, reason: str) -> RunCompleted:
    error = RunError(code="cancelled", message=reason)
    return RunCompleted(name=run.name, kind=run.kind, status="cancelled", error=error)


def _outcome(run: Outline, open_steps: list[Step], failure: RunError | None) -> RunCompleted:
    at = f", while it was at {', '.join(step.path for step in open_steps)}" if open_steps else ""
    error = RunError(code=HOST_LOST, message=f"the process that ran this is gone{at}", retryable=True)
    return RunCompleted(name=run.name, kind=run.kind, status="failed", error=failure or error)
