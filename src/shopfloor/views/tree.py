"""The execution tree of a run and its sub-runs, of any depth, built from the outlines of the runs alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from shopfloor.limits import TREE_SIBLINGS
from shopfloor.views.outline import Outline, Step, steps_by_parent

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
