"""A command's output on its way into the log."""

from __future__ import annotations

import base64

from hypothesis import given
from hypothesis import strategies as st

from shopfloor.engine.command_output import OutputBuffer
from shopfloor.limits import OUTPUT_JOIN_BYTES, RESULT_TAIL_BYTES
from shopfloor.log import MASK, Masking, TextBlock
from shopfloor.ports import OutputChunk


def texts(blocks) -> list[tuple[str, str]]:
    return [(block.stream, block.text) for block in blocks]


def exact_bytes(blocks: list[TextBlock]) -> bytes:
    return b"".join(base64.b64decode(block.raw) if block.raw else block.text.encode() for block in blocks)


def test_adjacent_chunks_of_one_stream_are_one_block_and_keep_their_order():
    output = OutputBuffer()
    for piece in [
        OutputChunk("stdout", b"a"),
        OutputChunk("stdout", b"b"),
        OutputChunk("stderr", b"c"),
        OutputChunk("stdout", b"d"),
    ]:
        output.add(piece)
    blocks, pieces = output.drain()
    assert texts(blocks) == [("stdout", "ab"), ("stderr", "c"), ("stdout", "d")]
    assert pieces == [OutputChunk("stdout", b"ab"), OutputChunk("stderr", b"c"), OutputChunk("stdout", b"d")]
    assert output.drain() == ([], [])


def test_it_is_full_at_the_size_that_may_be_joined():
    output = OutputBuffer()
    output.add(OutputChunk("stdout", b"x" * (OUTPUT_JOIN_BYTES - 1)))
    assert not output.is_full
    output.add(OutputChunk("stderr", b"x"))
    assert output.is_full


def test_a_split_character_waits_and_is_kept_raw_if_its_rest_never_comes():
    output = OutputBuffer()
    output.add(OutputChunk("stdout", b"\xe2\x82"))
    assert output.drain() == ([], [])
    output.finish()
    blocks, _ = output.drain()
    assert blocks[0].text == "�"
    assert exact_bytes(blocks) == b"\xe2\x82"


def test_the_tail_starts_at_a_character():
    output = OutputBuffer()
    output.add(OutputChunk("stdout", "€".encode() * RESULT_TAIL_BYTES))
    output.drain()
    tail = output.tail()
    assert set(tail) == {"€"}
    assert RESULT_TAIL_BYTES - 3 < len(tail.encode()) <= RESULT_TAIL_BYTES


def test_a_secret_at_the_start_of_the_tail_is_masked_before_truncation():
    secret = "correct-horse-battery"
    output = OutputBuffer(Masking([secret]))
    output.add(OutputChunk("stdout", secret.encode() + b"." * (RESULT_TAIL_BYTES - 5)))
    output.drain()
    assert "battery" not in output.tail()


@given(st.lists(st.tuples(st.sampled_from(["stdout", "stderr"]), st.binary(min_size=1, max_size=12))))
def test_no_byte_is_lost_or_moved_at_any_split(pieces):
    output = OutputBuffer()
    taken: list[TextBlock] = []
    for stream, data in pieces:
        output.add(OutputChunk(stream, data))
        taken += output.drain()[0]
    output.finish()
    taken += output.drain()[0]
    for stream in ("stdout", "stderr"):
        came = b"".join(data for name, data in pieces if name == stream)
        assert exact_bytes([block for block in taken if block.stream == stream]) == came


@given(st.data(), st.text(alphabet="ab-secretword ", max_size=60))
def test_a_secret_is_masked_at_any_split_into_chunks(data, around):
    secret = "secret-word"
    printed = (around[: len(around) // 2] + secret + around[len(around) // 2 :]).encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(printed)), max_size=6)))
    mask = Masking([secret])
    output = OutputBuffer(mask)
    shown = ""
    for start, end in zip([0, *cuts], [*cuts, len(printed)], strict=True):
        output.add(OutputChunk("stdout", printed[start:end]))
        shown += "".join(mask.text(block.text) for block in output.drain()[0])
    output.finish()
    shown += "".join(mask.text(block.text) for block in output.drain()[0])
    assert shown == mask.text(printed.decode())
    assert MASK in shown
