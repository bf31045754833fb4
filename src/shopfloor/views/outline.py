"""The outline of a run (its identity, its state, its steps and its sub-runs), and the execution tree of outlines."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import msgspec

from shopfloor.limits import TREE_SIBLINGS
from shopfloor.log import (
    BasedOn,
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
    """A step; a sub-run, if it has a `child_run_id`; or a question that is asked outside of any step."""

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
    """What the step waits for, on one line; for a question, its text."""
    is_question: bool = False
    """True for a question outside of any step: the log has no start and no end event for it."""


class Outline(msgspec.Struct):
    """The state of the fold: one run without its messages."""

    run_id: str = ""
    parent_run_id: str | None = None
    based_on: BasedOn | None = None
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
    """The steps whose calls wait for an answer from outside, by call id."""

    @property
    def state(self) -> RunState:
        """The state of the run."""
        # A run whose first line is damaged (attempt 0) can be neither answered nor resumed, so it is not `waiting`.
        return self.outcome if self.is_ended else "waiting" if self.waits.is_waiting and self.attempt else "running"

    def state_of(self, step: Step, called: Outline | None = None) -> RunState:
        """Return the state of a step. A step that called a run, passed as `called`, has the state of that run."""
        if step.done:
            return "failed" if step.error else "completed"
        if self.is_ended:
            return "cancelled"
        if called is not None and not called.is_ended:
            return called.state
        return "waiting" if step.asks is not None else "running"


def outline(events: Iterable[Event], state: Outline | None = None) -> Outline:
    """Fold events into a new outline, or into `state`, the outline of the events before them."""
    state = state or Outline()
    for event in events:
        _fold(state, event)
    return state


def _fold(state: Outline, event: Event) -> None:
    state.events += 1
    match event.payload:
        case RunStarted() as started:
            _start_run(state, event, started)
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
            _open_call(state, event, call, describe_pending_call(call.name, awaits.kind, call.input))
        case ToolResult(call_id=call_id) as result if call_id in state.open_calls:
            _close_call(state.open_calls.pop(call_id), result)
        case _:
            pass
    state.waits = wait_state_step(state.waits, event)


def _open_call(state: Outline, event: Event, call: ToolCall, asks: str) -> None:
    """Assign a pending call to the open step at its path; a question outside of any step becomes a `Step` itself."""
    step = next((candidate for candidate in _steps_at(state, event) if not candidate.done), None)
    if step is None:
        key = (event.path, event.iteration, 1)
        step = state.steps[key] = Step(*key, name=call.name, kind=_QUESTION_KIND, is_question=True)
    step.asks = asks
    state.open_calls[call.call_id] = step


def _close_call(step: Step, result: ToolResult) -> None:
    if step.is_question:
        step.done, step.error, step.duration_ms = True, result.error, result.duration_ms
    else:
        step.asks = None


def _steps_at(state: Outline, event: Event) -> list[Step]:
    position = (event.path, event.iteration)
    return [step for (path, iteration, _), step in reversed(state.steps.items()) if (path, iteration) == position]


def _start_run(state: Outline, event: Event, started: RunStarted) -> None:
    state.attempt, state.host = started.attempt, started.host
    if not state.run_id:
        state.run_id = event.run_id
        state.parent_run_id = event.parent_run_id
        state.root_run_id = started.root_run_id
        state.based_on = started.based_on
        state.name, state.kind, state.task = started.name, started.kind, started.task
        state.started_at = event.timestamp


def steps_by_parent(run: Outline) -> dict[str | None, list[Step]]:
    """Return the steps by the path of the step that encloses them; by None for the steps of the run itself.

    A loop's index in a path belongs to no step and is skipped.
    """
    paths = {path for path, _, _ in run.steps}
    enclosed: dict[str | None, list[Step]] = {}
    for step in run.steps.values():
        segments = step.path.split(".")[:-1]
        while segments and ".".join(segments) not in paths:
            segments.pop()
        enclosed.setdefault(".".join(segments) or None, []).append(step)
    return enclosed


LoadOutline = Callable[[str], Outline | None]
"""Returns a run's outline; None if the run has no transcript."""


class TreeRow(msgspec.Struct, frozen=True):
    """A line of the tree. `guides` has True for each level whose branch continues below."""

    guides: tuple[bool, ...]
    owner: str = ""
    """The id of the run that the step belongs to."""
    step: Step | None = None
    run: Outline | None = None
    missing_run_id: str | None = None
    """The id of a sub-run whose transcript is missing."""
    repeated_run_id: str | None = None
    """The id of a run that the tree already has: a broken link, not followed."""
    left_out: int = 0
    """The number of siblings that are not shown here."""


class _PendingStep(msgspec.Struct, frozen=True):
    guides: tuple[bool, ...]
    owner: str
    step: Step
    enclosed: dict[str | None, list[Step]]


def tree(run_id: str, load: LoadOutline, *, siblings: int | None = TREE_SIBLINGS) -> Iterator[TreeRow]:
    """Yield the rows from the top down. Not recursive: a tree may be deeper than Python's stack."""
    root = load(run_id)
    if root is None:
        yield TreeRow((), missing_run_id=run_id)
        return
    yield TreeRow((), run=root)
    seen = {run_id, root.run_id}
    stack: list[_PendingStep | TreeRow] = _branches((), root.run_id, steps_by_parent(root), None, siblings)
    while stack:
        pending = stack.pop()
        if isinstance(pending, TreeRow):
            yield pending
            continue
        step, guides = pending.step, pending.guides
        child_id = step.child_run_id
        if child_id in seen:
            yield TreeRow(guides, pending.owner, step=step, repeated_run_id=child_id)
            continue
        child = load(child_id) if child_id else None
        missing_run_id = child_id if child_id and child is None else None
        yield TreeRow(guides, pending.owner, step=step, run=child, missing_run_id=missing_run_id)
        if child is not None and child_id is not None:
            seen.add(child_id)
            stack.extend(_branches(guides, child_id, steps_by_parent(child), None, siblings))
        stack.extend(_branches(guides, pending.owner, pending.enclosed, step.path, siblings))


def _branches(
    guides: tuple[bool, ...],
    owner: str,
    enclosed: dict[str | None, list[Step]],
    path: str | None,
    limit: int | None,
) -> list[_PendingStep | TreeRow]:
    """Return the branches below a row in stack order, the last first. Tries of one step share their inner steps."""
    steps = enclosed.pop(path, [])
    left_out = max(0, len(steps) - limit) if limit else 0
    shown = steps[: len(steps) - left_out]
    branches: list[_PendingStep | TreeRow] = [_PendingStep((*guides, True), owner, step, enclosed) for step in shown]
    if left_out:
        branches.append(TreeRow((*guides, False), left_out=left_out))
    elif shown:
        branches[-1] = _PendingStep((*guides, False), owner, shown[-1], enclosed)
    return branches[::-1]
