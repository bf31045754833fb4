"""Buffers for the output of a command: join chunks into blocks for the log, and keep the tail. No I/O."""

from __future__ import annotations

import base64
import codecs
from collections import deque

from shopfloor.limits import MASK_LOOKBACK_BYTES, OUTPUT_JOIN_BYTES, RESULT_TAIL_BYTES
from shopfloor.log import Masking, TextBlock
from shopfloor.ports import OutputChunk, StreamName


class OutputBuffer:
    """A buffer that joins chunks into text blocks.

    An incomplete character or secret at the end of a chunk is held back until its rest arrives.
    """

    def __init__(self, mask: Masking | None = None) -> None:
        self._mask = mask
        self._chunks: list[tuple[StreamName, bytearray]] = []
        self._incomplete: dict[StreamName, bytes] = {"stdout": b"", "stderr": b""}
        self._tail = bytearray()
        self.size = 0
        """The number of bytes that `drain` would return."""

    @property
    def is_full(self) -> bool:
        """Whether the joined output is long enough to be written."""
        return self.size >= OUTPUT_JOIN_BYTES

    def add(self, chunk: OutputChunk) -> None:
        """Add a chunk of output."""
        data = self._incomplete[chunk.stream] + chunk.data
        incomplete = _incomplete_character_bytes(data)
        if self._mask is not None:
            incomplete = max(incomplete, self._mask.pending_secret_bytes(data))
        complete = len(data) - incomplete
        self._incomplete[chunk.stream] = data[complete:]
        self._join(chunk.stream, data[:complete])

    def _join(self, stream: StreamName, data: bytes) -> None:
        if not data:
            return
        self.size += len(data)
        if self._chunks and self._chunks[-1][0] == stream:
            self._chunks[-1][1].extend(data)
        else:
            self._chunks.append((stream, bytearray(data)))

    def finish(self) -> None:
        """Release the bytes that were held back: no more output follows."""
        for stream, data in self._incomplete.items():
            self._join(stream, data)
        self._incomplete = {"stdout": b"", "stderr": b""}

    def drain(self) -> tuple[list[TextBlock], list[OutputChunk]]:
        """Remove and return the joined output, as blocks for the log and as the bytes of these blocks."""
        chunks = [OutputChunk(stream, bytes(data)) for stream, data in self._chunks]
        self._chunks = []
        self.size = 0
        for chunk in chunks:
            self._tail = (self._tail + chunk.data)[-RESULT_TAIL_BYTES - MASK_LOOKBACK_BYTES :]
        return [self._block(chunk) for chunk in chunks], chunks

    def _block(self, chunk: OutputChunk) -> TextBlock:
        text = chunk.data.decode("utf-8", "replace")
        # The recorder masks `text`; it cannot mask base64, so `raw` is omitted.
        lossy = self._mask is None and text.encode() != chunk.data
        raw = base64.b64encode(chunk.data).decode() if lossy else None
        return TextBlock(fidelity="router", text=text, stream=chunk.stream, raw=raw)

    def tail(self) -> str:
        """Return the end of the output, truncated at a character boundary."""
        text = self._tail.decode("utf-8", "replace")
        if self._mask is not None:
            # Mask before truncating: half a secret would no longer be recognized.
            text = self._mask.text(text)
        return text.encode()[-RESULT_TAIL_BYTES:].decode("utf-8", "ignore")


class TextTail:
    """The last `limit_chars` characters of a text that arrives in chunks."""

    def __init__(self, limit_chars: int) -> None:
        self._limit_chars = limit_chars
        self._chunks: deque[str] = deque()
        self._size = 0
        self.is_truncated = False
        """Whether text was dropped from the beginning."""

    def add(self, text: str) -> None:
        """Append a chunk of text."""
        self._chunks.append(text)
        self._size += len(text)
        self.is_truncated = self.is_truncated or self._size > self._limit_chars
        while self._size - len(self._chunks[0]) >= self._limit_chars:
            self._size -= len(self._chunks.popleft())

    def text(self) -> str:
        """Return the end of the text."""
        return "".join(self._chunks)[-self._limit_chars :]


def _incomplete_character_bytes(data: bytes) -> int:
    """Return the number of bytes at the end that begin a character whose rest may follow."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    decoder.decode(data[-4:])
    return len(decoder.getstate()[0])
