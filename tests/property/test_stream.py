"""Properties of the stream of any log: stored anywhere and continued, with any deltas before the message."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from tests.property.strategies import text
from tests.property.test_views import Run, events_of, runs_with_tools
from tests.sample_events import RUN_ID, TIMESTAMP
from tests.stream_states import state_after

from shopfloor.log import AssistantMessage, Delta, Event, StepStarted, TextBlock, ThinkingBlock
from shopfloor.views import (
    ReasoningDelta,
    ReasoningEnd,
    ReasoningStart,
    StreamEvent,
    StreamState,
    TextDelta,
    TextEnd,
    TextStart,
    decode_event,
    encode_event,
    stream_step,
)


def stream_of(items: list[Any], state: StreamState | None = None) -> tuple[StreamState, list[StreamEvent]]:
    state, stream_events = state or StreamState(), []
    for one in items:
        state, more = stream_step(state, one)
        stream_events += more
    return state, stream_events


def decoded_copy(state: StreamState) -> StreamState:
    return msgspec.json.decode(msgspec.json.encode(state), type=StreamState)


def joined(events: list[StreamEvent]) -> dict[str, str]:
    """Return the final text of each block; of a block that was started again, the last text."""
    texts_by_block: dict[str, str] = {}
    for event in events:
        if isinstance(event, TextStart | ReasoningStart):
            texts_by_block[event.id] = ""
        elif isinstance(event, TextDelta | ReasoningDelta):
            texts_by_block[event.id] += event.delta
    return {name.partition(":r")[0]: words for name, words in texts_by_block.items()}


@given(runs_with_tools(), st.data())
def test_a_stream_that_is_stored_anywhere_and_continued_is_the_same(run: Run, data: st.DataObject) -> None:
    events = events_of(run)
    place = data.draw(st.integers(0, len(events)))
    state, first = stream_of(events[:place])
    assert state_after(events[:place]) == state
    state, rest = stream_of(events[place:], decoded_copy(state))
    assert (state, first + rest) == stream_of(events)


@given(runs_with_tools())
def test_any_stream_can_be_sent_and_read(run: Run) -> None:
    _, stream_events = stream_of(events_of(run))
    assert [decode_event(encode_event(event)) for event in stream_events] == stream_events


@st.composite
def typed(draw: st.DrawFn) -> tuple[list[Event], list[Event | Delta]]:
    """A log of one message, and the same with deltas before it: some lost, some of an interrupted try."""
    wholes = draw(st.lists(text, min_size=1, max_size=3))
    thinks = draw(st.booleans())
    blocks = [
        ThinkingBlock(fidelity="router", thinking=whole) if thinks else TextBlock(fidelity="router", text=whole)
        for whole in wholes
    ]
    payloads = [StepStarted(name="s", kind="agent", try_=1), AssistantMessage(message_id="m", blocks=list(blocks))]
    start, message = (
        Event(seq=seq, run_id=RUN_ID, type=one.event_type, path="s", iteration=0, timestamp=TIMESTAMP, payload=one)
        for seq, one in enumerate(payloads, 1)
    )
    pieces: list[Event | Delta] = []
    for block, whole in enumerate(wholes):
        typed_text = draw(st.sampled_from([whole, draw(text)]))
        cuts = sorted(draw(st.sets(st.integers(0, len(typed_text)), max_size=4)))
        for begin, end in zip([0, *cuts], [*cuts, len(typed_text)], strict=True):
            if draw(st.integers(0, 5)):
                pieces.append(
                    Delta(
                        after=draw(st.sampled_from([0, 1, 1, 1])),
                        path="s",
                        message_id="m",
                        block=block,
                        kind="thinking" if thinks else "text",
                        offset=begin,
                        text=typed_text[begin:end],
                    )
                )
    early = draw(st.integers(0, len(pieces)))
    return [start, message], [*pieces[:early], start, *pieces[early:], message, *draw(st.permutations(pieces))]


@given(typed())
def test_deltas_of_any_size_with_any_losses_lead_to_the_same_text(
    logs: tuple[list[Event], list[Event | Delta]],
) -> None:
    plain, with_pieces = logs
    state, stream_events = stream_of(with_pieces)
    assert joined(stream_events) == joined(stream_of(plain)[1])
    starts = [event.id for event in stream_events if isinstance(event, TextStart | ReasoningStart)]
    ends = [event.id for event in stream_events if isinstance(event, TextEnd | ReasoningEnd)]
    assert sorted(starts) == sorted(ends)
    assert len(set(starts)) == len(starts)
    assert state.texts.open == {}
