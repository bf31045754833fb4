"""A command's output on its way into the log: pieces joined, text decoded, a tail kept. Sans I/O."""

from __future__ import annotations

import base64
import codecs
from collections import deque

from shopfloor.limits import MASK_LOOKBACK_BYTES, OUTPUT_JOIN_BYTES, RESULT_TAIL_BYTES
from shopfloor.log import Masking, TextBlock
from shopfloor.ports import OutputChunk, StreamName


class OutputBuffer:
    """Joins pieces into blocks. What is torn between two pieces, a character or a secret, waits for its other half."""

    def __init__(self, mask: Masking | None = None) -> None:
        self._mask = mask
        self._pieces: list[tuple[StreamName, bytearray]] = []
        self._held: dict[StreamName, bytes] = {"stdout": b"", "stderr": b""}
        self._tail = bytearray()
        self.size = 0

    @property
    def is_full(self) -> bool:
        return self.size >= OUTPUT_JOIN_BYTES

    def add(self, piece: OutputChunk) -> None:
        data = self._held[piece.stream] + piece.data
        torn = _torn_character(data)
        if self._mask is not None:
            torn = max(torn, self._mask.pending_secret_bytes(data))
        whole = len(data) - torn
        self._held[piece.stream] = data[whole:]
        self._join(piece.stream, data[:whole])

    def _join(self, stream: StreamName, data: bytes) -> None:
        if not data:
            return
        self.size += len(data)
        if self._pieces and self._pieces[-1][0] == stream:
            self._pieces[-1][1].extend(data)
        else:
            self._pieces.append((stream, bytearray(data)))

    def finish(self) -> None:
        """No more will come: what waits for its other half waits in vain."""
        for stream, data in self._held.items():
            self._join(stream, data)
        self._held = {"stdout": b"", "stderr": b""}

    def drain(self) -> tuple[list[TextBlock], list[OutputChunk]]:
        """What has been joined so far, as blocks for the log and as the bytes they stand for."""
        pieces = [OutputChunk(stream, bytes(data)) for stream, data in self._pieces]
        self._pieces = []
        self.size = 0
        for piece in pieces:
            self._tail = (self._tail + piece.data)[-RESULT_TAIL_BYTES - MASK_LOOKBACK_BYTES :]
        return [self._block(piece) for piece in pieces], pieces

    def _block(self, piece: OutputChunk) -> TextBlock:
        text = piece.data.decode("utf-8", "replace")
        # With masking on, the exact bytes would carry what the text must not.
        lossy = self._mask is None and text.encode() != piece.data
        raw = base64.b64encode(piece.data).decode() if lossy else None
        return TextBlock(fidelity="router", text=text, stream=piece.stream, raw=raw)

    def tail(self) -> str:
        """The end of the output, cut on a character's boundary."""
        text = self._tail.decode("utf-8", "replace")
        if self._mask is not None:
            # Before the cut, which could leave the half of a secret that no longer looks like one.
            text = self._mask.text(text)
        return text.encode()[-RESULT_TAIL_BYTES:].decode("utf-8", "ignore")


class TextTail:
    """The end of a text that comes in pieces, at most `limit_chars` long."""

    def __init__(self, limit_chars: int) -> None:
        self._limit_chars = limit_chars
        self._pieces: deque[str] = deque()
        self._size = 0
        self.is_truncated = False
        """Whether text was dropped from the beginning."""

    def add(self, text: str) -> None:
        self._pieces.append(text)
        self._size += len(text)
        self.is_truncated = self.is_truncated or self._size > self._limit_chars
        while self._size - len(self._pieces[0]) >= self._limit_chars:
            self._size -= len(self._pieces.popleft())

    def text(self) -> str:
        return "".join(self._pieces)[-self._limit_chars :]


def _torn_character(data: bytes) -> int:
    """How many bytes at the end are the beginning of a character whose rest may still come."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    decoder.decode(data[-4:])
    return len(decoder.getstate()[0])
