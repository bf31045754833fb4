"""What is wrong with a worker, and where."""

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
    file: Path
    line: int
    reason: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.reason}"


def did_you_mean(said: str, known: Iterable[str]) -> str:
    """The end of a sentence that says what could have been meant, or what there is."""
    names = sorted(known)
    if close := closest(said, names):
        return f"did you mean `{close}`?"
    if not names:
        return "there are none"
    return f"there is {quoted_list(names)}" if len(names) == 1 else f"there are {quoted_list(names)}"


def closest(said: str, known: Iterable[str]) -> str | None:
    import difflib

    by_lower = {name.lower(): name for name in known}
    found = difflib.get_close_matches(said.lower(), by_lower, n=1)
    return by_lower[found[0]] if found else None


def quoted_list(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def invalid_worker(problems: list[Problem], folder: Path) -> InvalidWorker:
    """The first of them, and where to read the others."""
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return InvalidWorker(f"{problems[0]}{more}", hint=f"shopfloor workers check {folder}")


def walk(steps: Mapping[str, Step], place: YamlPath = ("steps",)) -> Iterator[tuple[YamlPath, Step]]:
    """Depth first, a step before those inside of it."""
    for name, step in steps.items():
        at = (*place, name)
        yield at, step
        if isinstance(step, ForEach | While):
            yield from walk(step.steps, (*at, "steps"))
        elif isinstance(step, Parallel):
            for branch, inside in step.branches.items():
                yield from walk(inside, (*at, "branches", branch))
