"""The spans of a run: ended and open."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from msgspec.structs import replace
from tests.contract.view_changes import golden

from shopfloor.limits import SPANS_ENDED, SPANS_OPEN
from shopfloor.log import (
    AssistantMessage,
    Awaits,
    CallCompleted,
    CallStarted,
    Event,
    FileChange,
    Payload,
    RunCompleted,
    RunStarted,
    StepCompleted,
    StepStarted,
    ToolCall,
    ToolResult,
    Usage,
    format_timestamp,
    new_run_id,
)
from shopfloor.views import Span, Spans, spans_fold

CHILD = new_run_id()


def log_of(*payloads: Payload, **place: Any) -> list[Event]:
    """Return the events of a log, one per second."""
    return [
        Event(
            seq=seq,
            run_id="r",
            type=payload.event_type,
            timestamp=format_timestamp(seq * 1000),
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


def test_figures_count_changed_files_failed_calls_and_the_context() -> None:
    change = FileChange(path="a.py", action="modify", lines_added=5, lines_removed=2)
    message = AssistantMessage(blocks=[], usage=Usage(input=10, output=99, cache_read=300, cache_write=20))
    state = spans_of(
        RUN_STARTED,
        call("a"),
        result("a", files=[change, replace(change, path="b.py", lines_added=None)]),
        call("b"),
        result("b", files=[change], error="no"),
        call("c"),
        result("c", exit_code=3),
        message,
        AssistantMessage(blocks=[]),
    )
    figures = state.figures
    assert figures.files == {"a.py", "b.py"}
    assert (figures.lines_added, figures.lines_removed) == (10, 6)
    assert (figures.calls_failed, figures.context_tokens) == (2, 330)
    assert Spans().figures.context_tokens is None


def test_a_waiting_call_is_marked_also_after_its_end() -> None:
    question = replace(call("q"), awaits=Awaits(kind="question"))
    state = spans_of(RUN_STARTED, question, call("c"), result("c"))
    assert [(span.seq, span.waits) for span in state.spans] == [(2, True), (3, False)]
    state = spans_of(RUN_STARTED, question, result("q"), DONE)
    assert [(span.end_seq, span.waits) for span in state.spans] == [(3, True)]


def spans_of(*payloads: Payload) -> Spans:
    return spans_fold(Spans(), log_of(*payloads))


RUN_STARTED = RunStarted(name="w", kind="worker", attempt=1, host="h")
DONE = RunCompleted(name="w", kind="worker", status="completed")


def test_steps_calls_and_sub_runs_are_spans() -> None:
    state = spans_of(
        RUN_STARTED,
        StepStarted(name="Build", kind="command", try_=1),
        call("c"),
        result("c", duration_ms=420),
        StepCompleted(name="Build", kind="command", try_=1, error="exit code 1"),
        CallStarted(name="Review", kind="call_workflow", try_=1, worker="reviewer"),
        CallCompleted(name="Review", kind="call_workflow", try_=1),
        DONE,
    )
    assert (state.started_at, state.ended_at) == (format_timestamp(1000), format_timestamp(8000))
    assert state.last_seq == 8
    at = {seq: format_timestamp(seq * 1000) for seq in range(9)}
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


def test_an_open_span_has_no_end() -> None:
    (span,) = spans_of(RUN_STARTED, call("c")).spans
    assert (span.end_seq, span.ended_at, span.duration_ms, span.error) == (None, None, None, False)


def test_tries_and_iterations_of_a_step_are_separate_spans() -> None:
    first, second = StepStarted(name="s", kind="x", try_=1), StepStarted(name="s", kind="x", try_=2)
    failed = StepCompleted(name="s", kind="x", try_=1, error="no")
    one, other = spans_of(first, failed, second).spans
    assert (one.end_seq, one.error, other.end_seq) == (2, True, None)
    events = [*log_of(first), *log_of(second, first, iteration=1)[1:]]
    assert [span.seq for span in spans_fold(Spans(), events).spans] == [1, 2]


def test_an_end_without_a_start_is_ignored() -> None:
    state = spans_of(result("c"), StepCompleted(name="s", kind="x", try_=1))
    assert state.spans == []


def many(*counts: int, **more: Any) -> list[Payload]:
    """Return calls of different tools, one after another."""
    made: list[Payload] = []
    for count in counts:
        for number in range(count):
            name = f"Tool{number % 3}"
            made += [
                replace(call(f"{len(made)}"), name=name),
                replace(result(f"{len(made)}", duration_ms=10, **more), name=name),
            ]
    return made


@pytest.mark.req("WT-69")
@pytest.mark.parametrize("count", [1, 2 * SPANS_ENDED - 1, 2 * SPANS_ENDED, 2 * SPANS_ENDED + 1, 7 * SPANS_ENDED + 3])
def test_very_many_spans_are_merged_with_neighbors_and_none_is_dropped(count: int) -> None:
    spans = spans_of(*many(count)).spans
    assert len(spans) < 2 * SPANS_ENDED
    assert sum(span.count for span in spans) == count
    assert sum(span.duration_ms or 0 for span in spans) == 10 * count
    assert [span.seq for span in spans] == sorted(span.seq for span in spans)
    # Each span starts where the one before ended: no gaps and no overlaps.
    assert spans[0].seq == 1
    assert all(before.end_seq == after.seq - 1 for before, after in pairwise(spans))
    assert spans[-1].end_seq == 2 * count
    assert all(span.name == "" for span in spans if span.count >= 3)


def test_short_and_close_spans_are_merged_before_long_spans() -> None:
    long = [replace(event, timestamp=format_timestamp(event.seq * 100_000)) for event in log_of(*many(20))]
    at = len(long)
    short = [
        replace(event, seq=at + event.seq, timestamp=format_timestamp(at * 100_000 + event.seq))
        for event in log_of(*many(3 * SPANS_ENDED))
    ]
    spans = spans_fold(Spans(), [*long, *short]).spans
    assert [span.count for span in spans[:20]] == [1] * 20
    assert sum(span.count for span in spans) == 20 + 3 * SPANS_ENDED


def test_a_failed_call_is_not_merged_with_successful_calls() -> None:
    failed = [call("bad"), result("bad", error="no")]
    spans = spans_of(*many(SPANS_ENDED), *failed, *many(3 * SPANS_ENDED)).spans
    assert [(span.count, span.seq) for span in spans if span.error] == [(1, 2 * SPANS_ENDED + 1)]


def test_steps_with_different_paths_are_merged_within_their_outer_step() -> None:
    events: list[Event] = []
    for number in range(4 * SPANS_ENDED):
        step = (StepStarted(name="s", kind="x", try_=1), StepCompleted(name="s", kind="x", try_=1))
        events += log_of(*step, path=f"Each.{number}")
    events = [replace(event, seq=seq, timestamp=format_timestamp(seq * 1000)) for seq, event in enumerate(events, 1)]
    spans = spans_fold(Spans(), events).spans
    assert len(spans) < 2 * SPANS_ENDED
    assert sum(span.count for span in spans) == 4 * SPANS_ENDED
    assert {span.path for span in spans if span.count > 1} == {"Each"}


def test_the_oldest_of_very_many_open_spans_are_merged_and_stay_open() -> None:
    count = SPANS_OPEN + 2 * SPANS_ENDED + 5
    state = spans_of(*[call(str(number)) for number in range(count)])
    assert len(state.spans) < SPANS_OPEN + 2 * SPANS_ENDED
    assert sum(span.count for span in state.spans) == count
    assert {span.ended_at for span in state.spans} == {None}


def test_two_calls_under_one_id_are_one_span() -> None:
    state = spans_of(call("c"), call("c"), result("c"))
    assert [(span.seq, span.end_seq, span.count) for span in state.spans] == [(1, 3, 2)]


def test_the_spans_do_not_depend_on_the_batches_of_events() -> None:
    events = log_of(*many(5 * SPANS_ENDED))
    state = Spans()
    for first in range(0, len(events), 777):
        state = spans_fold(state, events[first : first + 777])
    assert state == spans_fold(Spans(), events)


@pytest.mark.parametrize("name", ["command", "claude-code", "parent"])
def test_all_spans_of_a_completed_run_have_ended(name: str) -> None:
    events = golden(name)
    state = spans_fold(Spans(), events)
    assert state.spans
    assert [span for span in state.spans if span.ended_at is None] == []
    assert (state.started_at, state.ended_at) == (events[0].timestamp, events[-1].timestamp)
