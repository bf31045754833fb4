"""When chunks of messages are written, with a fake clock, so that no test has to wait."""

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
    """A clock that advances only when a task sleeps."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


class Typist:
    """A message in progress that records when its chunks are written."""

    def __init__(self, clock: Clock, writer: PartialMessageWriter) -> None:
        self.written: list[tuple[float, str]] = []
        self.fails: list[Exception] = []
        self._clock = clock
        self._writer = writer

    async def write(self, piece: AssistantMessage) -> None:
        if self.fails:
            raise self.fails.pop()
        self.written.append((round(self._clock.now - 100, 3), "".join(one.chunk for one, *_ in chunk_blocks(piece))))

    def types(self, message: PartialMessage, text: str) -> None:
        message.grow(0, "text", text)
        self._writer.schedule_write(message, self.write)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(partial_message_writer, "time", clock)
    return clock


@pytest.fixture
def pass_(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Callable[[float], Awaitable[None]]:
    """Advance the clock and wake sleeping tasks in order."""
    sleep = anyio.sleep

    async def slept(seconds: float) -> None:
        until = clock.now + seconds
        while clock.now < until:
            await sleep(0)

    async def settle() -> None:
        for _ in range(20):
            await sleep(0)

    async def passed(seconds: float) -> None:
        await settle()
        for _ in range(round(seconds * 100)):
            clock.now = round(clock.now + 0.01, 3)
            await settle()

    monkeypatch.setattr(partial_message_writer.anyio, "sleep", slept)
    return passed


async def test_text_is_written_a_second_after_its_first_character_and_then_once_a_second(
    clock: Clock, pass_: Callable[[float], Awaitable[None]]
) -> None:
    writer = PartialMessageWriter(None)
    typist, message = Typist(clock, writer), PartialMessage("m")
    async with writer.running():
        for word in range(14):
            typist.types(message, f"{word} ")
            await pass_(0.25)
        assert typist.written == [(1.0, "0 1 2 3 "), (2.0, "4 5 6 7 "), (3.0, "8 9 10 11 ")]
        # The stream stalled: the rest is written anyway.
        await pass_(2)
        assert typist.written[3:] == [(4.0, "12 13 ")]
        typist.types(message, "later")
        await pass_(1)
        assert typist.written[4:] == [(6.5, "later")]


async def test_a_message_that_is_complete_within_a_second_has_no_chunk(
    clock: Clock, pass_: Callable[[float], Awaitable[None]]
) -> None:
    writer = PartialMessageWriter(None)
    typist, first, second = Typist(clock, writer), PartialMessage("m1"), PartialMessage("m2")
    async with writer.running():
        typist.types(first, "first")
        await pass_(0.6)
        first.clear()
        typist.types(second, "second")
        await pass_(0.9)
        second.clear()
        await pass_(3)
    assert typist.written == []


async def test_a_chunk_that_does_not_fit_on_the_disk_is_written_with_the_next(
    clock: Clock, pass_: Callable[[float], Awaitable[None]]
) -> None:
    writer = PartialMessageWriter(None)
    typist, message = Typist(clock, writer), PartialMessage("m")
    typist.fails = [StorageError("no room")]
    async with writer.running():
        typist.types(message, "a")
        await pass_(1.5)
        assert typist.written == []
        typist.types(message, "b")
        await pass_(1)
    assert typist.written == [(2.0, "ab")]


async def test_an_error_of_the_step_is_raised_unchanged_and_a_closed_log_ends_only_the_chunks(
    clock: Clock, pass_: Callable[[float], Awaitable[None]]
) -> None:
    writer = PartialMessageWriter(None)
    typist, message = Typist(clock, writer), PartialMessage("m")
    typist.fails = [LogClosed("closed")]

    async def step() -> None:
        async with writer.running():
            typist.types(message, "a")
            await pass_(2)
            raise ValueError("of the step")

    with pytest.raises(ValueError, match="of the step"):
        await step()
    assert typist.written == []
