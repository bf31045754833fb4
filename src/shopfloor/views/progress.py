"""The progress of a run: what its worker reports, or else its completed steps of the steps that its definition has."""

from __future__ import annotations

from typing import Any, Final, cast

import msgspec
from msgspec.structs import replace

from shopfloor.log import CallCompleted, Event, RunCompleted, RunStarted, StepCompleted, ToolCall
from shopfloor.views.notes import UPDATE_SUMMARY

_FEWEST_STEPS: Final = 2
"""With fewer steps their number says nothing: it would be 0 until the end."""


class Progress(msgspec.Struct, frozen=True, omit_defaults=True):
    """The state of the fold."""

    steps: int = 0
    """The number of steps of the definition, without those inside other steps; 0 if unknown."""
    done: int = 0
    """How many of them are completed."""
    reported: float | None = None
    """What the worker reported last, from 0 to 1."""

    @property
    def fraction(self) -> float | None:
        """The progress from 0 to 1; None if it is unknown."""
        if self.reported is not None:
            return self.reported
        return self.done / self.steps if self.steps >= _FEWEST_STEPS else None


NO_PROGRESS: Final = Progress()


def progress_step(progress: Progress, event: Event) -> Progress:
    """Return the progress after the next event of its run."""
    match event.payload:
        case StepCompleted(error=None) | CallCompleted(error=None) if event.path and "." not in event.path:
            return replace(progress, done=min(progress.done + 1, progress.steps))
        case ToolCall(name=name, input=arguments) if name == UPDATE_SUMMARY:
            reported = valid_fraction(_field(arguments, "progress"))
            return progress if reported is None else replace(progress, reported=reported)
        case RunStarted(definition=definition) if progress == NO_PROGRESS:
            steps = _field(definition, "steps")
            return Progress(steps=len(cast("dict[str, Any]", steps))) if isinstance(steps, dict) else progress
        case RunCompleted(status="completed") if progress.fraction is not None:
            return replace(progress, reported=1.0)
        case _:
            return progress


def _field(value: Any, name: str) -> Any:
    return cast("dict[str, Any]", value).get(name) if isinstance(value, dict) else None


def valid_fraction(value: Any) -> float | None:
    """Return a reported value, if it is a number from 0 to 1."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and 0 <= value <= 1 else None
