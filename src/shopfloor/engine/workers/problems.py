"""Problems of worker definitions, with their location and suggestions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from shopfloor.engine.workers.definition import ForEach, Parallel, Step, While
from shopfloor.errors import InvalidWorker

if TYPE_CHECKING:
    from shopfloor.yaml_document import YamlPath


class Problem(msgspec.Struct, frozen=True):
    """A problem of a worker, with file and line."""

    file: Path
    line: int
    reason: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.reason}"


def did_you_mean(name: str, known: Iterable[str], *, none: str = "there are none") -> str:
    """Return the end of an error message: the name that was probably meant, or all known names, or `none`."""
    names = sorted(known)
    if close := closest(name, names):
        return f"did you mean `{close}`?"
    if not names:
        return none
    return f"there is {quoted_list(names)}" if len(names) == 1 else f"there are {quoted_list(names)}"


def closest(name: str, known: Iterable[str]) -> str | None:
    """Return the most similar known name, if one is similar enough."""
    import difflib

    by_lower = {candidate.lower(): candidate for candidate in known}
    found = difflib.get_close_matches(name.lower(), by_lower, n=1)
    return by_lower[found[0]] if found else None


def quoted_list(names: Iterable[str]) -> str:
    """Return the names, quoted and separated by commas."""
    return ", ".join(f"`{name}`" for name in names)


def invalid_worker(problems: list[Problem], folder: Path) -> InvalidWorker:
    """Return an error with the first problem; its hint shows the command that lists all."""
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return InvalidWorker(f"{problems[0]}{more}", hint=f"shopfloor workers check {folder}")


def walk_steps(steps: Mapping[str, Step], place: YamlPath = ("steps",)) -> Iterator[tuple[YamlPath, Step]]:
    """Yield each step with its place in `worker.yaml`, depth first, a step before its inner steps."""
    for name, step in steps.items():
        inner = (*place, name)
        yield inner, step
        if isinstance(step, ForEach | While):
            yield from walk_steps(step.steps, (*inner, "steps"))
        elif isinstance(step, Parallel):
            for branch, branch_steps in step.branches.items():
                yield from walk_steps(branch_steps, (*inner, "branches", branch))
