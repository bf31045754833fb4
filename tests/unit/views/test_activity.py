"""The activity of a run: its newest call or step, until the step ends."""

from __future__ import annotations

import pytest
from tests.sample_events import RUN_ID, TIMESTAMP

from shopfloor.log import (
    Awaits,
    CallStarted,
    Event,
    Payload,
    RunCompleted,
    RunStarted,
    StepCompleted,
    StepStarted,
    ToolCall,
    ToolResult,
)
from shopfloor.views import Activity, RunRow, row_fold

STARTED = RunStarted(name="w", kind="worker", attempt=1, host="h")
ENDED = RunCompleted(name="w", kind="worker", status="completed")


def step(name: str) -> StepStarted:
    return StepStarted(name=name, kind="command", try_=1)


def step_end(name: str) -> StepCompleted:
    return StepCompleted(name=name, kind="command", try_=1)


def call(name: str = "Bash", **fields: object) -> ToolCall:
    arguments = fields.pop("input", {"command": "go test\n ./..."})
    awaits = Awaits(kind="question") if fields else None
    return ToolCall(name=name, call_id="c", input=arguments, output=None, fidelity="router", awaits=awaits)


RESULT = ToolResult(name="Bash", call_id="c", input=None, output="ok", fidelity="router")
BASH = Activity("Bash", "go test ./...", "build")


@pytest.mark.req("WT-93")
@pytest.mark.parametrize(
    ("payloads", "expected"),
    [
        ([], Activity()),
        ([("build", step("Build"))], Activity("Build", "", "build")),
        ([("build", step("Build")), ("build", call())], BASH),
        ([("build", step("Build")), ("build", call()), ("build", RESULT)], BASH),
        ([("build", call()), ("test", step_end("Test"))], BASH),
        ([("build", call()), ("build", step_end("Build"))], Activity()),
        ([("build.1", call()), ("build", step_end("Build"))], Activity()),
        ([("builder", call()), ("build", step_end("Build"))], Activity("Bash", "go test ./...", "builder")),
        ([("build", call()), ("build", call("update_summary"))], BASH),
        ([("build", call()), ("build", call("ask", waits=True))], BASH),
        ([("sub", CallStarted(name="S", kind="worker", try_=1, worker="child"))], Activity("child", "", "sub")),
        ([("build", call()), ("", ENDED)], Activity()),
    ],
)
def test_the_activity_is_the_same_however_the_events_are_batched(
    payloads: list[tuple[str, Payload]], expected: Activity
) -> None:
    events = [
        Event(seq=seq, run_id=RUN_ID, type=one.event_type, path=path, iteration=0, timestamp=TIMESTAMP, payload=one)
        for seq, (path, one) in enumerate([("", STARTED), *payloads], start=1)
    ]
    assert row_fold(RunRow(), events).activity == expected
    for size in (1, 2):
        row = RunRow()
        for first in range(0, len(events), size):
            row = row_fold(row, events[first : first + size])
        assert row.activity == expected


def test_an_activity_is_bounded() -> None:
    events = [
        Event(seq=1, run_id=RUN_ID, type=one.event_type, path="", iteration=0, timestamp=TIMESTAMP, payload=one)
        for one in (STARTED, call("x" * 1000, input={"command": "y" * 100_000}))
    ]
    activity = row_fold(RunRow(), events).activity
    assert (len(activity.name), len(activity.preview)) == (200, 200)
