"""The contract of the port `Bus`, for every adapter."""

from __future__ import annotations

import threading
import time

import anyio
import pytest
from tests.contract.storages import StorageUnderTest

from shopfloor.adapters.limits import BUS_EVENTS, BUS_HEARTBEATS
from shopfloor.limits import SUBSCRIBER_EVENTS
from shopfloor.log import Delta, Entry, Gap, new_run_id
from shopfloor.ports import Bus, FleetSubscription, RunsSubscription, Subscription
from shopfloor.views import FleetEvent

pytestmark = pytest.mark.anyio
TIMEOUT_SECONDS = 20.0
RUN, OTHER = new_run_id(), new_run_id()


@pytest.fixture
def bus(storage_under_test: StorageUnderTest) -> Bus:
    return storage_under_test.bus


def entry(seq: int, event_type: str = "message.assistant") -> Entry:
    return Entry(seq, event_type, b'{"seq":%d}' % seq)


def delta(after: int, text: str) -> Delta:
    return Delta(after=after, path="s", message_id="m", block=0, kind="text", offset=0, text=text)


def simplify(items: list[Entry | Gap | Delta]) -> list[object]:
    return [one.seq if isinstance(one, Entry) else one.text if isinstance(one, Delta) else one for one in items]


def seqs_by_run(runs: dict[str, list[Entry]]) -> dict[str, list[int]]:
    return {run_id: [one.seq for one in entries] for run_id, entries in runs.items()}


async def is_woken(live: Subscription | RunsSubscription | FleetSubscription) -> bool:
    """Return whether a wait ends because of an event, long before its timeout."""
    started_at = time.monotonic()
    await live.wait(TIMEOUT_SECONDS)
    return time.monotonic() - started_at < TIMEOUT_SECONDS / 2


async def is_silent(live: Subscription | RunsSubscription | FleetSubscription) -> bool:
    started_at = time.monotonic()
    await live.wait(0.05)
    return time.monotonic() - started_at >= 0.04


@pytest.mark.req("SF-39")
async def test_a_subscriber_gets_the_events_of_its_run_from_the_next_one_on_in_order(bus: Bus) -> None:
    bus.publish(RUN, entry(6))
    with bus.subscribe(RUN) as live:
        assert live.drain() == []
        assert await is_silent(live)
        for seq in (7, 8):
            bus.publish(RUN, entry(seq))
        bus.publish(OTHER, entry(1))
        assert await is_woken(live)
        assert simplify(live.drain()) == [7, 8]
        assert await is_silent(live)
        assert live.drain() == []


async def test_every_subscriber_gets_every_event(bus: Bus) -> None:
    with bus.subscribe(RUN) as one, bus.subscribe(RUN) as other:
        bus.publish(RUN, entry(1))
        assert simplify(one.drain()) == [1]
        bus.publish(RUN, entry(2))
        assert (simplify(one.drain()), simplify(other.drain())) == ([2], [1, 2])


async def test_a_subscriber_with_a_full_buffer_gets_a_gap(bus: Bus) -> None:
    with bus.subscribe(RUN) as live:
        for seq in range(1, SUBSCRIBER_EVENTS + 11):
            bus.publish(RUN, entry(seq))
        assert await is_woken(live)
        gap = Gap(SUBSCRIBER_EVENTS + 1, SUBSCRIBER_EVENTS + 10)
        assert simplify(live.drain()) == [*range(1, SUBSCRIBER_EVENTS + 1), gap]
        bus.publish(RUN, entry(SUBSCRIBER_EVENTS + 11))
        assert simplify(live.drain()) == [SUBSCRIBER_EVENTS + 11]


async def test_deltas_come_between_the_events_and_only_to_subscribers_that_request_them(bus: Bus) -> None:
    with bus.subscribe(RUN, deltas=True) as live, bus.subscribe(RUN) as plain:
        bus.publish(RUN, entry(1))
        bus.publish_delta(RUN, delta(1, "a"))
        bus.publish_delta(RUN, delta(1, "b"))
        bus.publish(RUN, entry(2))
        bus.publish_delta(RUN, delta(2, "c"))
        bus.publish_delta(OTHER, delta(1, "of another run"))
        assert simplify(live.drain()) == [1, "a", "b", 2, "c"]
        assert simplify(plain.drain()) == [1, 2]
        bus.publish_delta(RUN, delta(2, "d"))
        assert await is_woken(live)
        assert await is_silent(plain)


async def test_a_notification_wakes_with_nothing_and_loses_nothing(bus: Bus) -> None:
    with bus.subscribe(RUN, deltas=True) as live:
        bus.notify(OTHER)
        assert await is_silent(live)
        bus.publish(RUN, entry(4))
        bus.notify(RUN)
        bus.publish_delta(RUN, delta(4, "a"))
        assert await is_woken(live)
        assert live.drain() == [], "the log has to be read"
        assert await is_woken(live)
        assert simplify(live.drain()) == [4, "a"]
        assert await is_silent(live)


@pytest.mark.parametrize("next_seq", [2, 3, 9])
async def test_a_break_in_the_sequence_makes_the_subscriber_read_the_log(bus: Bus, next_seq: int) -> None:
    """The log was cut, another process wrote it in between, or two threads published at once."""
    with bus.subscribe(RUN) as live:
        bus.publish(RUN, entry(3))
        bus.publish(RUN, entry(next_seq))
        assert live.drain() == []
        assert simplify(live.drain()) == [next_seq]
        bus.publish(RUN, entry(next_seq + 1))
        assert simplify(live.drain()) == [next_seq + 1]


async def test_a_subscriber_of_all_runs_gets_the_events_of_each(bus: Bus) -> None:
    with bus.subscribe_all() as live:
        assert await is_silent(live)
        for seq in (3, 4):
            bus.publish(RUN, entry(seq))
        bus.publish(OTHER, entry(1))
        assert await is_woken(live)
        assert seqs_by_run(live.drain()) == {RUN: [3, 4], OTHER: [1]}
        assert live.drain() == {}
        bus.publish(RUN, entry(5))
        assert seqs_by_run(live.drain()) == {RUN: [5]}


@pytest.mark.parametrize("then", ["notified", "skipped", "notified first"])
async def test_a_notification_makes_a_subscriber_of_all_runs_read_the_log(bus: Bus, then: str) -> None:
    with bus.subscribe_all() as live:
        if then == "notified first":
            bus.notify(RUN)
        bus.publish(RUN, entry(3))
        if then == "notified":
            bus.notify(RUN)
        elif then == "skipped":
            bus.publish(RUN, entry(7))
        bus.publish(RUN, entry(8))
        bus.publish(OTHER, entry(1))
        assert await is_woken(live)
        assert seqs_by_run(live.drain()) == {RUN: [], OTHER: [1]}


async def test_a_full_buffer_makes_a_subscriber_of_all_runs_read_the_log(bus: Bus) -> None:
    with bus.subscribe_all() as live:
        for seq in range(1, BUS_EVENTS + 1):
            bus.publish(RUN, entry(seq))
        bus.publish(OTHER, entry(1))
        bus.publish(RUN, entry(BUS_EVENTS + 1))
        assert seqs_by_run(live.drain()) == {RUN: [], OTHER: []}
        bus.publish(OTHER, entry(2))
        assert seqs_by_run(live.drain()) == {OTHER: [2]}


async def test_a_publisher_in_another_thread_wakes_waiting_subscribers(bus: Bus) -> None:
    got: list[object] = []
    with bus.subscribe(RUN) as live, bus.subscribe_all() as all_runs:

        def write() -> None:
            for seq in range(1, 200):
                bus.publish(RUN, entry(seq))
                time.sleep(0.0005 * (seq % 3))

        writer = threading.Thread(target=write)
        writer.start()
        with anyio.fail_after(TIMEOUT_SECONDS):
            while 199 not in got:
                await live.wait(TIMEOUT_SECONDS)
                got += simplify(live.drain())
            await all_runs.wait(TIMEOUT_SECONDS)
        writer.join()
        assert got == list(range(1, 200))
        assert seqs_by_run(all_runs.drain()) == {RUN: list(range(1, 200))}


async def test_a_subscriber_that_has_left_gets_nothing(bus: Bus) -> None:
    with bus.subscribe(RUN, deltas=True) as live, bus.subscribe_all() as all_runs:
        pass
    with bus.subscribe(RUN):
        bus.publish(RUN, entry(1))
        bus.publish_delta(RUN, delta(1, "a"))
    # Drain twice: after a notification the first call returns an empty list.
    assert [live.drain(), live.drain(), all_runs.drain()] == [[], [], {}]
    bus.publish(RUN, entry(2))
    bus.notify(RUN)
    assert [live.drain(), live.drain(), all_runs.drain()] == [[], [], {}]
    with bus.subscribe(RUN) as again:
        bus.publish(RUN, entry(3))
        assert simplify(again.drain()) == [3]


async def test_a_wait_that_timed_out_can_be_repeated(bus: Bus) -> None:
    with bus.subscribe(RUN) as live:
        for _ in range(3):
            with anyio.move_on_after(0.01):
                await live.wait(TIMEOUT_SECONDS)
        assert await is_silent(live)
        bus.publish(RUN, entry(1))
        assert await is_woken(live)


def heartbeat(number: int) -> FleetEvent:
    return FleetEvent(type="worker.heartbeat", payload={"workerId": str(number)}, timestamp="")


async def test_readers_of_fleet_events_are_woken_once_for_each_time_they_read(bus: Bus) -> None:
    bus.notify_fleet()
    with bus.subscribe_fleet() as live, bus.subscribe_fleet() as other:
        assert await is_silent(live)
        bus.notify_fleet()
        bus.notify_fleet()
        assert await is_woken(live)
        assert live.drain() == []
        assert await is_silent(live)
        assert await is_woken(other)
    bus.notify_fleet()


async def test_a_reader_of_fleet_events_is_woken_from_another_thread(bus: Bus) -> None:
    with bus.subscribe_fleet() as live:
        threading.Timer(0.05, bus.notify_fleet).start()
        assert await is_woken(live)


@pytest.mark.req("FE-49")
async def test_heartbeats_reach_each_reader_and_the_oldest_are_dropped(bus: Bus) -> None:
    with bus.subscribe_fleet() as live, bus.subscribe_fleet() as other:
        bus.publish_heartbeat(heartbeat(1))
        assert await is_woken(live)
        assert (live.drain(), live.drain(), other.drain()) == ([heartbeat(1)], [], [heartbeat(1)])
        for number in range(BUS_HEARTBEATS + 5):
            bus.publish_heartbeat(heartbeat(number))
        received = live.drain()
        assert (len(received), received[0], received[-1]) == (
            BUS_HEARTBEATS,
            heartbeat(5),
            heartbeat(BUS_HEARTBEATS + 4),
        )
