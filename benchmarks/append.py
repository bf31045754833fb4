"""Appending one event: typed event, checked, encoded, written, and seen by one live subscriber."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from time import gmtime, perf_counter
from typing import cast

import msgspec

from benchmarks.harness import Result, Side, interleave, log_progress, rate, scratch, seconds_of, warm_memory
from benchmarks.sample import LINE_BYTES, STEP, event, line, started
from shopfloor.log import Entry, new_run_id
from shopfloor.record import Recorder, Subscription

BURST = 64
"""Events between two turns of the event loop: a subscriber gets them together."""

_TURNS_TO_CATCH_UP = 3
"""Turns of the event loop: one to be notified, one to wake up, one to take the events that came meanwhile."""

Peer = Callable[[Path], AbstractContextManager[Callable[[], object]]]
"""Opens a peer in a folder and yields the function that appends one event."""


class _Ours:
    """A recorder with the default durability, and a task that receives its events live."""

    def __init__(self, recorder: Recorder, runner: asyncio.Runner, events: int, burst: int) -> None:
        self._recorder = recorder
        self._runner = runner
        self._events = events
        self._burst = burst
        self._payload = event()
        self._received = 0
        self._task = runner.get_loop().create_task(self._receive(recorder.subscribe()))

    async def _receive(self, subscription: Subscription) -> None:
        while items := await subscription.batch():
            self._received += sum(isinstance(item, Entry) for item in items)

    def __call__(self) -> float:
        seconds = self._runner.run(self._round())
        # Finish the group commit now, so that it does not slow down the other side's round.
        self._recorder.sync_pending()
        return seconds

    async def _round(self) -> float:
        append, payload = self._recorder.append, self._payload
        expected = self._received + self._events
        started_at = perf_counter()
        for first in range(0, self._events, self._burst):
            for _ in range(first, min(first + self._burst, self._events)):
                append(payload, path=STEP)
            await asyncio.sleep(0)
        for _ in range(_TURNS_TO_CATCH_UP):
            await asyncio.sleep(0)
        seconds = perf_counter() - started_at
        if self._received != expected:
            raise RuntimeError(f"the subscriber missed {expected - self._received:,} events")
        return seconds


@contextmanager
def _ours(folder: Path, events: int, burst: int) -> Iterator[Side]:
    with asyncio.Runner() as runner, Recorder(folder / "ours.jsonl", new_run_id(), new=True) as recorder:
        recorder.append(started())
        yield _Ours(recorder, runner, events, burst)


@contextmanager
def _ready_bytes(folder: Path) -> Iterator[Callable[[], object]]:
    """Yield the limit: a plain write of bytes that are ready."""
    ready = line(new_run_id(), event())
    descriptor = os.open(folder / "limit", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    yield lambda: os.write(descriptor, ready)
    os.close(descriptor)


@contextmanager
def _encoded(folder: Path) -> Iterator[Callable[[], object]]:
    """Yield the minimum for a typed event: envelope, encoding, writing; no checks, clock or subscriber."""
    run_id, payload = new_run_id(), event()
    descriptor = os.open(folder / "encoded", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    yield lambda: os.write(descriptor, line(run_id, payload))
    os.close(descriptor)


class _JsonFormatter(logging.Formatter):
    """A typical JSON formatter: the same line as ours, with the time of the log record."""

    converter = gmtime
    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"

    def format(self, record: logging.LogRecord) -> str:
        return json.dumps({**cast("dict[str, object]", record.msg), "timestamp": self.formatTime(record)})


@contextmanager
def _logging(folder: Path) -> Iterator[Callable[[], object]]:
    handler = logging.FileHandler(folder / "logging")
    handler.setFormatter(_JsonFormatter())
    logger = logging.getLogger("benchmarks.peer")
    logger.setLevel(logging.INFO)
    logger.propagate = False
    logger.addHandler(handler)
    data = msgspec.json.decode(line(new_run_id(), event()))
    yield lambda: logger.info(data)
    handler.close()


def _compare(
    name: str,
    peer: Peer,
    rounds: int,
    events: int,
    *,
    burst: int = BURST,
    warm: bool = False,
    floor: float | None = None,
) -> Result:
    log_progress(f"append against {name}, the subscriber's turn every {burst}")
    with scratch() as folder, _ours(folder, events, burst) as ours, peer(folder) as call:
        if warm:
            warm_memory(folder, 2 * (rounds + 1) * events * LINE_BYTES)

        def theirs() -> None:
            for _ in range(events):
                call()

        found = interleave(ours, lambda: seconds_of(theirs), rounds)
    return Result(
        measure=f"append {LINE_BYTES} bytes, read every {burst}{', recycled memory' if warm else ''}",
        ours=rate(events, found.ours, "events"),
        against=f"{name}: {rate(events, found.theirs, 'events')}",
        ratio=found.ratio,
        floor=floor,
    )


def run(*, quick: bool) -> list[Result]:
    long, short = ((4, 2_000), (4, 1_000)) if quick else ((25, 40_000), (11, 20_000))
    return [
        _compare("os.write of ready bytes", _ready_bytes, *long, floor=0.30),
        _compare("os.write of ready bytes", _ready_bytes, *long, warm=True),
        _compare("os.write of ready bytes", _ready_bytes, *short, burst=1),
        _compare("encode + os.write", _encoded, *short),
        _compare("logging, JSON formatter", _logging, *short, floor=5.0),
    ]
