"""The outline of a run: what it is, how it stands, its steps and its sub-runs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from shopfloor.log import CallCompleted, CallStarted, Event, RunCompleted, RunStarted, StepCompleted, StepStarted

RunState = Literal["running", "completed", "failed", "cancelled"]


class Step(msgspec.Struct):
    """A step, or a sub-run where it has a `child_run_id`."""

    path: str
    iteration: int
    try_: int
    name: str
    kind: str
    child_run_id: str | None = None
    done: bool = False
    error: str | None = None
    duration_ms: int | None = None


class Outline(msgspec.Struct):
    run_id: str = ""
    parent_run_id: str | None = None
    root_run_id: str | None = None
    name: str = ""
    kind: str = ""
    task: str | None = None
    attempt: int = 0
    started_at: str = ""
    state: RunState = "running"
    error: str | None = None
    duration_ms: int | None = None
    events: int = 0
    steps: dict[tuple[str, int, int], Step] = {}


def outline(events: Iterable[Event]) -> Outline:
    state = Outline()
    for event in events:
        _fold(state, event)
    return state


def _fold(state: Outline, event: Event) -> None:
    state.events += 1
    match event.payload:
        case RunStarted() as started:
            _begin(state, event, started)
        case RunCompleted() as ended:
            state.state = ended.status
            state.error = ended.error and f"{ended.error.code}: {ended.error.message}"
            state.duration_ms = ended.duration_ms
        case (StepStarted() | CallStarted()) as step:
            key = (event.path, event.iteration, step.try_)
            state.steps[key] = Step(*key, name=step.name, kind=step.kind, child_run_id=event.child_run_id)
        case (StepCompleted() | CallCompleted()) as step:
            known = state.steps.get((event.path, event.iteration, step.try_))
            if known is not None:
                known.done, known.error, known.duration_ms = True, step.error, step.duration_ms
        case _:
            pass


def _begin(state: Outline, event: Event, started: RunStarted) -> None:
    state.attempt = started.attempt
    if not state.run_id:
        state.run_id = event.run_id
        state.parent_run_id = event.parent_run_id
        state.root_run_id = started.root_run_id
        state.name, state.kind, state.task = started.name, started.kind, started.task
        state.started_at = event.timestamp


def by_parent(run: Outline) -> dict[str | None, list[Step]]:
    """The steps under the path of the step that encloses them; None for those of the run itself.

    A loop's index in a path is nobody's path, and is passed over.
    """
    paths = {path for path, _, _ in run.steps}
    enclosed: dict[str | None, list[Step]] = {}
    for step in run.steps.values():
        segments = step.path.split(".")[:-1]
        while segments and ".".join(segments) not in paths:
            segments.pop()
        enclosed.setdefault(".".join(segments) or None, []).append(step)
    return enclosed
