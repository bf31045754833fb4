"""The transcriber of agent reports: in which log a message is written, and what remains of an incomplete one."""

from __future__ import annotations

import pytest
from tests.sample_events import CHILD_ID, RUN_ID

from shopfloor.engine.agents import PendingEvent, Transcriber
from shopfloor.log import AssistantMessage, Cost, Note, RunStarted, TextBlock, is_message_chunk
from shopfloor.ports import AgentReport, MessageDelta, SessionEnded, SubAgentEnded, SubAgentStarted, TranscriptItem

FIRST = RunStarted(name="claude-code", kind="agent", attempt=1, host="h")


@pytest.fixture
def transcriber() -> Transcriber:
    return Transcriber(
        FIRST,
        run_id=RUN_ID,
        path="say",
        provider="claude-code",
        prices=lambda model, usage: Cost(usd=None, source="test"),
        new_id=lambda key: CHILD_ID,
    )


def delta(text: str, message_id: str = "m", **fields: str) -> MessageDelta:
    return MessageDelta(message_id=message_id, block=0, kind="text", text=text, **fields)


def texts(events: list[PendingEvent]) -> list[tuple[str, str, str | None]]:
    """Return the run, the text and the stop reason of each message."""
    messages = [(event.run_id, event.payload) for event in events if isinstance(event.payload, AssistantMessage)]
    return [
        (run_id, block.text, message.stop_reason)
        for run_id, message in messages
        for block in message.blocks
        if isinstance(block, TextBlock)
    ]


def transcribe_all(transcriber: Transcriber, *reports: AgentReport) -> list[PendingEvent]:
    return [write for report in reports for write in transcriber.process_report(report)]


def test_the_messages_of_a_sub_agent_are_in_its_own_log(transcriber: Transcriber) -> None:
    transcribe_all(transcriber, SubAgentStarted(agent="a", name="looker"))
    partial, offset = transcriber.add_delta(delta("Hello", agent="a"))
    piece = partial.next_chunk()
    assert offset == 0
    assert piece is not None
    (write,) = transcriber.process_report(TranscriptItem(agent="a", payload=piece))
    assert isinstance(write.payload, AssistantMessage)
    assert (write.run_id, write.path, is_message_chunk(write.payload)) == (CHILD_ID, "looker", True)
    # A piece is not a complete message: when the sub-agent ends, the message is recorded as interrupted.
    ended = SubAgentEnded(agent="a", status="failed")
    assert texts(transcribe_all(transcriber, ended)) == [(CHILD_ID, "Hello", "interrupted")]


def test_a_complete_message_is_not_recorded_as_interrupted(transcriber: Transcriber) -> None:
    whole = AssistantMessage(message_id="m", blocks=[TextBlock(fidelity="agent_emitted", text="Hello")])
    assert texts(transcribe_all(transcriber, delta("Hello"), TranscriptItem(payload=whole))) == [
        (RUN_ID, "Hello", None)
    ]
    writes, _ = transcriber.end(SessionEnded(status="completed"), None)
    assert texts(writes) == []


def test_a_retried_model_call_interrupts_its_message(transcriber: Transcriber) -> None:
    retry = TranscriptItem(payload=AssistantMessage(note=Note(kind="retry", code="overloaded"), blocks=[]))
    writes = transcribe_all(transcriber, delta("Hel"), retry, delta("Hello", "m2"))
    assert texts(writes) == [(RUN_ID, "Hel", "interrupted")]
    # Before the note of the retry.
    assert [isinstance(write.payload, AssistantMessage) and write.payload.note is not None for write in writes] == [
        False,
        True,
    ]
    writes, _ = transcriber.end(SessionEnded(status="failed"), None)
    assert texts(writes) == [(RUN_ID, "Hello", "interrupted")]


def test_two_concurrent_messages_are_both_kept_until_they_are_complete(transcriber: Transcriber) -> None:
    second = AssistantMessage(message_id="m2", blocks=[TextBlock(fidelity="agent_emitted", text="two")])
    writes = transcribe_all(
        transcriber, delta("one", "m1"), delta("tw", "m2"), delta("o", "m2"), TranscriptItem(payload=second)
    )
    assert texts(writes) == [(RUN_ID, "two", None)]
    writes, _ = transcriber.end(SessionEnded(status="failed"), None)
    assert texts(writes) == [(RUN_ID, "one", "interrupted")]
