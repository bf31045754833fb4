"""A wait for a definition in the views: it holds the whole run, even with active branches."""

from __future__ import annotations

import pytest
from tests.sample_events import RUN_ID, TIMESTAMP

from shopfloor.cli.pending_calls import pending_call_lines
from shopfloor.log import Awaits, Event, Payload, RunStarted, StepStarted, ToolCall, ToolResult
from shopfloor.views import Notice, RunRow, StreamState, finish, row_fold, stream_step

STARTED = RunStarted(name="asks", kind="worker", attempt=1, host="h")
QUESTION = ToolCall(
    name="ask",
    call_id="q",
    input={"question": "Well?"},
    output=None,
    fidelity="router",
    awaits=Awaits(kind="question", until="2031-01-01T00:00:00.000Z"),
)
ANSWER = ToolResult(name="ask", call_id="q", input=None, output="yes", fidelity="router")
DEFINITION_WAIT = ToolCall(
    name="definition_changed",
    call_id="d",
    input={"worker": "asks", "functions": ["note"], "message": "`note` of the worker `asks` changed"},
    output=None,
    fidelity="router",
    awaits=Awaits(kind="definition_changed"),
)
DEFINITION_RESTORED = ToolResult(name="definition_changed", call_id="d", input=None, output=None, fidelity="router")
STEP = StepStarted(name="Do", kind="command", try_=1)
BRANCHES = StepStarted(name="Both", kind="parallel", try_=1, branches=["one", "two"])
PATHS = {id(STEP): "do", id(BRANCHES): "both", id(QUESTION): "ask", id(ANSWER): "ask"}


def log(*payloads: Payload) -> list[Event]:
    return [
        Event(
            seq=seq,
            run_id=RUN_ID,
            type=payload.event_type,
            path=PATHS.get(id(payload), ""),
            iteration=0,
            timestamp=TIMESTAMP,
            payload=payload,
        )
        for seq, payload in enumerate(payloads, start=1)
    ]


@pytest.mark.req("TR-71")
@pytest.mark.parametrize("before", [[], [QUESTION], [STEP], [BRANCHES], [STEP, QUESTION]])
def test_a_run_that_waits_for_its_definition_waits_even_with_active_branches(before: list[Payload]):
    row = row_fold(RunRow(), log(STARTED, *before, STARTED, DEFINITION_WAIT))
    assert row.status == "waiting"
    assert row.waits_for is not None
    assert row.waits_for[0] == "definition_changed"
    # The run needs no host, and a host may check at any time whether the definition is restored.
    assert (row.outside, row.wake_at) == (True, "")


@pytest.mark.req("TR-71")
def test_an_answer_during_the_wait_changes_nothing_and_the_end_of_the_wait_restores_the_state():
    answered = row_fold(RunRow(), log(STARTED, QUESTION, DEFINITION_WAIT, ANSWER))
    assert (answered.status, answered.waits_for, answered.outside) == ("waiting", ["definition_changed"], True)
    back = row_fold(RunRow(), log(STARTED, QUESTION, DEFINITION_WAIT, STARTED, DEFINITION_RESTORED))
    assert (back.status, back.waits_for) == ("waiting", ["question"])
    assert back.wake_at == "2031-01-01T00:00:00.000Z"


@pytest.mark.req("TR-71")
def test_a_stream_has_the_reason_and_finishes_for_now():
    state = StreamState()
    stream_events = []
    for event in log(STARTED, QUESTION, ANSWER, STARTED, DEFINITION_WAIT):
        state, stream_events = stream_step(state, event)
    assert stream_events == [
        Notice(
            kind="definition_changed",
            message="waits for its definition: `note` of the worker `asks` changed; restore it, or cancel the run",
        ),
        finish("waiting"),
    ]


@pytest.mark.req("TR-71")
def test_the_command_line_has_the_reason_and_no_command_to_answer():
    call = {"call_id": "d", "kind": "definition_changed", "name": "definition_changed", "input": DEFINITION_WAIT.input}
    assert list(pending_call_lines(RUN_ID, [call])) == [
        "waits for its definition: `note` of the worker `asks` changed; restore it, or cancel the run"
    ]
