"""The activity of a run: the tool call or step that the run is executing, as lists show it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from shopfloor.limits import PREVIEW_CHARS
from shopfloor.log import CallCompleted, CallStarted, Event, StepCompleted, StepStarted, ToolCall
from shopfloor.views.notes import UPDATE_SUMMARY
from shopfloor.views.timeline import preview


class Activity(msgspec.Struct, frozen=True, omit_defaults=True):
    """The newest call or step. Bounded: names and inputs are cut."""

    name: str = ""
    """The tool, the step, or the worker that the run called; empty if nothing is known."""
    preview: str = ""
    """The most descriptive part of the input, on one line."""
    path: str = ""
    """The step. The activity ends with it: a call without a result may still be executed by an agent."""


NO_ACTIVITY: Final = Activity()


def activity_fold(activity: Activity, events: Sequence[Event]) -> Activity:
    """Return the activity after the next events of its run.

    Looks from the end for the newest start: a batch may have thousands of calls, and only one of them is described.
    """
    ended_paths: list[str] = []
    for event in reversed(events):
        payload = event.payload
        if isinstance(payload, StepCompleted | CallCompleted):
            ended_paths.append(event.path)
        elif isinstance(payload, ToolCall | StepStarted | CallStarted) and _is_activity(payload):
            is_ended = any(_is_inside(event.path, path) for path in ended_paths)
            return NO_ACTIVITY if is_ended else _describe(payload, event.path)
    return NO_ACTIVITY if any(_is_inside(activity.path, path) for path in ended_paths) else activity


def _is_activity(payload: ToolCall | StepStarted | CallStarted) -> bool:
    """Return whether a call is something that the run does, and not a report about it or a request to a person."""
    return not isinstance(payload, ToolCall) or (payload.awaits is None and payload.name != UPDATE_SUMMARY)


def _describe(payload: ToolCall | StepStarted | CallStarted, path: str) -> Activity:
    name = (isinstance(payload, CallStarted) and payload.worker) or payload.name
    arguments = None if isinstance(payload, StepStarted) else payload.input
    return Activity(name[:PREVIEW_CHARS], preview(arguments) if arguments else "", path)


def _is_inside(path: str, outer: str) -> bool:
    """Return whether a path is that of the step `outer`, or of a step inside it."""
    return path == outer or path.startswith(f"{outer}.")
