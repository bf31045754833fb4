"""Followers of local logs: notified by writers of this process, polling for others, with deltas.

The behavior that all adapters share is tested in tests/contract/test_log_reader.py.
"""

from __future__ import annotations

import os
import sys
import threading
from contextlib import aclosing
from typing import Any

import anyio
import pytest
from tests.log_follower import Follower, delta, message, simplify
from tests.timeouts import TIMEOUT_SECONDS

from shopfloor.adapters.local import LocalBus, LocalLogReader, LocalLogs
from shopfloor.limits import FOLLOWER_DELTAS
from shopfloor.log import (
    Reset,
    RunCompleted,
    RunStarted,
    new_run_id,
)
from shopfloor.record import Recorder, Storage

pytestmark = pytest.mark.anyio
STARTED = RunStarted(name="w", kind="worker", attempt=1, host="h")
ENDED = RunCompleted(name="w", kind="worker", status="completed")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def bus() -> LocalBus:
    return LocalBus()


@pytest.fixture
def logs(storage: Storage, bus: LocalBus) -> LocalLogs:
    return LocalLogs(storage, bus=bus)


@pytest.fixture
def reader(storage: Storage, bus: LocalBus) -> LocalLogReader:
    return LocalLogReader(storage, bus=bus)


@pytest.fixture
def notified_reader(storage: Storage, bus: LocalBus) -> LocalLogReader:
    """Return a reader whose followers do not poll within the time of a test."""
    return LocalLogReader(storage, bus=bus, poll_seconds=10 * TIMEOUT_SECONDS)


# Notifications


@pytest.mark.req("SF-39")
async def test_a_follower_gets_events_of_its_own_process_at_once(
    logs: LocalLogs, notified_reader: LocalLogReader, bus: LocalBus
) -> None:
    received: list[Any] = []
    has_items = anyio.Event()

    async def follow() -> None:
        nonlocal has_items
        async for batch in notified_reader.follow(run_id):
            received.extend(map(simplify, batch))
            has_items.set()

    run_id = new_run_id()
    with anyio.fail_after(TIMEOUT_SECONDS):
        async with logs.open(run_id) as log, anyio.create_task_group() as tasks:
            await log.append(STARTED)
            tasks.start_soon(follow)
            for number in range(2, 8):
                while len(received) < number - 1:
                    has_items = anyio.Event()
                    await has_items.wait()
                # The follower is waiting by now.
                await anyio.sleep(0.01)
                await log.append(message(str(number)))
            await log.append(ENDED)
    assert received == list(range(1, 9))
    assert bus._fanouts == {}


async def test_a_writer_in_another_thread_wakes_its_followers_too(
    logs: LocalLogs, notified_reader: LocalLogReader, bus: LocalBus
) -> None:
    run_id = new_run_id()
    has_started, go_on = threading.Event(), threading.Event()

    async def write() -> None:
        async with logs.open(run_id) as log:
            await log.append(STARTED)
            has_started.set()
            for number in range(2, 30):
                await log.append(message(str(number)))
                await anyio.sleep(0.002 * (number % 3))
            go_on.wait(TIMEOUT_SECONDS)
            await anyio.sleep(0.05)
            await log.append(ENDED)

    writer = threading.Thread(target=anyio.run, args=(write,))
    writer.start()
    has_started.wait(TIMEOUT_SECONDS)
    follower = Follower(notified_reader.follow(run_id))
    await follower.until(lambda: len(follower.received) == 29)
    go_on.set()
    assert await follower.rest() == list(range(1, 31))
    writer.join()
    assert bus._fanouts == {}


async def test_a_follower_is_notified_at_once_when_the_writer_ends(
    logs: LocalLogs, notified_reader: LocalLogReader
) -> None:
    run_id = new_run_id()
    received: list[Any] = []

    async def follow() -> None:
        received.extend(await Follower(notified_reader.follow(run_id)).rest())

    with anyio.fail_after(TIMEOUT_SECONDS):
        async with anyio.create_task_group() as tasks, logs.open(run_id) as log:
            await log.append(STARTED)
            tasks.start_soon(follow)
            await anyio.sleep(0.05)
    assert received == [1]


_OTHER_PROCESS = """
import sys, time
from pathlib import Path
from shopfloor.log import AssistantMessage, RunCompleted, RunStarted, TextBlock
from shopfloor.record import Recorder
with Recorder(Path(sys.argv[1]), sys.argv[2]) as recorder:
    recorder.append(RunStarted(name="w", kind="worker", attempt=1, host="h"))
    for number in range(30):
        recorder.append(AssistantMessage(blocks=[TextBlock(fidelity="router", text=str(number))]), path="s")
        time.sleep(0.005)
    recorder.append(RunCompleted(name="w", kind="worker", status="completed"))
"""


async def test_a_log_that_another_process_writes_is_followed(storage: Storage, reader: LocalLogReader) -> None:
    run_id = new_run_id()
    path = storage.log_path(run_id)
    async with await anyio.open_process([sys.executable, "-c", _OTHER_PROCESS, str(path), run_id]) as writer:
        assert await Follower(reader.follow(run_id, deltas=True, wait_for_writer=True)).rest() == list(range(1, 33))
        assert await writer.wait() == 0


async def test_a_follower_with_a_closed_loop_does_not_disturb_the_writer(logs: LocalLogs, bus: LocalBus) -> None:
    run_id = new_run_id()
    listening = bus.subscribe(run_id, deltas=True)

    async def listen() -> None:
        listening.__enter__()

    thread = threading.Thread(target=anyio.run, args=(listen,))
    thread.start()
    thread.join()
    async with logs.open(run_id) as log:
        await log.append(STARTED)
        log.publish_delta(delta(1, "a"))
        await log.append(ENDED)


# Deltas


async def test_a_delta_comes_after_its_event_even_if_that_was_not_published(
    storage: Storage, logs: LocalLogs, reader: LocalLogReader, bus: LocalBus
) -> None:
    run_id = new_run_id()
    with Recorder(storage.log_path(run_id), run_id) as silent:
        silent.append(STARTED)
        follower = Follower(reader.follow(run_id, deltas=True))
        await follower.has(1)
        silent.append(message("between", "m0"), path="s")
        bus.publish_delta(run_id, delta(2, "later"))
        await follower.has(1, 2, "later")


async def test_deltas_and_events_that_arrive_together_keep_their_order(logs: LocalLogs, reader: LocalLogReader) -> None:
    run_id = new_run_id()
    async with logs.open(run_id) as log:
        await log.append(STARTED)
        follower = Follower(reader.follow(run_id, deltas=True))
        late = Follower(reader.follow(run_id, deltas=True))
        await late.has(1)
        await follower.until(lambda: follower.quiet > 0)
        # All of this while the followers do not read.
        log.publish_delta(delta(1, "Hel", "m1"))
        log.publish_delta(delta(1, "other", "m2"))
        log.publish_delta(delta(1, "lo", "m1", offset=3))
        await log.append(message("Hello", "m1"), path="s")
        log.publish_delta(delta(2, "more", "m2", offset=5))
        await follower.has(1, "Hel", "other", "lo", 2, "more")
        # A follower that reads the log meanwhile gets no delta of a message that is complete there.
        await late.has(1, 2, "more")


async def test_a_late_follower_gets_only_new_deltas(logs: LocalLogs, reader: LocalLogReader) -> None:
    run_id = new_run_id()
    async with logs.open(run_id) as log:
        await log.append(STARTED)
        log.publish_delta(delta(1, "missed"))
        follower = Follower(reader.follow(run_id, after=1, deltas=True))
        await follower.until(lambda: follower.quiet > 0)
        log.publish_delta(delta(1, "heard", offset=6))
        await follower.has("heard")


async def test_a_follower_that_does_not_read_buffers_a_limited_number_of_deltas(
    logs: LocalLogs, reader: LocalLogReader
) -> None:
    run_id = new_run_id()
    async with logs.open(run_id) as log:
        await log.append(STARTED)
        follower = Follower(reader.follow(run_id, deltas=True))
        await follower.has(1)
        for number in range(FOLLOWER_DELTAS + 500):
            log.publish_delta(delta(1, str(number)))
        await follower.has(1, *map(str, range(FOLLOWER_DELTAS)))
        # The buffer has room again.
        log.publish_delta(delta(1, "new"))
        await follower.until(lambda: follower.received[-1] == "new")


async def test_deltas_after_the_lost_end_of_a_log_are_dropped(
    storage: Storage, logs: LocalLogs, reader: LocalLogReader, bus: LocalBus
) -> None:
    run_id = new_run_id()
    path = storage.log_path(run_id)
    async with logs.open(run_id) as log:
        await log.append(STARTED)
        size = path.stat().st_size
        await log.append(message("lost"), path="s")
    follower = Follower(reader.follow(run_id, deltas=True, wait_for_writer=True))
    await follower.has(1, 2)
    os.truncate(path, size)
    bus.publish_delta(run_id, delta(2, "of what is gone"))
    await follower.has(1, 2, Reset(1))
    async with logs.open(run_id) as log:
        await log.append(message("again"), path="s")
        log.publish_delta(delta(2, "new"))
        await follower.has(1, 2, Reset(1), 2, "new")


# End


async def test_closing_a_follower_ends_its_subscription(logs: LocalLogs, reader: LocalLogReader, bus: LocalBus) -> None:
    run_id = new_run_id()
    async with logs.open(run_id) as log:
        await log.append(STARTED)
        async with aclosing(reader.follow(run_id)) as batches, aclosing(reader.follow(run_id)) as others:  # type: ignore[type-var]
            await anext(batches)
            await anext(others)
            assert len(bus._fanouts[run_id]) == 2
        assert bus._fanouts == {}
