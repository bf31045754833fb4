"""Server-sent events: parsed from the chunks of a response, and encoded for applications that pass events on."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, Iterator

import msgspec

from shopfloor.errors import ExecutionCancelled, ServerUnreachable, ShopfloorError
from shopfloor.limits import FRAME_BYTES
from shopfloor.views import DONE, StreamEvent, UnknownEvent, encode_event, finish, to_error_event

_BOM = b"\xef\xbb\xbf"


class Frame(msgspec.Struct, frozen=True):
    """One server-sent event. Without data it carries only an id, the position in the stream."""

    event: str
    data: str | None
    id: str | None = None


async def frames(chunks: AsyncIterable[bytes]) -> AsyncGenerator[Frame]:
    """Yield the complete frames in these chunks. An incomplete frame at the end is dropped."""
    reader = FrameReader()
    async for chunk in chunks:
        for frame in reader.feed(chunk):
            yield frame


class FrameReader:
    """Parses frames from chunks of bytes. Only LF, CRLF and CR end a line; other separators are text."""

    def __init__(self, max_bytes: int = FRAME_BYTES) -> None:
        self._max_bytes = max_bytes
        self._line: list[bytes] = []
        self._after_cr = False
        self._first = True
        self._size = 0
        self._event = ""
        self._data: list[str] = []
        self._id: str | None = None

    def feed(self, chunk: bytes) -> Iterator[Frame]:
        """Yield the frames that this chunk completes. Raises `ServerUnreachable` if a frame is too large."""
        self._size += len(chunk)
        if self._after_cr and chunk:
            chunk, self._after_cr = chunk.removeprefix(b"\n"), False
        for line in chunk.splitlines(keepends=True):
            content = line.rstrip(b"\r\n")
            self._line.append(content)
            if len(content) < len(line):
                frame = self._parse_line(b"".join(self._line))
                self._line.clear()
                if frame is not None:
                    yield frame
        self._after_cr = chunk.endswith(b"\r")
        if self._size > self._max_bytes:
            raise ServerUnreachable(f"the server sent an event of more than {self._max_bytes:,} bytes")

    def _parse_line(self, raw: bytes) -> Frame | None:
        if self._first:
            raw, self._first = raw.removeprefix(_BOM), False
        if not raw:
            return self._end_frame()
        name, _, value = raw.decode("utf-8", "replace").partition(":")
        value = value.removeprefix(" ")
        match name:
            case "event":
                self._event = value
            case "data":
                self._data.append(value)
            case "id":
                self._id = value
            case _:
                # A comment, or a field of a later version.
                pass
        return None

    def _end_frame(self) -> Frame | None:
        data = "\n".join(self._data) if self._data else None
        frame = Frame(self._event or "message", data, self._id)
        self._event, self._data, self._id, self._size = "", [], None, 0
        return None if frame.data is None and frame.id is None else frame


async def to_sse(events: AsyncIterable[StreamEvent | UnknownEvent]) -> AsyncGenerator[bytes]:
    """Yield the body of a `text/event-stream` response that passes these events on.

    If the events end with a `ShopfloorError`, the body ends with an `error` event, since the status has already been
    sent. Closing the body closes the events, which cancels an execution that has not ended.
    """
    try:
        async for event in events:
            yield _data(encode_event(event))
    except ShopfloorError as error:
        reason = "cancelled" if isinstance(error, ExecutionCancelled) else "error"
        yield _data(encode_event(to_error_event(error))) + _data(encode_event(finish(reason)))
    finally:
        if isinstance(events, AsyncGenerator):
            await events.aclose()
    yield _data(DONE.encode())


def _data(raw: bytes) -> bytes:
    return b"data: %b\n\n" % raw
