"""Incomplete messages: their chunks, and the interrupted message."""

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


def piece(kind: str, block: int, offset: int, chunk: str, **fields: str) -> StreamBlock:
    return StreamBlock(fidelity="agent_emitted", kind=kind, block=block, offset=offset, chunk=chunk, **fields)  # type: ignore[arg-type]


def test_a_chunk_has_the_new_text_of_every_block_that_has_grown() -> None:
    message = PartialMessage("m")
    assert message.grow(0, "thinking", "Let me ") == 0
    assert message.grow(0, "thinking", "see.") == 7
    first = message.piece()
    message.grow(1, "text", "Hello")
    message.grow(2, "tool_input", '{"a"', tool_name="Read", tool_id="t1")
    second = message.piece()
    message.grow(2, "tool_input", ": 1}", tool_name="Read", tool_id="t1")
    third = message.piece()
    assert first == AssistantMessage(message_id="m", blocks=[piece("thinking", 0, 0, "Let me see.")])
    assert second is not None
    assert second.blocks == [
        piece("text", 1, 0, "Hello"),
        piece("tool_input", 2, 0, '{"a"', tool_name="Read", tool_id="t1"),
    ]
    assert third is not None
    assert third.blocks == [piece("tool_input", 2, 4, ": 1}")]
    assert message.piece() is None
    assert all(
        one is not None and is_message_chunk(one) and not supersedes_chunks(one) for one in (first, second, third)
    )


def test_a_chunk_that_could_not_be_written_is_in_the_next_chunk() -> None:
    message = PartialMessage("m")
    message.grow(0, "text", "Hello ")
    lost = message.piece()
    assert lost is not None
    message.unmark_written(lost)
    message.grow(0, "text", "world")
    again = message.piece()
    assert again is not None
    assert again.blocks == [piece("text", 0, 0, "Hello world")]


def test_an_interrupted_message_has_all_received_text_and_no_call() -> None:
    message = PartialMessage("m", model="some-model")
    message.grow(0, "thinking", "Hm.")
    message.piece()
    message.grow(1, "text", "Hello")
    message.grow(2, "tool_input", '{"pa', tool_name="Read", tool_id="t1")
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


def test_text_that_the_log_has_completely_is_in_no_later_chunk() -> None:
    message = PartialMessage("m")
    message.grow(0, "text", "Hello")
    message.clear()
    assert (message.piece(), message.interrupted(), message.has_text) == (None, None, False)
    message.grow(1, "text", "world")
    later = message.piece()
    assert later is not None
    assert later.blocks == [piece("text", 1, 0, "world")]
    cut = message.interrupted()
    assert cut is not None
    assert cut.blocks == [TextBlock(fidelity="agent_emitted", text="world")]


@pytest.mark.parametrize(
    ("pieces", "text"),
    [
        ([(0, "Hello "), (6, "world")], "Hello world"),
        ([(0, "Hello "), (0, "Hello "), (3, "lo world")], "Hello world"),
        ([(6, "world")], "world"),
        ([(0, "Hel"), (6, "world")], "Hel…world"),
    ],
)
def test_chunks_are_joined_by_their_offsets(pieces: list[tuple[int, str]], text: str) -> None:
    message = PartialMessage("m")
    for offset, chunk in pieces:
        message.join(AssistantMessage(message_id="m", blocks=[piece("text", 0, offset, chunk)]))
    cut = message.interrupted()
    assert cut is not None
    assert cut.blocks == [TextBlock(fidelity="agent_emitted", text=text)]


def test_a_character_is_never_split_between_two_chunks() -> None:
    message = PartialMessage("m")
    message.grow(0, "text", "a\ud83d")
    first = message.piece()
    message.grow(0, "text", "\ude00b")
    second = message.piece()
    assert first is not None
    assert second is not None
    assert [*first.blocks, *second.blocks] == [piece("text", 0, 0, "a"), piece("text", 0, 1, "😀b")]


def test_the_start_of_a_secret_is_in_no_chunk_and_no_interrupted_message() -> None:
    mask = Masking(["correct-horse"])
    message = PartialMessage("m")
    message.grow(0, "text", "It is correct-ho")
    first = message.piece(mask.mask_stable_prefix)
    assert first is not None
    assert first.blocks == [piece("text", 0, 0, "It is ")]
    cut = message.interrupted(mask.cut_off)
    assert cut is not None
    assert cut.blocks == [TextBlock(fidelity="agent_emitted", text="It is [masked]")]
    message.grow(0, "text", "rse, you see.")
    second = message.piece(mask.mask_stable_prefix)
    assert second is not None
    assert second.blocks == [piece("text", 0, 6, "[masked], you see.")]
