"""Chunks of messages, for any text and any split of it."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from tests.sample_events import RUN_ID, TIMESTAMP

from shopfloor.log import (
    AssistantMessage,
    Block,
    ChunkKind,
    Delta,
    Event,
    Line,
    Masking,
    PartialMessage,
    RunStarted,
    StreamBlock,
    TextBlock,
    ThinkingBlock,
    Verifier,
    chunk_blocks,
    encode,
    is_message_chunk,
)
from shopfloor.views import StreamState, archive, stream_step, without_chunks

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40)
SECRET = "open-sesame"
KINDS: tuple[ChunkKind, ...] = ("text", "thinking")

Typed = tuple[int, ChunkKind, str]


@st.composite
def typing(draw: st.DrawFn) -> list[Typed]:
    """The deltas of a message, block by block, each block of one kind."""
    deltas: list[Typed] = []
    for block in range(draw(st.integers(1, 3))):
        kind = draw(st.sampled_from(KINDS))
        for text in draw(st.lists(TEXTS, min_size=1, max_size=6)):
            deltas.append((block, kind, text))
    return deltas


def pieces_of(deltas: list[Typed], written_after: set[int], mask: Masking | None = None) -> list[AssistantMessage]:
    """Return the chunks, if a chunk is written after the deltas with these numbers."""
    message, made = PartialMessage("m"), list[AssistantMessage]()
    for number, (block, kind, text) in enumerate(deltas):
        message.append_text(block, kind, text)
        if number in written_after and (piece := message.next_chunk(mask and mask.mask_stable_prefix)) is not None:
            made.append(piece)
    return made


def whole_of(deltas: list[Typed]) -> AssistantMessage:
    blocks: list[Block] = []
    for number in sorted({block for block, _, _ in deltas}):
        text = "".join(text for block, _, text in deltas if block == number)
        kind = next(kind for block, kind, _ in deltas if block == number)
        said = ThinkingBlock(fidelity="agent_emitted", thinking=text)
        blocks.append(TextBlock(fidelity="agent_emitted", text=text) if kind == "text" else said)
    return AssistantMessage(message_id="m", blocks=blocks)


def texts(message: AssistantMessage) -> list[str]:
    return [block.text if isinstance(block, TextBlock) else getattr(block, "thinking", "") for block in message.blocks]


def events(*payloads: Any) -> list[Event]:
    first = RunStarted(name="a", kind="agent", attempt=1, host="h")
    return [
        Event(
            seq=seq,
            run_id=RUN_ID,
            type=payload.event_type,
            path="" if seq == 1 else "say",
            iteration=0,
            timestamp=TIMESTAMP,
            payload=payload,
        )
        for seq, payload in enumerate([first, *payloads], 1)
    ]


def joined(pieces: list[AssistantMessage]) -> dict[int, str]:
    made: dict[int, str] = {}
    for one in pieces:
        for block, _, number, offset in chunk_blocks(one):
            assert offset == len(made.get(number, ""))
            made[number] = made.get(number, "") + block.chunk
    return made


def jq_lines(log: list[Event]) -> list[str]:
    """Return the text blocks of a log, as a reader without support for chunks lists them."""
    said = [event.payload for event in log if isinstance(event.payload, AssistantMessage)]
    return [block.text for message in said for block in message.blocks if isinstance(block, TextBlock)]


CUTS = st.sets(st.integers(0, 18))


@given(typing(), CUTS)
def test_joined_chunks_are_a_prefix_of_the_complete_message(deltas: list[Typed], cuts: set[int]) -> None:
    pieces = pieces_of(deltas, cuts)
    assert all(map(is_message_chunk, pieces))
    whole = texts(whole_of(deltas))
    assert all(whole[number].startswith(text) for number, text in joined(pieces).items())
    # Nothing is omitted: the chunks together have all text that was received until then.
    if cuts and (last := max((cut for cut in cuts if cut < len(deltas)), default=None)) is not None:
        assert list(joined(pieces).values()) == texts(whole_of(deltas[: last + 1]))


@given(typing(), CUTS)
def test_a_complete_message_is_the_same_with_and_without_chunks(deltas: list[Typed], cuts: set[int]) -> None:
    whole = whole_of(deltas)
    plain, pieced = events(whole), events(*pieces_of(deltas, cuts), whole)
    assert jq_lines(pieced) == jq_lines(plain)
    assert archive(pieced) == archive(plain)
    assert [event.payload for event in without_chunks(pieced)] == [event.payload for event in plain]


@given(typing(), CUTS)
def test_chunks_without_a_complete_message_are_shown_as_an_interrupted_message(
    deltas: list[Typed], cuts: set[int]
) -> None:
    pieces = pieces_of(deltas, cuts)
    shown = [event.payload for event in without_chunks(events(*pieces))][1:]
    assert all(isinstance(message, AssistantMessage) and message.stop_reason == "interrupted" for message in shown)
    assert [text for one in shown if isinstance(one, AssistantMessage) for text in texts(one)] == [
        *joined(pieces).values()
    ]


@given(typing(), CUTS)
def test_a_log_with_chunks_follows_the_rules(deltas: list[Typed], cuts: set[int]) -> None:
    verifier = Verifier(RUN_ID)
    for event in events(*pieces_of(deltas, cuts), whole_of(deltas)):
        fields = {name: getattr(event, name) for name in Line.__struct_fields__}
        assert verifier.line(encode(Line(**fields)) + b"\n") == []


@given(typing(), CUTS, CUTS)
def test_a_stream_merges_chunks_of_the_log_and_live_deltas_into_one_text(
    deltas: list[Typed], cuts: set[int], lost: set[int]
) -> None:
    """Live deltas may be lost; the text is the same in the end."""
    message, state, seq = PartialMessage("m"), StreamState(), 1
    told: dict[str, str] = {}
    ended: list[str] = []

    def take(one: Event | Delta) -> None:
        nonlocal state
        state, events_ = stream_step(state, one)
        for event in map(msgspec.to_builtins, events_):
            if event["type"].endswith("-delta"):
                told[event["id"]] = told.get(event["id"], "") + event["delta"]
            elif event["type"].endswith("-end") and event["type"] != "block-end":
                ended.append(event["id"])

    def at(payload: AssistantMessage) -> Event:
        nonlocal seq
        seq += 1
        (_, event) = events(payload)
        return msgspec.structs.replace(event, seq=seq)

    take(events()[0])
    for number, (block, kind, text) in enumerate(deltas):
        offset = message.append_text(block, kind, text)
        if number not in lost:
            take(Delta(after=seq, path="say", message_id="m", block=block, kind=kind, offset=offset, text=text))
        if number in cuts and (piece := message.next_chunk()) is not None:
            take(at(piece))
    take(at(whole_of(deltas)))
    last = {name.partition(":r")[0]: text for name, text in told.items()}
    assert last == {f"m:{number}": text for number, text in enumerate(texts(whole_of(deltas)))}
    assert sorted(ended) == sorted(told)


@given(
    st.lists(
        st.sampled_from([SECRET, SECRET[:4], SECRET[4:], "sk-ant-", "0123456789abcdefghij", "x", " "]), max_size=8
    ),
    CUTS,
    st.integers(1, 5),
)
def test_no_part_of_a_secret_is_in_a_chunk(parts: list[str], cuts: set[int], size: int) -> None:
    text = "".join(parts)
    mask = Masking([SECRET], key_shapes=True)
    deltas: list[Typed] = [(0, "text", text[at : at + size]) for at in range(0, len(text), size)]
    pieces = pieces_of(deltas, cuts | {len(deltas) - 1}, mask)
    said = joined(pieces).get(0, "")
    assert mask.text(text).startswith(said)
    cut_off = PartialMessage("m")
    cut_off.append_text(0, "text", text or "x")
    blocks = (cut_off.interrupted(mask.mask_truncated) or AssistantMessage(blocks=[])).blocks
    for shown in [said, *(block.text for block in blocks if isinstance(block, TextBlock))]:
        assert SECRET not in shown
        assert mask.text(shown) == shown


@given(st.integers(0, 5), st.integers(0, 5), st.integers(0, 5))
def test_a_chunk_that_does_not_continue_the_one_before_is_reported(first: int, second: int, size: int) -> None:
    def piece(offset: int, chunk: str) -> AssistantMessage:
        block = StreamBlock(fidelity="agent_emitted", kind="text", block=0, offset=offset, chunk=chunk)
        return AssistantMessage(message_id="m", blocks=[block])

    verifier, found = Verifier(RUN_ID), list[str]()
    for event in events(piece(first, "x" * size), piece(second, "y")):
        fields = {name: getattr(event, name) for name in Line.__struct_fields__}
        found += [problem.rule for problem in verifier.line(encode(Line(**fields)) + b"\n")]
    assert found == ([] if second == first + size else ["piece"])
