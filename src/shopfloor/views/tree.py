"""The execution tree over sub-runs of any depth, from the outlines of the runs alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from shopfloor.limits import TREE_SIBLINGS
from shopfloor.views.outline import Outline, Step, steps_by_parent

LoadOutline = Callable[[str], Outline | None]
"""Gives a run's outline; None where there is no transcript of it."""


class TreeRow(msgspec.Struct, frozen=True):
    """A line of the tree. `guides` says of each level whether its branch goes on below."""

    guides: tuple[bool, ...]
    owner: str = ""
    """The id of the run that the step belongs to."""
    step: Step | None = None
    run: Outline | None = None
    missing_run_id: str | None = None
    """The id of a sub-run whose transcript is not there."""
    repeated_run_id: str | None = None
    """The id of a run that stands above already: a broken link, not followed."""
    left_out: int = 0
    """How many siblings are not shown here."""


class _Todo(msgspec.Struct, frozen=True):
    guides: tuple[bool, ...]
    owner: str
    step: Step
    enclosed: dict[str | None, list[Step]]


def tree(run_id: str, load: LoadOutline, *, siblings: int | None = TREE_SIBLINGS) -> Iterator[TreeRow]:
    """The rows from the top down. No recursion: a tree may be deeper than Python's stack."""
    root = load(run_id)
    if root is None:
        yield TreeRow((), missing_run_id=run_id)
        return
    yield TreeRow((), run=root)
    seen = {run_id, root.run_id}
    stack: list[_Todo | TreeRow] = _branches((), root.run_id, steps_by_parent(root), None, siblings)
    while stack:
        todo = stack.pop()
        if isinstance(todo, TreeRow):
            yield todo
            continue
        step, guides = todo.step, todo.guides
        child_id = step.child_run_id
        if child_id in seen:
            yield TreeRow(guides, todo.owner, step=step, repeated_run_id=child_id)
            continue
        child = load(child_id) if child_id else None
        missing_run_id = child_id if child_id and child is None else None
        yield TreeRow(guides, todo.owner, step=step, run=child, missing_run_id=missing_run_id)
        if child is not None and child_id is not None:
            seen.add(child_id)
            stack.extend(_branches(guides, child_id, steps_by_parent(child), None, siblings))
        stack.extend(_branches(guides, todo.owner, todo.enclosed, step.path, siblings))


def _branches(
    guides: tuple[bool, ...],
    owner: str,
    enclosed: dict[str | None, list[Step]],
    path: str | None,
    most: int | None,
) -> list[_Todo | TreeRow]:
    """What hangs below a row, last first, as a stack wants it. Tries of one step share what is below it."""
    steps = enclosed.pop(path, [])
    left_out = max(0, len(steps) - most) if most else 0
    shown = steps[: len(steps) - left_out]
    branches: list[_Todo | TreeRow] = [_Todo((*guides, True), owner, step, enclosed) for step in shown]
    if left_out:
        branches.append(TreeRow((*guides, False), left_out=left_out))
    elif shown:
        branches[-1] = _Todo((*guides, False), owner, shown[-1], enclosed)
    return branches[::-1]
