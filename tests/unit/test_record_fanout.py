"""Live events to many readers, none of which can block the writer."""

import asyncio
import logging
import threading
import time
from pathlib import Path

import msgspec
import pytest
from tests.sample_events import RUN_ID, assistant_message, completed, rule_violations, started

from shopfloor.limits import DROP_WARNING_SECONDS, SUBSCRIBER_EVENTS
from shopfloor.log import Delta, Entry, Gap
from shopfloor.record import FanOut, Recorder, Subscription, read


def entry(seq: int) -> Entry:
    return Entry(seq, "message.assistant", b"{}")


def publish(fanout: FanOut, first: int, last: int) -> None:
    for seq in range(first, last + 1):
        fanout.publish(entry(seq))


Item = Entry | Gap | Delta


def seqs(items: list[Item]) -> list[object]:
    return [item.seq if isinstance(item, Entry) else item for item in items]


def filled(items: list[Item], path: Path) -> list[Entry]:
    """Return the items with every gap filled from the log."""
    whole: list[Entry] = []
    for item in items:
        if isinstance(item, Gap):
            whole.extend(read(path, after=item.first - 1, before=item.last + 1))
        else:
            assert isinstance(item, Entry)
            whole.append(item)
    return whole


async def collect(subscription: Subscription) -> list[Item]:
    return [item async for item in subscription]


@pytest.mark.req("TR-41")
def test_a_subscriber_holds_256_events_and_the_newest_are_dropped() -> None:
    fanout = FanOut()
    subscription = fanout.subscribe()
    publish(fanout, 1, 300)
    assert SUBSCRIBER_EVENTS == subscription.capacity == 256
    assert seqs(subscription.drain()) == [*range(1, 257), Gap(257, 300)]


@pytest.mark.req("TR-41")
def test_once_it_has_drained_a_subscriber_gets_events_again() -> None:
    fanout = FanOut()
    subscription = fanout.subscribe(capacity=3)
    publish(fanout, 1, 5)
    assert seqs(subscription.drain()) == [1, 2, 3, Gap(4, 5)]
    publish(fanout, 6, 8)
    assert seqs(subscription.drain()) == [6, 7, 8]
    publish(fanout, 9, 20)
    assert seqs(subscription.drain()) == [9, 10, 11, Gap(12, 20)]
    assert subscription.drain() == []


def test_a_subscriber_that_overflows_by_nothing_has_no_gap() -> None:
    fanout = FanOut()
    subscription = fanout.subscribe(capacity=3)
    publish(fanout, 1, 3)
    assert seqs(subscription.drain()) == [1, 2, 3]


@pytest.mark.req("TR-42")
def test_the_stats_count_delivered_and_dropped_events_per_subscriber() -> None:
    fanout = FanOut()
    slow = fanout.subscribe("slow", capacity=2)
    fast = fanout.subscribe("fast")
    publish(fanout, 1, 5)
    fast.drain()
    publish(fanout, 6, 7)
    stats = [msgspec.to_builtins(one) for one in fanout.stats()]
    assert stats == [
        {"name": "slow", "capacity": 2, "pending": 2, "delivered": 0, "dropped": 5},
        {"name": "fast", "capacity": 256, "pending": 2, "delivered": 5, "dropped": 0},
    ]
    slow.drain()
    assert (slow.stats().pending, slow.stats().delivered, slow.stats().dropped) == (0, 2, 5)


@pytest.mark.req("TR-41")
def test_an_event_that_one_subscriber_loses_reaches_another() -> None:
    fanout = FanOut()
    small, large = fanout.subscribe(capacity=1), fanout.subscribe(capacity=100)
    publish(fanout, 1, 10)
    assert seqs(large.drain()) == list(range(1, 11))
    assert seqs(small.drain()) == [1, Gap(2, 10)]


def test_subscribers_without_a_name_get_unique_names() -> None:
    fanout = FanOut()
    assert len({fanout.subscribe().name for _ in range(3)}) == 3


def test_a_gap_is_written_as_from_and_to() -> None:
    assert msgspec.json.encode(Gap(257, 300)) == b'{"from":257,"to":300}'


def test_a_subscriber_gets_events_from_the_next_one_on(recorder: Recorder) -> None:
    recorder.append(started())
    recorder.append(assistant_message("before"), path="a")
    live = recorder.subscribe()
    after = [recorder.append(assistant_message("after"), path="a"), recorder.append(completed())]
    assert live.drain() == after


def test_a_subscriber_of_a_reopened_log_sees_no_gap_before_its_first_event(log_path: Path) -> None:
    with Recorder(log_path, RUN_ID) as recorder:
        recorder.append(started())
        recorder.append(assistant_message("x"), path="a")
    with Recorder(log_path, RUN_ID) as again:
        live = again.subscribe()
        assert live.drain() == []
        written = again.append(started(2))
        assert live.drain() == [written]


def test_a_gap_can_be_filled_from_the_log(recorder: Recorder, log_path: Path) -> None:
    recorder.append(started())
    live = recorder.subscribe(capacity=3)
    written: list[Entry] = []
    got: list[Item] = []
    for turn in range(1, 30):
        written.append(recorder.append(assistant_message("x" * turn), path="a"))
        if turn % 7 == 0:
            got.extend(live.drain())
    got.extend(live.drain())
    assert [item for item in got if isinstance(item, Gap)] == [Gap(5, 8), Gap(12, 15), Gap(19, 22), Gap(26, 29)]
    assert filled(got, log_path) == written


def warnings_of(caplog: pytest.LogCaptureFixture, name: str) -> list[logging.LogRecord]:
    return [r for r in caplog.records if r.levelno == logging.WARNING and f"subscriber {name} " in r.getMessage()]


@pytest.mark.req("TR-43")
def test_drops_are_a_warning_at_most_once_a_second_for_each_subscriber(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "shopfloor.record")
    fanout = FanOut()
    fanout.subscribe("one", capacity=1)
    fanout.subscribe("two", capacity=1)
    started_at = time.monotonic()
    publish(fanout, 1, 2_000)
    seconds = time.monotonic() - started_at
    for name in ("one", "two"):
        assert 1 <= len(warnings_of(caplog, name)) <= 1 + seconds / DROP_WARNING_SECONDS
    caplog.clear()
    time.sleep(DROP_WARNING_SECONDS)
    publish(fanout, 2_001, 2_001)
    assert [len(warnings_of(caplog, name)) for name in ("one", "two")] == [1, 1]
    assert "2000 events dropped so far" in caplog.text


def test_a_subscriber_that_keeps_up_is_no_warning(recorder: Recorder, caplog: pytest.LogCaptureFixture) -> None:
    live = recorder.subscribe()
    recorder.append(started())
    for _ in range(1_000):
        recorder.append(assistant_message("x"), path="a")
        live.drain()
    assert (caplog.records, live.stats().dropped) == ([], 0)


@pytest.mark.req("TR-45")
def test_closing_a_subscriber_twice_is_fine(recorder: Recorder) -> None:
    live, other = recorder.subscribe(), recorder.subscribe()
    first = recorder.append(started())
    live.close()
    live.close()
    second = recorder.append(assistant_message("x"), path="a")
    assert other.drain() == [first, second]
    assert [one.name for one in recorder.stats().subscribers] == [other.name]


def test_a_closed_subscriber_still_has_its_pending_events_and_no_more(recorder: Recorder) -> None:
    live = recorder.subscribe()
    first = recorder.append(started())
    live.close()
    recorder.append(assistant_message("x"), path="a")
    recorder.append(assistant_message("y"), path="a")
    assert asyncio.run(collect(live)) == [first]
    assert live.drain() == []


def test_exiting_the_with_block_closes_a_subscriber(recorder: Recorder) -> None:
    with recorder.subscribe() as live:
        assert [one.name for one in recorder.stats().subscribers] == [live.name]
    assert recorder.stats().subscribers == []


@pytest.mark.req("TR-45")
def test_closing_the_recorder_ends_its_subscribers_once_they_have_drained(recorder: Recorder) -> None:
    live = recorder.subscribe()
    written = [recorder.append(started()), recorder.append(completed())]
    recorder.close()
    recorder.close()
    assert asyncio.run(collect(live)) == written
    assert asyncio.run(collect(live)) == []


def test_a_subscriber_of_a_closed_recorder_ends_at_once(recorder: Recorder) -> None:
    recorder.append(started())
    recorder.close()
    assert asyncio.run(collect(recorder.subscribe())) == []


@pytest.mark.req("TR-40")
def test_a_sleeping_subscriber_is_woken_by_another_thread(recorder: Recorder, log_path: Path) -> None:
    def work() -> None:
        recorder.append(started())
        for turn in range(200):
            recorder.append(assistant_message(str(turn)), path="a")
            if turn % 20 == 0:
                time.sleep(0.001)
        recorder.append(completed())
        recorder.close()

    async def main() -> list[list[Item]]:
        lives = [recorder.subscribe() for _ in range(3)]
        tasks = [asyncio.create_task(collect(live)) for live in lives]
        await asyncio.sleep(0)
        thread = threading.Thread(target=work)
        thread.start()
        got = [await task for task in tasks]
        thread.join()
        return got

    got = asyncio.run(main())
    written = list(read(log_path))
    assert len(written) == 202
    assert [filled(one, log_path) for one in got] == [written] * 3


def test_subscribers_in_several_event_loops_all_get_everything(recorder: Recorder, log_path: Path) -> None:
    got: dict[int, list[Item]] = {}
    ready = threading.Barrier(4)

    def listen(number: int) -> None:
        live = recorder.subscribe(capacity=10_000)
        ready.wait()
        got[number] = asyncio.run(collect(live))

    threads = [threading.Thread(target=listen, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    ready.wait()
    recorder.append(started())
    for turn in range(300):
        recorder.append(assistant_message(str(turn)), path="a")
    recorder.close()
    for thread in threads:
        thread.join()
    assert [got[number] for number in range(3)] == [list(read(log_path))] * 3


def test_closing_a_sleeping_subscriber_wakes_it(recorder: Recorder) -> None:
    async def main() -> list[Item]:
        live = recorder.subscribe()
        async with asyncio.TaskGroup() as group:
            task = group.create_task(collect(live))
            await asyncio.sleep(0.01)
            await asyncio.to_thread(live.close)
        return task.result()

    assert asyncio.run(main()) == []


def test_a_subscriber_that_stopped_waiting_gets_later_events(recorder: Recorder) -> None:
    async def main() -> list[Item]:
        live = recorder.subscribe()
        for _ in range(3):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(live.batch(), 0.005)
        recorder.append(started())
        return await live.batch()

    assert seqs(asyncio.run(main())) == [1]


def test_a_closed_event_loop_does_not_disturb_the_writer(recorder: Recorder) -> None:
    live = recorder.subscribe()

    async def give_up() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(live.batch(), 0.005)

    asyncio.run(give_up())
    written = recorder.append(started())
    assert live.drain() == [written]


@pytest.mark.req("TR-40")
def test_an_event_is_in_the_file_before_a_subscriber_sees_it(recorder: Recorder, log_path: Path) -> None:
    live = recorder.subscribe(capacity=100_000)
    early: list[int] = []
    seen = 0

    def watch() -> None:
        nonlocal seen
        end = 0
        while seen < 2_001:
            for item in live.drain():
                assert isinstance(item, Entry)
                seen += 1
                end += len(item.raw) + 1
                if log_path.stat().st_size < end:
                    early.append(item.seq)

    watcher = threading.Thread(target=watch)
    watcher.start()
    recorder.append(started())
    for turn in range(2_000):
        recorder.append(assistant_message(str(turn)), path="a")
    watcher.join()
    assert (seen, early) == (2_001, [])


@pytest.mark.req("TR-41", "TR-44")
def test_a_slow_subscriber_beside_a_fast_writer_costs_neither_an_event_nor_memory(
    recorder: Recorder, log_path: Path
) -> None:
    recorder.append(started())
    slow, stuck = recorder.subscribe("slow", capacity=64), recorder.subscribe("stuck", capacity=8)
    got: list[Item] = []
    over, turn_has_come = threading.Event(), threading.Event()
    most = 0

    def dawdle() -> None:
        while not over.is_set():
            turn_has_come.wait()
            turn_has_come.clear()
            got.extend(slow.drain())

    reader = threading.Thread(target=dawdle)
    reader.start()
    for turn in range(5_000):
        recorder.append(assistant_message(str(turn)), path="a")
        most = max(most, len(slow.pending))
        assert len(stuck.pending) <= 8
        if turn % 500 == 499:
            turn_has_come.set()
    over.set()
    turn_has_come.set()
    reader.join()
    got.extend(slow.drain())
    written = list(read(log_path, after=1))
    assert [entry.seq for entry in written] == list(range(2, 5_002))
    assert rule_violations(log_path) == []
    assert most <= 64
    assert slow.stats().dropped > 0
    assert slow.stats().delivered + slow.stats().dropped == 5_000
    assert filled(got, log_path) == written
    assert seqs(stuck.drain()) == [*range(2, 10), Gap(10, 5_001)]


@pytest.mark.req("TR-44", "TR-52")
def test_the_log_is_the_same_with_and_without_subscribers(log_path: Path, tmp_path: Path) -> None:
    alone = tmp_path / "alone" / log_path.name
    for path, watchers in ((alone, 0), (log_path, 5)):
        with Recorder(path, RUN_ID) as recorder:
            for number in range(watchers):
                recorder.subscribe(capacity=number)
            recorder.append(started())
            for turn in range(100):
                recorder.append(assistant_message(str(turn)), path="a")
            recorder.append(completed())

    def without_time(path: Path) -> list[dict[str, object]]:
        events = [msgspec.json.decode(entry.raw) for entry in read(path)]
        return [{key: value for key, value in event.items() if key != "timestamp"} for event in events]

    assert len(without_time(alone)) == 102
    assert without_time(log_path) == without_time(alone)


def test_a_subscriber_during_writes_misses_no_later_event(recorder: Recorder) -> None:
    recorder.append(started())
    lives: list[tuple[int, Subscription]] = []
    over = threading.Event()

    def work() -> None:
        while not over.is_set():
            recorder.append(assistant_message("x"), path="a")

    writer = threading.Thread(target=work)
    writer.start()
    for _ in range(50):
        before = recorder.seq
        lives.append((before, recorder.subscribe(capacity=1_000_000)))
    over.set()
    writer.join()
    last = recorder.append(completed()).seq
    for before, live in lives:
        got = [item.seq for item in live.drain() if isinstance(item, Entry)]
        assert got == list(range(got[0], last + 1))
        assert got[0] > before
