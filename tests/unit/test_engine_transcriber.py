"""Text of agents as events: the log that it is in, and the rest after an interruption."""

from __future__ import annotations

import pytest
from tests.sample_events import CHILD_ID, RUN_ID

from shopfloor.engine.agents import PendingEvent, Transcriber
from shopfloor.log import AssistantMessage, Cost, Note, RunStarted, TextBlock, Usage, is_message_chunk
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


def typed(text: str, message_id: str = "m", **fields: str) -> MessageDelta:
    return MessageDelta(message_id=message_id, block=0, kind="text", text=text, **fields)


def messages_of(writes: list[PendingEvent]) -> list[tuple[str, str, str | None]]:
    """Return the run, the text and the stop reason of a message."""
    messages = [(write.run_id, write.payload) for write in writes if isinstance(write.payload, AssistantMessage)]
    return [
        (run_id, block.text, message.stop_reason)
        for run_id, message in messages
        for block in message.blocks
        if isinstance(block, TextBlock)
    ]


def taken(transcriber: Transcriber, *reports: AgentReport) -> list[PendingEvent]:
    return [write for report in reports for write in transcriber.take(report)]


def test_the_text_of_a_sub_agent_is_in_its_own_log(transcriber: Transcriber) -> None:
    taken(transcriber, SubAgentStarted(agent="a", name="looker"))
    partial, offset = transcriber.grow(typed("Hello", agent="a"))
    piece = partial.piece()
    assert offset == 0
    assert piece is not None
    (write,) = transcriber.take(TranscriptItem(agent="a", payload=piece))
    assert isinstance(write.payload, AssistantMessage)
    assert (write.run_id, write.path, is_message_chunk(write.payload)) == (CHILD_ID, "looker", True)
    # A chunk is not the complete message: when the sub-agent ends, its message is interrupted.
    ended = SubAgentEnded(agent="a", status="failed", usage=Usage())
    assert messages_of(taken(transcriber, ended)) == [(CHILD_ID, "Hello", "interrupted")]


def test_a_complete_message_is_not_reported_as_interrupted(transcriber: Transcriber) -> None:
    whole = AssistantMessage(message_id="m", blocks=[TextBlock(fidelity="agent_emitted", text="Hello")])
    assert messages_of(taken(transcriber, typed("Hello"), TranscriptItem(payload=whole))) == [(RUN_ID, "Hello", None)]
    writes, _ = transcriber.end(SessionEnded(status="completed"), None)
    assert messages_of(writes) == []


def test_a_retried_model_call_interrupts_its_partial_message(transcriber: Transcriber) -> None:
    retry = TranscriptItem(payload=AssistantMessage(note=Note(kind="retry", code="overloaded"), blocks=[]))
    writes = taken(transcriber, typed("Hel"), retry, typed("Hello", "m2"))
    assert messages_of(writes) == [(RUN_ID, "Hel", "interrupted")]
    # Before the note about the retry.
    assert [isinstance(write.payload, AssistantMessage) and write.payload.note is not None for write in writes] == [
        False,
        True,
    ]
    writes, _ = transcriber.end(SessionEnded(status="failed"), None)
    assert messages_of(writes) == [(RUN_ID, "Hello", "interrupted")]


def test_two_messages_that_are_streamed_at_once_are_kept_until_they_are_complete(transcriber: Transcriber) -> None:
    second = AssistantMessage(message_id="m2", blocks=[TextBlock(fidelity="agent_emitted", text="two")])
    writes = taken(transcriber, typed("one", "m1"), typed("tw", "m2"), typed("o", "m2"), TranscriptItem(payload=second))
    assert messages_of(writes) == [(RUN_ID, "two", None)]
    writes, _ = transcriber.end(SessionEnded(status="failed"), None)
    assert messages_of(writes) == [(RUN_ID, "one", "interrupted")]
