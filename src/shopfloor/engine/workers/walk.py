"""Every step of a definition, with its place in `worker.yaml`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from shopfloor.engine.workers.definition import ForEach, Parallel, Step, While
from shopfloor.yaml_document import Place


def walk(steps: Mapping[str, Step], place: Place = ("steps",)) -> Iterator[tuple[Place, Step]]:
    """Depth first, a step before those inside of it."""
    for name, step in steps.items():
        at = (*place, name)
        yield at, step
        if isinstance(step, ForEach | While):
            yield from walk(step.steps, (*at, "steps"))
        elif isinstance(step, Parallel):
            for branch, inside in step.branches.items():
                yield from walk(inside, (*at, "branches", branch))
