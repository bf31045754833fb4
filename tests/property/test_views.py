"""Properties of the views of any log: they can be stored anywhere and continued, and stay small."""

from functools import reduce
from typing import Any, TypeVar

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from tests.property.strategies import runs
from tests.sample_events import RUN_ID

from shopfloor.limits import TIMELINE_OPEN_CALLS
from shopfloor.log import Event, Line, Payload, RunStarted, ToolCall, ToolResult, decode, encode, format_timestamp
from shopfloor.views import (
    RunRow,
    Spans,
    Timeline,
    TimelineRow,
    WaitState,
    row_fold,
    spans_fold,
    timeline_fold,
    wait_state_step,
)

T = TypeVar("T")
Run = list[tuple[Payload, dict[str, Any]]]


@st.composite
def runs_with_tools(draw: st.DrawFn) -> Run:
    """Any run in which calls and results share a few ids, so that some belong together."""
    call_ids = st.sampled_from("abc")
    return [
        (
            msgspec.structs.replace(payload, call_id=draw(call_ids))
            if isinstance(payload, ToolCall | ToolResult)
            else payload,
            place,
        )
        for payload, place in draw(runs())
    ]


def events_of(run: Run) -> list[Event]:
    """Return the run as events that were never encoded."""
    return [
        Event(
            seq=seq,
            run_id=RUN_ID,
            type=payload.event_type,
            timestamp=format_timestamp(seq * 1000),
            payload=payload,
            **{"path": "", "iteration": 0} | place,
        )
        for seq, (payload, place) in enumerate(run, 1)
    ]


def again(event: Event) -> Event:
    """Return the event as it is read from its line."""
    return decode(encode(Line(**{name: getattr(event, name) for name in Line.__struct_fields__})))


def rows_of(events: list[Event], row: RunRow | None = None) -> RunRow:
    return row_fold(row or RunRow(), events)


def timeline_of(events: list[Event], state: Timeline | None = None) -> tuple[Timeline, list[TimelineRow]]:
    return timeline_fold(state or Timeline(), events)


def decoded_copy(state: T) -> T:
    """Return the state after it was stored and loaded."""
    return msgspec.json.decode(msgspec.json.encode(state), type=type(state))


@given(runs_with_tools(), st.data())
def test_a_row_that_is_stored_anywhere_and_continued_is_the_row_of_the_whole_log(run: Run, data: st.DataObject) -> None:
    events = events_of(run)
    place = data.draw(st.integers(0, len(events)))
    assert rows_of(events[place:], decoded_copy(rows_of(events[:place]))) == rows_of(events)


@given(runs_with_tools(), st.data())
def test_a_timeline_that_is_stored_anywhere_and_continued_is_the_timeline_of_the_whole_log(
    run: Run, data: st.DataObject
) -> None:
    events = events_of(run)
    place = data.draw(st.integers(0, len(events)))
    state, first = timeline_of(events[:place])
    waits = reduce(wait_state_step, events[:place], WaitState())
    state, rest = timeline_fold(decoded_copy(state), events[place:], waits)
    assert (state, first + rest) == timeline_of(events)


@given(runs_with_tools(), st.data())
def test_spans_that_are_stored_anywhere_and_continued_are_the_spans_of_the_whole_log(
    run: Run, data: st.DataObject
) -> None:
    events = events_of(run)
    place = data.draw(st.integers(0, len(events)))
    first = spans_fold(Spans(), events[:place])
    assert spans_fold(decoded_copy(first), events[place:]) == spans_fold(Spans(), events)
    assert first == spans_fold(Spans(), events[:place]), "it was changed by carrying it on"


@given(runs_with_tools())
def test_an_event_that_was_written_and_read_folds_the_same(run: Run) -> None:
    events = events_of(run)
    read = [again(event) for event in events]
    assert rows_of(read) == rows_of(events)
    assert timeline_of(read) == timeline_of(events)
    assert spans_fold(Spans(), read) == spans_fold(Spans(), events)


@given(runs_with_tools())
def test_folding_leaves_the_states_before_as_they_were(run: Run) -> None:
    row, state = RunRow(), Timeline()
    for event in events_of(run):
        before = msgspec.json.encode((row, state))
        after = row_fold(row, [event]), timeline_fold(state, [event], row.waits)
        assert msgspec.json.encode((row, state)) == before
        row, (state, _) = after
    assert (row, state) == (rows_of(events_of(run)), timeline_of(events_of(run))[0])


@given(runs_with_tools())
def test_rows_of_a_timeline_are_unique_by_event_and_index(run: Run) -> None:
    events = events_of(run)
    _, rows = timeline_of(events)
    places = [(row.seq, row.n) for row in rows]
    assert places == sorted(set(places))
    assert all(row.created_at == events[row.seq - 1].timestamp for row in rows)


@given(runs_with_tools())
def test_any_timeline_can_be_shown(run: Run) -> None:
    _, rows = timeline_of(events_of(run))
    assert msgspec.json.decode(msgspec.json.encode(rows), type=list[TimelineRow]) == rows
    assert all(len(row.data.get("preview", "")) <= 200 for row in rows)


@given(runs_with_tools())
def test_a_row_is_ended_exactly_when_its_log_is(run: Run) -> None:
    row = rows_of(events_of(run))
    assert row.is_ended is (row.status in ("completed", "failed", "cancelled"))
    assert row.is_ended is (run[-1][0].event_type == "run.completed")
    assert row.last_seq == len(run)


# Bounded state

CALL_ID = "toolu_" + "0" * 24
"""An id about as long as the ids of providers."""
TIMELINE_BYTES = TIMELINE_OPEN_CALLS * 80
ROW_BYTES = 2_000


def many_calls(count: int) -> list[Event]:
    """A run with calls that never get a result."""
    made: list[Payload] = [RunStarted(name="w", kind="worker", attempt=1, host="h", task="t")]
    for number in range(count):
        call_id = f"{CALL_ID}{number}"
        made.append(
            ToolCall(name="Bash", call_id=call_id, input={"command": "x" * 500}, output=None, fidelity="router")
        )
    return events_of([(payload, {}) for payload in made])


def test_calls_that_stay_open_make_the_states_no_bigger_than_a_bound() -> None:
    row, state = RunRow(), Timeline()
    for event in many_calls(3 * TIMELINE_OPEN_CALLS):
        row = row_fold(row, [event])
        state, _ = timeline_fold(state, [event])
        if event.seq % 100 == 0:
            assert len(msgspec.json.encode(state)) <= TIMELINE_BYTES
            assert len(msgspec.json.encode(row)) <= ROW_BYTES
    assert len(state.open_calls) == TIMELINE_OPEN_CALLS
    assert row.tool_calls == 3 * TIMELINE_OPEN_CALLS


def test_the_calls_that_are_forgotten_are_the_oldest() -> None:
    state, _ = timeline_of(many_calls(TIMELINE_OPEN_CALLS + 2))
    assert f"{CALL_ID}1" not in state.open_calls
    assert f"{CALL_ID}2" in state.open_calls
    state, _ = timeline_of(many_calls(1), decoded_copy(state))
    assert len(state.open_calls) == TIMELINE_OPEN_CALLS


@given(runs_with_tools())
def test_an_answered_call_is_removed(run: Run) -> None:
    state, _ = timeline_of(events_of(run))
    still_open: set[str] = set()
    for payload, _ in run:
        if isinstance(payload, ToolCall):
            still_open.add(payload.call_id)
        elif isinstance(payload, ToolResult):
            still_open.discard(payload.call_id)
    assert set(state.open_calls) == still_open
