"""Incomplete messages: their chunks, and how chunks are merged."""

from __future__ import annotations

import pytest

from shopfloor.log import (
    INTERRUPTED_STOP,
    AssistantMessage,
    Masking,
    PartialMessage,
    StreamBlock,
    TextBlock,
    ThinkingBlock,
    is_message_chunk,
    supersedes_chunks,
)


def stream_block(kind: str, block: int, offset: int, chunk: str, **fields: str) -> StreamBlock:
    return StreamBlock(fidelity="agent_emitted", kind=kind, block=block, offset=offset, chunk=chunk, **fields)  # type: ignore[arg-type]


def test_a_chunk_has_the_new_text_of_every_block() -> None:
    message = PartialMessage("m")
    assert message.append_text(0, "thinking", "Let me ") == 0
    assert message.append_text(0, "thinking", "see.") == 7
    first = message.next_chunk()
    message.append_text(1, "text", "Hello")
    message.append_text(2, "tool_input", '{"a"', tool_name="Read", tool_id="t1")
    second = message.next_chunk()
    message.append_text(2, "tool_input", ": 1}", tool_name="Read", tool_id="t1")
    third = message.next_chunk()
    assert first == AssistantMessage(message_id="m", blocks=[stream_block("thinking", 0, 0, "Let me see.")])
    assert second is not None
    assert second.blocks == [
        stream_block("text", 1, 0, "Hello"),
        stream_block("tool_input", 2, 0, '{"a"', tool_name="Read", tool_id="t1"),
    ]
    assert third is not None
    assert third.blocks == [stream_block("tool_input", 2, 4, ": 1}")]
    assert message.next_chunk() is None
    assert all(
        one is not None and is_message_chunk(one) and not supersedes_chunks(one) for one in (first, second, third)
    )


def test_the_text_of_an_unwritten_chunk_is_in_the_next_one() -> None:
    message = PartialMessage("m")
    message.append_text(0, "text", "Hello ")
    lost = message.next_chunk()
    assert lost is not None
    message.unmark_written(lost)
    message.append_text(0, "text", "world")
    again = message.next_chunk()
    assert again is not None
    assert again.blocks == [stream_block("text", 0, 0, "Hello world")]


def test_an_interrupted_message_has_all_text_and_no_call() -> None:
    message = PartialMessage("m", model="some-model")
    message.append_text(0, "thinking", "Hm.")
    message.next_chunk()
    message.append_text(1, "text", "Hello")
    message.append_text(2, "tool_input", '{"pa', tool_name="Read", tool_id="t1")
    assert message.interrupted() == AssistantMessage(
        message_id="m",
        model="some-model",
        stop_reason=INTERRUPTED_STOP,
        blocks=[
            ThinkingBlock(fidelity="agent_emitted", thinking="Hm."),
            TextBlock(fidelity="agent_emitted", text="Hello"),
            StreamBlock(fidelity="agent_emitted", chunk='{"pa', tool_name="Read", tool_id="t1"),
        ],
    )


def test_text_of_a_complete_message_is_in_no_later_chunk() -> None:
    message = PartialMessage("m")
    message.append_text(0, "text", "Hello")
    message.clear()
    assert (message.next_chunk(), message.interrupted(), message.has_text) == (None, None, False)
    message.append_text(1, "text", "world")
    later = message.next_chunk()
    assert later is not None
    assert later.blocks == [stream_block("text", 1, 0, "world")]
    interrupted_message = message.interrupted()
    assert interrupted_message is not None
    assert interrupted_message.blocks == [TextBlock(fidelity="agent_emitted", text="world")]


@pytest.mark.parametrize(
    ("pieces", "text"),
    [
        ([(0, "Hello "), (6, "world")], "Hello world"),
        ([(0, "Hello "), (0, "Hello "), (3, "lo world")], "Hello world"),
        ([(6, "world")], "world"),
        ([(0, "Hel"), (6, "world")], "Hel…world"),
    ],
)
def test_chunks_are_merged_by_their_offsets(pieces: list[tuple[int, str]], text: str) -> None:
    message = PartialMessage("m")
    for offset, chunk in pieces:
        message.merge_chunk(AssistantMessage(message_id="m", blocks=[stream_block("text", 0, offset, chunk)]))
    interrupted_message = message.interrupted()
    assert interrupted_message is not None
    assert interrupted_message.blocks == [TextBlock(fidelity="agent_emitted", text=text)]


def test_a_character_is_never_split_between_two_chunks() -> None:
    message = PartialMessage("m")
    message.append_text(0, "text", "a\ud83d")
    first = message.next_chunk()
    message.append_text(0, "text", "\ude00b")
    second = message.next_chunk()
    assert first is not None
    assert second is not None
    assert [*first.blocks, *second.blocks] == [stream_block("text", 0, 0, "a"), stream_block("text", 0, 1, "😀b")]


def test_the_start_of_a_secret_is_in_no_chunk_and_no_interrupted_message() -> None:
    mask = Masking(["correct-horse"])
    message = PartialMessage("m")
    message.append_text(0, "text", "It is correct-ho")
    first = message.next_chunk(mask.mask_stable_prefix)
    assert first is not None
    assert first.blocks == [stream_block("text", 0, 0, "It is ")]
    interrupted_message = message.interrupted(mask.mask_truncated)
    assert interrupted_message is not None
    assert interrupted_message.blocks == [TextBlock(fidelity="agent_emitted", text="It is [masked]")]
    message.append_text(0, "text", "rse, you see.")
    second = message.next_chunk(mask.mask_stable_prefix)
    assert second is not None
    assert second.blocks == [stream_block("text", 0, 6, "[masked], you see.")]
