"""The contract of the port `LogReader`, for every adapter."""

from __future__ import annotations

import sys
import threading
from collections.abc import Generator
from contextlib import aclosing, contextmanager
from itertools import product
from typing import Any

import anyio
import anyio.to_thread
import pytest
from tests.contract.storages import TIMEOUT_SECONDS, StorageUnderTest
from tests.log_follower import Batch, Follower, delta, message
from tests.sample_events import PARENT_ID, RUN_ID, assistant_message, completed, started

from shopfloor.adapters.bus import InProcessBus
from shopfloor.errors import RunNotFound
from shopfloor.log import Delta, Entry, Masking, Reset, new_run_id
from shopfloor.ports import Log, LogReader, Logs, Subscription, child_on_path_to, parent_of

pytestmark = [pytest.mark.anyio, pytest.mark.req("SF-38")]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def write(logs: Logs, count: int, run_id: str = RUN_ID, *, ends: bool = False) -> list[Entry]:
    """Write a log of `count` events."""
    async with logs.open(run_id) as log:
        entries = [await log.append(started())]
        for number in range(2, count + 1 - ends):
            entries.append(await log.append(assistant_message(f"event {number}"), path="s"))
        return [*entries, await log.append(completed())] if ends else entries


# Pages


async def test_a_missing_log_has_no_page(reader: LogReader) -> None:
    assert await reader.page(RUN_ID, limit=9) is None
    assert await reader.page(RUN_ID, before=3, limit=9) is None


async def test_a_page_has_the_events_between_two_the_first_of_them_or_the_last(logs: Logs, reader: LogReader) -> None:
    entries = await write(logs, 6)
    for after, before, limit in product((0, 1, 3, 5, 6, 9), (None, 1, 2, 4, 6, 7, 12, sys.maxsize), (1, 2, 4, 50)):
        between = [entry for entry in entries if after < entry.seq and (before is None or entry.seq < before)]
        wanted = between[-limit:] if before is not None and not after else between[:limit]
        assert await reader.page(RUN_ID, after=after, before=before, limit=limit) == wanted, (after, before, limit)


async def test_pages_of_a_long_log_meet_forwards_and_backwards(logs: Logs, reader: LogReader) -> None:
    entries = await write(logs, 2_500)
    forwards: list[Entry] = []
    while page := await reader.page(RUN_ID, after=forwards[-1].seq if forwards else 0, limit=300):
        forwards += page
    assert forwards == entries
    backwards: list[Entry] = []
    while page := await reader.page(RUN_ID, before=backwards[0].seq if backwards else sys.maxsize, limit=300):
        backwards = page + backwards
    assert backwards == entries


async def test_a_page_of_a_growing_log_has_every_acknowledged_event(logs: Logs, reader: LogReader) -> None:
    async with logs.open(RUN_ID) as log:
        for number in range(1, 20):
            await log.append(started(number))
            last = await reader.page(RUN_ID, before=sys.maxsize, limit=1)
            assert [entry.seq for entry in last or []] == [number]


async def test_a_log_that_has_lost_its_end_has_pages_up_to_there(
    storage_under_test: StorageUnderTest, logs: Logs, reader: LogReader
) -> None:
    entries = await write(logs, 6)
    storage_under_test.truncate_log(RUN_ID, 4)
    assert await reader.page(RUN_ID, limit=99) == entries[:4]
    assert await reader.page(RUN_ID, after=3, limit=99) == entries[3:4]
    assert await reader.page(RUN_ID, after=5, limit=99) == []
    assert await reader.page(RUN_ID, before=sys.maxsize, limit=2) == entries[2:4]


async def test_parents_and_children_of_a_run_are_read_from_its_logs(logs: Logs, reader: LogReader) -> None:
    child, below = new_run_id(), new_run_id()
    for run_id, parent in ((PARENT_ID, None), (child, PARENT_ID), (below, child)):
        async with logs.open(run_id, parent_run_id=parent) as log:
            await log.append(started())
    assert [await parent_of(reader, run_id) for run_id in (PARENT_ID, child, below, RUN_ID)] == [
        None,
        PARENT_ID,
        child,
        None,
    ]
    assert await child_on_path_to(reader, PARENT_ID, below) == child
    assert await child_on_path_to(reader, below, PARENT_ID) is None


# Writers


async def test_a_log_exists_from_its_first_opening_until_it_is_deleted(logs: Logs, reader: LogReader) -> None:
    assert not await reader.has_log(RUN_ID)
    async with logs.open(RUN_ID):
        assert await reader.has_log(RUN_ID)
    assert await reader.has_log(RUN_ID)
    await logs.delete(RUN_ID)
    assert not await reader.has_log(RUN_ID)


async def test_a_log_has_a_writer_while_it_is_open(logs: Logs, reader: LogReader) -> None:
    assert not await reader.has_writer(RUN_ID)
    for attempt in (1, 2):
        async with logs.open(RUN_ID) as log:
            assert await reader.has_writer(RUN_ID)
            await log.append(started(attempt))
            assert await reader.has_writer(RUN_ID)
        assert not await reader.has_writer(RUN_ID)


async def test_a_run_has_an_active_host_while_its_log_is_written_or_its_host_is_alive(
    storage_under_test: StorageUnderTest, logs: Logs, reader: LogReader
) -> None:
    assert not await reader.has_active_host(RUN_ID, None)
    async with logs.open(RUN_ID):
        assert await reader.has_active_host(RUN_ID, None)
        assert await reader.has_active_host(RUN_ID, "gone-1")
    async with storage_under_test.host(is_dedicated=False) as host:
        assert await reader.has_active_host(RUN_ID, host.name)
        assert not await reader.has_active_host(RUN_ID, "gone-1")
        assert not await reader.has_active_host(RUN_ID, None)
    # A log can contain anything as its host.
    for name in (host.name, "", "../x", "x" * 5_000, "\0"):
        assert not await reader.has_active_host(RUN_ID, name)


# Batches and copies


async def test_batches_have_every_event_once_and_in_order(logs: Logs, reader: LogReader) -> None:
    async with logs.open(RUN_ID) as log:
        entries = [await log.append(started())]
        for number in range(2, 3_000):
            entries.append(await log.append(assistant_message("x" * 200), path="s", iteration=number))
    for after in (0, 1, 1_500, 2_998, 2_999, 9_999):
        batches = [batch async for batch in reader.batches(RUN_ID, after=after)]
        assert [entry for batch in batches for entry in batch] == entries[after:]
        assert all(batches)
        # A long log is never in memory completely.
        assert len(batches) > 1 or after


async def test_batches_of_a_missing_log_are_an_error(reader: LogReader) -> None:
    with pytest.raises(RunNotFound):
        await anext(reader.batches(RUN_ID))


async def test_a_copy_has_the_bytes_of_the_log_at_one_moment(logs: Logs, reader: LogReader) -> None:
    assert await reader.copy(RUN_ID) is None
    async with logs.open(RUN_ID) as log:
        empty = await reader.copy(RUN_ID)
        entries = [await log.append(started()), await log.append(assistant_message("x" * 1_000_000), path="s")]
        copy = await reader.copy(RUN_ID)
        await log.append(assistant_message("later"), path="s")
    assert empty is not None
    assert (empty.size, [delta async for delta in empty.chunks()]) == (0, [])
    assert copy is not None
    copied = b"".join([delta async for delta in copy.chunks()])
    assert copied == b"".join(entry.raw + b"\n" for entry in entries)
    assert copy.size == len(copied)


# Followers


@pytest.mark.parametrize("wait_for_writer", [False, True], ids=["", "wait_for_writer"])
async def test_an_ended_log_is_read_completely_and_following_ends(
    logs: Logs, reader: LogReader, wait_for_writer: bool
) -> None:
    await write(logs, 5, ends=True)
    for after in range(6):
        assert (
            await Follower(reader.follow(RUN_ID, after=after, wait_for_writer=wait_for_writer)).rest()
            == [1, 2, 3, 4, 5][after:]
        )


async def test_a_log_without_a_writer_is_read_to_its_end(logs: Logs, reader: LogReader) -> None:
    await write(logs, 5)
    assert await Follower(reader.follow(RUN_ID)).rest() == [1, 2, 3, 4, 5]
    assert await Follower(reader.follow(RUN_ID, after=5)).rest() == []


async def test_following_a_missing_log_is_an_error(reader: LogReader) -> None:
    with pytest.raises(RunNotFound):
        await anext(reader.follow(RUN_ID))


async def test_events_come_as_they_are_written_and_the_outcome_is_the_end(logs: Logs, reader: LogReader) -> None:
    async with logs.open(RUN_ID) as log:
        await log.append(started())
        follower, late = Follower(reader.follow(RUN_ID)), Follower(reader.follow(RUN_ID, after=6))
        for number in range(2, 12):
            await follower.has(*range(1, number))
            await log.append(assistant_message(str(number)), path="s")
            if number % 3 == 0:
                await follower.is_quiet()
        await log.append(completed())
        assert await follower.rest() == list(range(1, 13))
        assert await late.rest() == list(range(7, 13))


async def test_a_follower_yields_empty_batches_while_nothing_is_written(logs: Logs, reader: LogReader) -> None:
    async with logs.open(RUN_ID) as log:
        await log.append(started())
        follower = Follower(reader.follow(RUN_ID))
        await follower.until(lambda: follower.quiet > 3)
        assert follower.received == [1]


async def test_following_ends_when_the_writer_ends_without_an_outcome(logs: Logs, reader: LogReader) -> None:
    received: list[Any] = []

    async def follow() -> None:
        received.extend(await Follower(reader.follow(RUN_ID)).rest())

    with anyio.fail_after(TIMEOUT_SECONDS):
        async with anyio.create_task_group() as tasks, logs.open(RUN_ID) as log:
            await log.append(started())
            tasks.start_soon(follow)
            await anyio.sleep(0.05)
            await log.append(assistant_message("the last"), path="s")
    assert received == [1, 2]


async def test_wait_for_writer_waits_for_the_log_and_for_its_next_writer(
    storage_under_test: StorageUnderTest, reader: LogReader
) -> None:
    follower = Follower(reader.follow(RUN_ID, deltas=True, wait_for_writer=True))
    await follower.is_quiet()
    async with storage_under_test.logs().open(RUN_ID) as log:
        await log.append(started())
        await follower.has(1)
    await follower.is_quiet()
    async with storage_under_test.logs().open(RUN_ID) as log:
        await log.append(started(2))
        log.publish_delta(delta(2, "again"))
        await follower.has(1, 2, "again")
        await log.append(completed())
    assert await follower.rest() == [1, 2, "again", 3]


async def test_wait_for_writer_ends_when_the_log_is_deleted(logs: Logs, reader: LogReader) -> None:
    await write(logs, 2)
    follower = Follower(reader.follow(RUN_ID, wait_for_writer=True))
    await follower.has(1, 2)
    await logs.delete(RUN_ID)
    assert await follower.rest() == [1, 2]


@pytest.mark.parametrize("after", [2, 5], ids=["live", "from the start"])
async def test_a_follower_of_a_truncated_log_gets_a_reset_and_continues(
    storage_under_test: StorageUnderTest, logs: Logs, reader: LogReader, after: int
) -> None:
    entries = await write(logs, 5)
    follower = Follower(reader.follow(RUN_ID, after=after, wait_for_writer=True))
    if after == 2:
        await follower.has(3, 4, 5)
    before = list(follower.received)
    storage_under_test.truncate_log(RUN_ID, 3)
    await follower.has(*before, Reset(3))
    async with logs.open(RUN_ID) as log:
        again = await log.append(assistant_message("again"), path="s")
        assert again != entries[3]
        await log.append(completed())
    assert await follower.rest() == [*before, Reset(3), 4, 5]


async def test_events_written_faster_than_read_all_arrive_exactly_once(logs: Logs, reader: LogReader) -> None:
    async with logs.open(RUN_ID) as log:
        await log.append(started())
        follower = Follower(reader.follow(RUN_ID, deltas=True))
        await follower.has(1)
        for number in range(2, 2_000):
            await log.append(assistant_message(str(number)), path="s")
        await log.append(completed())
    assert await follower.rest() == list(range(1, 2_001))


async def test_followers_in_several_threads_all_get_everything_in_order(logs: Logs, reader: LogReader) -> None:
    messages, pieces = 30, 12
    received: dict[int, Batch] = {}

    async def follow(number: int) -> None:
        received[number] = []
        with anyio.fail_after(2 * TIMEOUT_SECONDS):
            async for batch in reader.follow(RUN_ID, deltas=number > 0, wait_for_writer=True):
                received[number] += batch

    threads = [threading.Thread(target=anyio.run, args=(follow, number)) for number in range(4)]
    for thread in threads:
        thread.start()
    async with logs.open(RUN_ID) as log:
        await log.append(started())
        await _write_messages(log, messages, pieces)
        await log.append(completed())
    await anyio.to_thread.run_sync(lambda: [thread.join() for thread in threads])
    for number, before in received.items():
        assert [item.seq for item in before if isinstance(item, Entry)] == list(range(1, messages + 3))
        _check_order(before)
        assert number or not any(isinstance(item, Delta) for item in before)


async def _write_messages(log: Log, messages: int, pieces: int) -> None:
    for number in range(messages):
        for offset in range(pieces):
            log.publish_delta(delta(number + 1, "x", f"m{number}", offset))
            if offset % 5 == number % 5:
                await anyio.sleep(0.001)
        await log.append(message("x" * pieces, f"m{number}"), path="s")


def _check_order(before: Batch) -> None:
    """Check that each delta comes after its event, before its message, and in the order of publication."""
    seq, offsets = 0, dict[str, int]()
    for item in before:
        if isinstance(item, Entry):
            seq = item.seq
        elif isinstance(item, Delta):
            # The message m<n> is the event n + 2.
            assert item.after <= seq < int(item.message_id[1:]) + 2
            assert item.offset > offsets.get(item.message_id, -1)
            offsets[item.message_id] = item.offset


# Deltas


async def test_deltas_come_between_the_event_they_follow_and_their_message(logs: Logs, reader: LogReader) -> None:
    async with logs.open(RUN_ID) as log:
        await log.append(started())
        with_deltas, without = Follower(reader.follow(RUN_ID, deltas=True)), Follower(reader.follow(RUN_ID))
        await with_deltas.has(1)
        await with_deltas.is_quiet()
        log.publish_delta(delta(1, "Hel"))
        log.publish_delta(delta(1, "lo", offset=3))
        await with_deltas.has(1, "Hel", "lo")
        await log.append(message("Hello", "m1"), path="s")
        log.publish_delta(delta(2, "Bye", "m2"))
        await with_deltas.has(1, "Hel", "lo", 2, "Bye")
        await log.append(message("Bye", "m2"), path="s")
        await log.append(completed())
    assert await with_deltas.rest() == [1, "Hel", "lo", 2, "Bye", 3, 4]
    assert await without.rest() == [1, 2, 3, 4]


async def test_deltas_are_not_stored(logs: Logs, reader: LogReader) -> None:
    async with logs.open(RUN_ID) as log:
        await log.append(started())
        log.publish_delta(delta(1, "Hel"))
        await log.append(completed())
    assert await Follower(reader.follow(RUN_ID, deltas=True)).rest() == [1, 2]
    copy = await reader.copy(RUN_ID)
    assert copy is not None
    assert b"Hel" not in b"".join([data async for data in copy.chunks()])


async def test_with_masking_no_deltas_are_published(storage_under_test: StorageUnderTest, reader: LogReader) -> None:
    async with storage_under_test.logs(mask=Masking(["hunter22"])).open(RUN_ID) as log:
        await log.append(started())
        follower = Follower(reader.follow(RUN_ID, deltas=True))
        await follower.has(1)
        await follower.is_quiet()
        log.publish_delta(delta(1, "hunt"))
        log.publish_delta(delta(1, "er22", offset=4))
        await log.append(completed())
        assert await follower.rest() == [1, 2]


async def test_a_closed_follower_ends_its_subscription(
    storage_under_test: StorageUnderTest, logs: Logs, monkeypatch: pytest.MonkeyPatch
) -> None:
    subscriptions: list[Subscription] = []
    subscribe = storage_under_test.bus.subscribe

    @contextmanager
    def recording_subscribe(run_id: str, *, deltas: bool = False) -> Generator[Subscription]:
        with subscribe(run_id, deltas=deltas) as live:
            subscriptions.append(live)
            yield live

    monkeypatch.setattr(storage_under_test.bus, "subscribe", recording_subscribe)
    async with logs.open(RUN_ID) as log:
        await log.append(started())
        batches = storage_under_test.reader.follow(RUN_ID, deltas=True)
        async with aclosing(batches):  # type: ignore[type-var]
            await anext(batches)
        (subscription,) = subscriptions
        subscription.drain()
        log.publish_delta(delta(1, "nobody"))
        await log.append(assistant_message("nobody"), path="s")
        # Drain twice: after a notification the first call returns an empty list.
        assert [subscription.drain(), subscription.drain()] == [[], []]


async def test_a_follower_gets_what_a_writer_publishes_on_another_bus(storage_under_test: StorageUnderTest) -> None:
    """The writer publishes on a bus of its own, as a process on another machine does."""
    async with storage_under_test.logs(bus=InProcessBus()).open(RUN_ID) as log:
        await log.append(started())
        follower = Follower(storage_under_test.reader.follow(RUN_ID))
        await follower.has(1)
        await follower.is_quiet()
        await log.append(assistant_message("x"), path="s")
        await follower.has(1, 2)
        await follower.is_quiet()
        await log.append(completed())
        assert await follower.rest() == [1, 2, 3]
