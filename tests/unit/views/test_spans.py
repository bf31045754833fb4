"""The spans of a run: what took how long, and what still goes on."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.contract.folding import golden

from shopfloor.limits import SPANS_ENDED, SPANS_OPEN
from shopfloor.log import (
    Awaits,
    CallCompleted,
    CallStarted,
    Event,
    Payload,
    RunCompleted,
    RunStarted,
    StepCompleted,
    StepStarted,
    ToolCall,
    ToolResult,
    new_run_id,
    timestamp_of,
)
from shopfloor.views import Span, Spans, spans_fold

CHILD = new_run_id()


def log_of(*payloads: Payload, **place: Any) -> list[Event]:
    """An event each second."""
    return [
        Event(
            seq=seq,
            run_id="r",
            type=payload.event_type,
            timestamp=timestamp_of(seq * 1000),
            payload=payload,
            child_run_id=CHILD if isinstance(payload, CallStarted | CallCompleted) else None,
            **{"path": "s", "iteration": 0} | place,
        )
        for seq, payload in enumerate(payloads, 1)
    ]


def call(call_id: str) -> ToolCall:
    return ToolCall(name="Bash", call_id=call_id, input={}, output=None, fidelity="router")


def result(call_id: str, **more: Any) -> ToolResult:
    return ToolResult(name="Bash", call_id=call_id, input=None, output="", fidelity="router", **more)


def test_a_call_that_waits_says_so_also_when_it_has_ended() -> None:
    question = msgspec.structs.replace(call("q"), awaits=Awaits(kind="question"))
    state = spans_of(BEGUN, question, call("c"), result("c"))
    assert [(span.seq, span.waits) for span in state.spans] == [(2, True), (3, False)]
    state = spans_of(BEGUN, question, result("q"), DONE)
    assert [(span.end_seq, span.waits) for span in state.spans] == [(3, True)]


def spans_of(*payloads: Payload) -> Spans:
    return spans_fold(Spans(), log_of(*payloads))


BEGUN = RunStarted(name="w", kind="worker", attempt=1, host="h")
DONE = RunCompleted(name="w", kind="worker", status="completed")


def test_steps_calls_and_sub_runs_are_spans() -> None:
    state = spans_of(
        BEGUN,
        StepStarted(name="Build", kind="command", try_=1),
        call("c"),
        result("c", duration_ms=420),
        StepCompleted(name="Build", kind="command", try_=1, error="exit code 1"),
        CallStarted(name="Review", kind="call_workflow", try_=1, worker="reviewer"),
        CallCompleted(name="Review", kind="call_workflow", try_=1),
        DONE,
    )
    assert (state.started_at, state.ended_at) == (timestamp_of(1000), timestamp_of(8000))
    assert (state.dropped, state.last_seq) == (0, 8)
    at = {seq: timestamp_of(seq * 1000) for seq in range(9)}
    common: dict[str, Any] = {"path": "s", "child_run_id": None}
    assert state.spans == [
        Span(
            seq=2, end_seq=5, kind="step", name="Build", started_at=at[2], ended_at=at[5], duration_ms=3000, error=True,
            **common,
        ),
        Span(
            seq=3, end_seq=4, kind="tool", name="Bash", started_at=at[3], ended_at=at[4], duration_ms=420, error=False,
            **common,
        ),
        Span(
            seq=6, end_seq=7, kind="run", name="reviewer", started_at=at[6], ended_at=at[7], duration_ms=1000,
            error=False, **dict(common, child_run_id=CHILD),
        ),
    ]  # fmt: skip


def test_what_goes_on_has_no_end() -> None:
    (span,) = spans_of(BEGUN, call("c")).spans
    assert (span.end_seq, span.ended_at, span.duration_ms, span.error) == (None, None, None, False)


def test_tries_and_rounds_of_a_step_are_told_apart() -> None:
    first, second = StepStarted(name="s", kind="x", try_=1), StepStarted(name="s", kind="x", try_=2)
    failed = StepCompleted(name="s", kind="x", try_=1, error="no")
    one, other = spans_of(first, failed, second).spans
    assert (one.end_seq, one.error, other.end_seq) == (2, True, None)
    events = [*log_of(first), *log_of(second, first, iteration=1)[1:]]
    assert [span.seq for span in spans_fold(Spans(), events).spans] == [1, 2]


def test_an_end_without_a_beginning_is_nothing() -> None:
    state = spans_of(result("c"), StepCompleted(name="s", kind="x", try_=1))
    assert (state.spans, state.dropped) == ([], 0)


def test_only_the_longest_that_have_ended_are_kept() -> None:
    payloads: list[Payload] = []
    for number in range(SPANS_ENDED + 30):
        payloads += [call(str(number)), result(str(number), duration_ms=number)]
    state = spans_of(*payloads)
    assert (len(state.spans), state.dropped) == (SPANS_ENDED, 30)
    assert min(span.duration_ms or 0 for span in state.spans) == 30
    assert [span.seq for span in state.spans] == sorted(span.seq for span in state.spans)


def test_of_those_that_took_the_same_time_the_first_are_kept() -> None:
    payloads: list[Payload] = []
    for number in range(SPANS_ENDED + 3):
        payloads += [call(str(number)), result(str(number), duration_ms=1)]
    assert spans_of(*payloads).spans[-1].seq == 2 * SPANS_ENDED - 1


def test_of_those_that_are_open_the_newest_are_kept() -> None:
    state = spans_of(*[call(str(number)) for number in range(SPANS_OPEN + 5)])
    assert (len(state.spans), state.dropped, state.spans[0].seq) == (SPANS_OPEN, 5, 6)
    after = spans_fold(state, log_of(*[result("0")] * 3))
    assert (len(after.spans), after.dropped) == (SPANS_OPEN, 5)


def test_a_call_that_is_made_twice_under_one_id_is_the_newer_one() -> None:
    state = spans_of(call("c"), call("c"), result("c"))
    assert ([(span.seq, span.end_seq) for span in state.spans], state.dropped) == ([(2, 3)], 1)


@pytest.mark.parametrize("name", ["command", "claude-code", "parent"])
def test_the_spans_of_whole_runs_have_all_ended(name: str) -> None:
    events = golden(name)
    state = spans_fold(Spans(), events)
    assert state.spans
    assert [span for span in state.spans if span.ended_at is None] == []
    assert (state.started_at, state.ended_at) == (events[0].timestamp, events[-1].timestamp)
