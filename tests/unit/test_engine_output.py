"""A command's output on its way into the log."""

from __future__ import annotations

import base64

from hypothesis import given
from hypothesis import strategies as st

from shopfloor.engine.output import Output
from shopfloor.limits import OUTPUT_JOIN_BYTES, RESULT_TAIL_BYTES
from shopfloor.log import MASK, Masking, TextBlock
from shopfloor.ports import Piece


def texts(blocks) -> list[tuple[str, str]]:
    return [(block.stream, block.text) for block in blocks]


def exact_bytes(blocks: list[TextBlock]) -> bytes:
    return b"".join(base64.b64decode(block.raw) if block.raw else block.text.encode() for block in blocks)


def test_neighbouring_pieces_of_one_stream_are_one_block_and_the_order_is_kept():
    output = Output()
    for piece in [Piece("stdout", b"a"), Piece("stdout", b"b"), Piece("stderr", b"c"), Piece("stdout", b"d")]:
        output.add(piece)
    blocks, pieces = output.take()
    assert texts(blocks) == [("stdout", "ab"), ("stderr", "c"), ("stdout", "d")]
    assert pieces == [Piece("stdout", b"ab"), Piece("stderr", b"c"), Piece("stdout", b"d")]
    assert output.take() == ([], [])


def test_it_is_full_at_the_size_that_may_be_joined():
    output = Output()
    output.add(Piece("stdout", b"x" * (OUTPUT_JOIN_BYTES - 1)))
    assert not output.full
    output.add(Piece("stderr", b"x"))
    assert output.full


def test_a_torn_character_waits_and_is_kept_raw_if_its_rest_never_comes():
    output = Output()
    output.add(Piece("stdout", b"\xe2\x82"))
    assert output.take() == ([], [])
    output.finish()
    blocks, _ = output.take()
    assert blocks[0].text == "�"
    assert exact_bytes(blocks) == b"\xe2\x82"


def test_the_tail_is_cut_on_a_character():
    output = Output()
    output.add(Piece("stdout", "€".encode() * RESULT_TAIL_BYTES))
    output.take()
    tail = output.tail()
    assert set(tail) == {"€"}
    assert RESULT_TAIL_BYTES - 3 < len(tail.encode()) <= RESULT_TAIL_BYTES


def test_a_secret_that_the_tail_would_cut_in_two_is_masked_before():
    secret = "correct-horse-battery"
    output = Output(Masking([secret]))
    output.add(Piece("stdout", secret.encode() + b"." * (RESULT_TAIL_BYTES - 5)))
    output.take()
    assert "battery" not in output.tail()


@given(st.lists(st.tuples(st.sampled_from(["stdout", "stderr"]), st.binary(min_size=1, max_size=12))))
def test_whatever_the_pieces_no_byte_is_lost_or_moved(pieces):
    output = Output()
    taken: list[TextBlock] = []
    for stream, data in pieces:
        output.add(Piece(stream, data))
        taken += output.take()[0]
    output.finish()
    taken += output.take()[0]
    for stream in ("stdout", "stderr"):
        came = b"".join(data for name, data in pieces if name == stream)
        assert exact_bytes([block for block in taken if block.stream == stream]) == came


@given(st.data(), st.text(alphabet="ab-secretword ", max_size=60))
def test_however_a_secret_is_cut_into_pieces_it_is_masked(data, around):
    secret = "secret-word"
    said = (around[: len(around) // 2] + secret + around[len(around) // 2 :]).encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(said)), max_size=6)))
    mask = Masking([secret])
    output = Output(mask)
    shown = ""
    for start, end in zip([0, *cuts], [*cuts, len(said)], strict=True):
        output.add(Piece("stdout", said[start:end]))
        shown += "".join(mask.text(block.text) for block in output.take()[0])
    output.finish()
    shown += "".join(mask.text(block.text) for block in output.take()[0])
    assert shown == mask.text(said.decode())
    assert MASK in shown
