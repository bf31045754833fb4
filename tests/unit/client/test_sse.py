"""Server-sent events: parsing of arbitrary chunks, and encoding."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from itertools import pairwise

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.sample_events import RUN_ID

from shopfloor.client import Start, StreamEvent, TextDelta, UnknownEvent, to_sse
from shopfloor.client.sse import Frame, FrameReader
from shopfloor.errors import ExecutionCancelled, ServerUnreachable
from shopfloor.views import finish

BODY = (
    '\ufeff: heartbeat\n\nid: 7\nevent: delta\ndata: {"a": "äöü 😀 \u2028 \x85"}\n\ndata:x\ndata: y\n\n'
    "retry: 5\nunknown: 1\n\nid: 9\n\ndata: last\n\ndata: never ended\n"
).encode()
FRAMES = [
    Frame("delta", '{"a": "äöü 😀 \u2028 \x85"}', "7"),
    Frame("message", "x\ny"),
    Frame("message", None, "9"),
    Frame("message", "last"),
]


def read(chunks: Iterable[bytes], reader: FrameReader | None = None) -> list[Frame]:
    reader = reader or FrameReader()
    return [frame for chunk in chunks for frame in reader.feed(chunk)]


@given(st.sets(st.integers(0, len(BODY)), max_size=30), st.sampled_from([b"\n", b"\r\n", b"\r"]))
def test_frames_are_independent_of_chunks_and_line_endings(cuts: set[int], end: bytes) -> None:
    body = BODY.replace(b"\n", end)
    places = [0, *sorted(cuts), len(body)]
    assert read(body[a:b] for a, b in pairwise(places)) == FRAMES


def test_frames_are_the_same_byte_by_byte() -> None:
    assert read(bytes([byte]) for byte in BODY.replace(b"\n", b"\r\n")) == FRAMES


def test_an_event_without_an_end_is_an_error() -> None:
    with pytest.raises(ServerUnreachable):
        read([b"data: ", *[b"x" * 100] * 20], FrameReader(1_000))
    assert len(read([b"data: 1\n\n"] * 1_000, FrameReader(1_000))) == 1_000


def body_of(events: AsyncGenerator[StreamEvent | UnknownEvent]) -> bytes:
    async def main() -> bytes:
        return b"".join([part async for part in to_sse(events)])

    return anyio.run(main)


@pytest.mark.req("SDK-24")
def test_events_become_a_body_that_an_http_handler_can_send() -> None:
    async def events() -> AsyncGenerator[StreamEvent | UnknownEvent]:
        yield Start(execution_id=RUN_ID)
        yield TextDelta(id="m:0", delta="a\nb")
        yield UnknownEvent("new", {"type": "new", "x": 1})
        yield finish("stop")

    assert body_of(events()) == (
        b'data: {"type":"start","executionId":"%b"}\n\n'
        b'data: {"type":"text-delta","id":"m:0","delta":"a\\nb"}\n\n'
        b'data: {"type":"new","x":1}\n\n'
        b'data: {"type":"finish","finishReason":"stop","reason":"stop"}\n\n'
        b"data: [DONE]\n\n" % RUN_ID.encode()
    )


def test_a_body_ends_with_the_error_of_its_events() -> None:
    async def broken() -> AsyncGenerator[StreamEvent | UnknownEvent]:
        yield Start(execution_id=RUN_ID)
        raise ServerUnreachable("gone", hint="look")

    async def cancelled() -> AsyncGenerator[StreamEvent | UnknownEvent]:
        yield Start(execution_id=RUN_ID)
        raise ExecutionCancelled("enough")

    finished = b'data: {"type":"finish","finishReason":"error","reason":"error"}'
    assert b'"code":"server_unreachable","retryable":false,"hint":"look"}\n\n' + finished in body_of(broken())
    assert b'"reason":"cancelled"}\n\ndata: [DONE]' in body_of(cancelled())


def test_closing_a_body_closes_its_events() -> None:
    closed: list[bool] = []

    async def events() -> AsyncGenerator[StreamEvent | UnknownEvent]:
        try:
            while True:
                yield Start(execution_id=RUN_ID)
        finally:
            closed.append(True)

    async def main() -> None:
        body = to_sse(events())
        await anext(body)
        await body.aclose()
        assert closed == [True]

    anyio.run(main)
