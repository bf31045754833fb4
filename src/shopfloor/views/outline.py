"""The outline of a run: what it is, how it stands, its steps and its sub-runs."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from shopfloor.log import (
    CallCompleted,
    CallStarted,
    Event,
    RunCompleted,
    RunStarted,
    StepCompleted,
    StepStarted,
    ToolCall,
    ToolResult,
)
from shopfloor.views.row import RunState
from shopfloor.views.wait_state import DEFINITION_CHANGED, NO_WAITS, WaitState, describe_pending_call, wait_state_step

_QUESTION_KIND = "ask"


class Step(msgspec.Struct):
    """A step, or a sub-run where it has a `child_run_id`, or a question that no step asks."""

    path: str
    iteration: int
    try_: int
    name: str
    kind: str
    child_run_id: str | None = None
    done: bool = False
    error: str | None = None
    duration_ms: int | None = None
    asks: str | None = None
    """What it waits for somebody to give; of a question, what was asked."""
    is_question: bool = False
    """True for a question that no step asks: the log has no start of it, and no end."""


class Outline(msgspec.Struct):
    run_id: str = ""
    parent_run_id: str | None = None
    root_run_id: str | None = None
    name: str = ""
    kind: str = ""
    task: str | None = None
    attempt: int = 0
    host: str | None = None
    started_at: str = ""
    is_ended: bool = False
    outcome: RunState = "running"
    error: str | None = None
    duration_ms: int | None = None
    events: int = 0
    steps: dict[tuple[str, int, int], Step] = {}
    waits: WaitState = NO_WAITS
    open_calls: dict[str, Step] = {}
    """The steps whose calls wait for somebody outside, by call."""

    @property
    def state(self) -> RunState:
        # Without its beginning, as where that line is damaged, nobody can answer it or go on with it.
        return self.outcome if self.is_ended else "waiting" if self.waits.is_waiting and self.attempt else "running"

    def state_of(self, step: Step, called: Outline | None = None) -> RunState:
        """The state of a step. A step that called a run, given as `called`, is in the state of that run."""
        if step.done:
            return "failed" if step.error else "completed"
        if self.is_ended:
            return "cancelled"
        if called is not None and not called.is_ended:
            return called.state
        return "waiting" if step.asks is not None else "running"


def outline(events: Iterable[Event], state: Outline | None = None) -> Outline:
    """Fold events into a new outline, or into `state`, that of the events before them."""
    state = state or Outline()
    for event in events:
        _fold(state, event)
    return state


def _fold(state: Outline, event: Event) -> None:
    state.events += 1
    match event.payload:
        case RunStarted() as started:
            _begin(state, event, started)
        case RunCompleted() as ended:
            state.is_ended, state.outcome = True, ended.status
            state.error = ended.error and f"{ended.error.code}: {ended.error.message}"
            state.duration_ms = ended.duration_ms
        case (StepStarted() | CallStarted()) as step:
            key = (event.path, event.iteration, step.try_)
            state.steps[key] = Step(*key, name=step.name, kind=step.kind, child_run_id=event.child_run_id)
        case (StepCompleted() | CallCompleted()) as step:
            known = state.steps.get((event.path, event.iteration, step.try_))
            if known is not None:
                known.done, known.error, known.duration_ms, known.asks = True, step.error, step.duration_ms, None
        case ToolCall(awaits=awaits) as call if awaits is not None and awaits.kind != DEFINITION_CHANGED:
            _wait(state, event, call, describe_pending_call(call.name, awaits.kind, call.input))
        case ToolResult(call_id=call_id) as result if call_id in state.open_calls:
            _answer(state.open_calls.pop(call_id), result)
        case _:
            pass
    state.waits = wait_state_step(state.waits, event)


def _wait(state: Outline, event: Event, call: ToolCall, asks: str) -> None:
    """The call belongs to the open step at its place; a question outside of any step is a line of its own."""
    step = next((one for one in _steps_at(state, event) if not one.done), None)
    if step is None:
        key = (event.path, event.iteration, 1)
        step = state.steps[key] = Step(*key, name=call.name, kind=_QUESTION_KIND, is_question=True)
    step.asks = asks
    state.open_calls[call.call_id] = step


def _answer(step: Step, result: ToolResult) -> None:
    if step.is_question:
        step.done, step.error, step.duration_ms = True, result.error, result.duration_ms
    else:
        step.asks = None


def _steps_at(state: Outline, event: Event) -> list[Step]:
    here = (event.path, event.iteration)
    return [step for (*place, _), step in reversed(state.steps.items()) if tuple(place) == here]


def _begin(state: Outline, event: Event, started: RunStarted) -> None:
    state.attempt, state.host = started.attempt, started.host
    if not state.run_id:
        state.run_id = event.run_id
        state.parent_run_id = event.parent_run_id
        state.root_run_id = started.root_run_id
        state.name, state.kind, state.task = started.name, started.kind, started.task
        state.started_at = event.timestamp


def steps_by_parent(run: Outline) -> dict[str | None, list[Step]]:
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
