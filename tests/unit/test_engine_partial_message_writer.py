"""The times at which pieces of messages are written, with a fake clock."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio
import pytest

from shopfloor.engine import partial_message_writer
from shopfloor.engine.partial_message_writer import PartialMessageWriter
from shopfloor.errors import LogClosed, StorageError
from shopfloor.log import AssistantMessage, PartialMessage, chunk_blocks

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Clock:
    """A clock that only the test advances."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


class Typist:
    """A source of text that notes when its pieces are written."""

    def __init__(self, clock: Clock, writer: PartialMessageWriter) -> None:
        self.written: list[tuple[float, str]] = []
        self.errors: list[Exception] = []
        self._clock = clock
        self._writer = writer

    async def write(self, piece: AssistantMessage) -> None:
        if self.errors:
            raise self.errors.pop()
        self.written.append(
            (round(self._clock.now - 100, 3), "".join(block.chunk for block, *_ in chunk_blocks(piece)))
        )

    def type(self, message: PartialMessage, text: str) -> None:
        message.append_text(0, "text", text)
        self._writer.schedule_write(message, self.write)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(partial_message_writer, "time", clock)
    return clock


@pytest.fixture
def advance(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Callable[[float], Awaitable[None]]:
    """Return a function that advances the clock and wakes up sleeping tasks in time."""
    sleep = anyio.sleep

    async def fake_sleep(seconds: float) -> None:
        until = clock.now + seconds
        while clock.now < until:
            await sleep(0)

    async def settle() -> None:
        for _ in range(20):
            await sleep(0)

    async def advance_by(seconds: float) -> None:
        await settle()
        for _ in range(round(seconds * 100)):
            clock.now = round(clock.now + 0.01, 3)
            await settle()

    monkeypatch.setattr(partial_message_writer.anyio, "sleep", fake_sleep)
    return advance_by


async def test_text_is_written_a_second_after_its_first_character_and_then_once_a_second(
    clock: Clock, advance: Callable[[float], Awaitable[None]]
) -> None:
    writer = PartialMessageWriter(None)
    typist, message = Typist(clock, writer), PartialMessage("m")
    async with writer.running():
        for word in range(14):
            typist.type(message, f"{word} ")
            await advance(0.25)
        assert typist.written == [(1.0, "0 1 2 3 "), (2.0, "4 5 6 7 "), (3.0, "8 9 10 11 ")]
        # The rest is written although no more text follows.
        await advance(2)
        assert typist.written[3:] == [(4.0, "12 13 ")]
        typist.type(message, "later")
        await advance(1)
        assert typist.written[4:] == [(6.5, "later")]


async def test_a_message_that_completes_within_a_second_leaves_no_piece(
    clock: Clock, advance: Callable[[float], Awaitable[None]]
) -> None:
    writer = PartialMessageWriter(None)
    typist, first, second = Typist(clock, writer), PartialMessage("m1"), PartialMessage("m2")
    async with writer.running():
        typist.type(first, "first")
        await advance(0.6)
        first.clear()
        typist.type(second, "second")
        await advance(0.9)
        second.clear()
        await advance(3)
    assert typist.written == []


async def test_a_piece_that_does_not_fit_on_the_disk_is_written_with_the_next(
    clock: Clock, advance: Callable[[float], Awaitable[None]]
) -> None:
    writer = PartialMessageWriter(None)
    typist, message = Typist(clock, writer), PartialMessage("m")
    typist.errors = [StorageError("no room")]
    async with writer.running():
        typist.type(message, "a")
        await advance(1.5)
        assert typist.written == []
        typist.type(message, "b")
        await advance(1)
    assert typist.written == [(2.0, "ab")]


async def test_an_error_of_the_step_is_raised_as_it_is_and_a_closed_log_ends_only_the_pieces(
    clock: Clock, advance: Callable[[float], Awaitable[None]]
) -> None:
    writer = PartialMessageWriter(None)
    typist, message = Typist(clock, writer), PartialMessage("m")
    typist.errors = [LogClosed("closed")]

    async def step() -> None:
        async with writer.running():
            typist.type(message, "a")
            await advance(2)
            raise ValueError("of the step")

    with pytest.raises(ValueError, match="of the step"):
        await step()
    assert typist.written == []
