"""Incomplete messages in the views."""

from __future__ import annotations

from typing import Any

from tests.sample_events import RUN_ID, TIMESTAMP
from tests.stream_states import state_after

from shopfloor.cli.style import Style
from shopfloor.cli.transcript import TranscriptFormatter
from shopfloor.log import (
    INTERRUPTED_STOP,
    AssistantMessage,
    Entry,
    Event,
    Line,
    Note,
    RunCompleted,
    RunStarted,
    Session,
    StepCompleted,
    StepStarted,
    StreamBlock,
    TextBlock,
    encode,
)
from shopfloor.views import (
    ArchiveEntry,
    FleetEventState,
    LogSearcher,
    RunRow,
    StreamState,
    TextItem,
    archive,
    fleet_event_step,
    row_fold,
    stream_step,
    truncate_event,
    without_chunks,
)

STARTED = RunStarted(name="claude-code", kind="agent", attempt=1, host="h", worker_type="claude-code")
STEP = StepStarted(name="claude-code", kind="agent", try_=1, session=Session(provider="claude-code"))
ENDED = StepCompleted(name="claude-code", kind="agent", try_=1, error="it was killed", error_code="agent_error")
OUTCOME = RunCompleted(name="claude-code", kind="agent", status="failed")


def piece(offset: int, chunk: str, message_id: str = "m") -> AssistantMessage:
    block = StreamBlock(fidelity="agent_emitted", kind="text", block=0, offset=offset, chunk=chunk)
    return AssistantMessage(message_id=message_id, blocks=[block])


def whole(text: str, message_id: str = "m", **fields: Any) -> AssistantMessage:
    return AssistantMessage(message_id=message_id, blocks=[TextBlock(fidelity="agent_emitted", text=text)], **fields)


def log(*payloads: Any, first: int = 1) -> list[Event]:
    return [
        Event(
            seq=seq,
            run_id=RUN_ID,
            type=payload.event_type,
            path="" if payload.event_type.startswith("run.") else "claude-code",
            iteration=0,
            timestamp=TIMESTAMP,
            payload=payload,
        )
        for seq, payload in enumerate(payloads, first)
    ]


def test_an_interrupted_message_is_shown_before_the_end_of_its_step() -> None:
    shown = list(without_chunks(log(STARTED, STEP, piece(0, "Hel"), piece(3, "lo"), ENDED, OUTCOME)))
    assert [(event.seq, event.type) for event in shown] == [
        (1, "run.started"),
        (2, "step.started"),
        (3, "message.assistant"),
        (5, "step.completed"),
        (6, "run.completed"),
    ]
    assert shown[2].payload == whole("Hello", stop_reason=INTERRUPTED_STOP)


def test_two_messages_that_are_streamed_at_once_are_kept_separate() -> None:
    events = log(STARTED, STEP, piece(0, "a", "m1"), piece(0, "b", "m2"), piece(1, "A", "m1"), whole("bB", "m2"), ENDED)
    texts = [event.payload for event in without_chunks(events) if isinstance(event.payload, AssistantMessage)]
    assert texts == [whole("bB", "m2"), whole("aA", "m1", stop_reason=INTERRUPTED_STOP)]


def test_a_message_that_a_later_attempt_completes_is_shown_once() -> None:
    again = RunStarted(name="claude-code", kind="agent", attempt=2, host="h2")
    events = log(STARTED, STEP, piece(0, "Hel"), again, whole("Hel", stop_reason=INTERRUPTED_STOP), ENDED, OUTCOME)
    assert archive(events) == [ArchiveEntry("assistant", [TextItem("Hel")])]


def test_a_row_counts_messages_and_not_their_chunks() -> None:
    events = log(STARTED, STEP, piece(0, "Hel"), piece(3, "lo"), whole("Hello"), ENDED)
    assert row_fold(RunRow(), events).messages == 1
    assert row_fold(RunRow(), events[:-2]).messages == 0


def test_a_text_is_found_in_the_message_and_not_in_its_chunks() -> None:
    found = [
        LogSearcher("Hello").find(Entry(event.seq, event.type, encode(line_of(event))))
        for event in log(piece(0, "Hello"), whole("Hello world"))
    ]
    assert [one and one.seq for one in found] == [None, 2]


def line_of(event: Event) -> Line:
    return Line(**{name: getattr(event, name) for name in Line.__struct_fields__})


def test_a_chunk_is_truncated_no_sooner_than_the_message() -> None:
    (event,) = log(piece(0, "x" * 10_000))
    raw = encode(line_of(event))
    assert truncate_event(raw) == raw


def test_an_interrupted_message_does_not_repeat_a_reported_error() -> None:
    error = AssistantMessage(note=Note(kind="error", code="agent_error", message="broke"), blocks=[])
    state, fleet_events = FleetEventState(), list[str]()
    for event in log(STARTED, STEP, piece(0, "Hel"), error, whole("Hel", stop_reason=INTERRUPTED_STOP), ENDED):
        state, signals = fleet_event_step(state, event)
        fleet_events += [signal.type for signal in signals]
    assert fleet_events.count("agent.error") == 1


def test_a_stream_that_starts_in_the_middle_of_a_message_streams_its_rest() -> None:
    events = log(STARTED, STEP, piece(0, "Hello "), piece(6, "wor"), whole("Hello world"))
    state = state_after(events[:3], StreamState())
    fleet_events: list[str] = []
    for event in events[3:]:
        state, more = stream_step(state, event)
        fleet_events += [one.delta for one in more if one.type == "text-delta"]  # type: ignore[union-attr]
    assert fleet_events == ["wor", "ld"]


def test_a_page_of_a_log_shows_no_chunks_of_a_message_that_is_completed_later() -> None:
    events = log(STARTED, STEP, piece(0, "Hel"), whole("Hello"), ENDED)
    shown = "\n".join(TranscriptFormatter(Style(enabled=False)).lines(events[:3], events[3:]))
    assert "Hel" not in shown
    interrupted = "\n".join(TranscriptFormatter(Style(enabled=False)).lines(events[:3], events[4:]))
    assert "Hel" in interrupted
    assert "was not completed" in interrupted
