"""The progress of a run, from its log."""

from __future__ import annotations

from functools import reduce
from typing import Any

import pytest

from shopfloor.log import Event, Payload, RunCompleted, RunStarted, StepCompleted, ToolCall, new_run_id
from shopfloor.views import RunRow, row_fold

STEPS = {"First": {}, "Second": {}, "Third": {}, "Fourth": {}}


def started(steps: dict[str, Any] | None = None, attempt: int = 1) -> tuple[str, Payload]:
    definition = {"slug": "w", "steps": steps} if steps is not None else {"slug": "w", "function": "m:f"}
    return "", RunStarted(name="w", kind="worker", attempt=attempt, host="h", definition=definition)


def done(path: str, error: str | None = None) -> tuple[str, Payload]:
    return path, StepCompleted(name=path, kind="command", try_=1, error=error)


def reported(arguments: Any) -> tuple[str, Payload]:
    return "s", ToolCall(name="update_summary", call_id="c", input=arguments, output=None, fidelity="router")


def ended(status: Any) -> tuple[str, Payload]:
    return "", RunCompleted(name="w", kind="worker", status=status)


def progress(*parts: tuple[str, Payload]) -> float | None:
    run_id = new_run_id()
    events = [
        Event(
            seq=seq,
            run_id=run_id,
            type=payload.event_type,
            path=path,
            iteration=0,
            timestamp="2026-01-01T00:00:00.000Z",
            payload=payload,
        )
        for seq, (path, payload) in enumerate(parts, 1)
    ]
    # One event at a time, as a live run is read.
    return reduce(lambda row, event: row_fold(row, [event]), events, RunRow()).progress.fraction


@pytest.mark.req("FE-58")
@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ([started(STEPS)], 0.0),
        ([started(STEPS), done("first"), done("second.0.inner")], 0.25),
        ([started(STEPS), done("first", error="exit code 1"), done("first")], 0.25),
        ([started(STEPS), done("first"), started(STEPS, attempt=2), done("second")], 0.5),
        ([started(STEPS), done("first"), ended("completed")], 1.0),
        ([started(STEPS), done("first"), ended("failed")], 0.25),
        ([started({"Only": {}})], None),
        ([started({"Only": {}}), done("only"), ended("completed")], None),
        ([started(), done("any")], None),
        ([started(), reported({"summary": "x", "progress": 0.4})], 0.4),
        ([started(STEPS), done("first"), reported({"summary": "x", "progress": 0.9}), done("second")], 0.9),
        ([started(STEPS), reported({"summary": "x"})], 0.0),
    ],
)
def test_progress_is_what_is_reported_or_else_the_completed_steps(
    parts: list[tuple[str, Payload]], expected: float | None
) -> None:
    assert progress(*parts) == expected


@pytest.mark.parametrize("value", [-0.1, 1.1, "0.5", True, None, float("nan"), [0.5]])
def test_a_report_that_is_no_fraction_is_ignored(value: object) -> None:
    assert progress(started(), reported({"summary": "x", "progress": value})) is None
    assert progress(started(), reported(value)) is None
