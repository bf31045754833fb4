"""The contract of the port `LogFeed`, for every adapter."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.contract.storages import StorageUnderTest
from tests.sample_events import RUN_ID, assistant_message, completed, started

from shopfloor.adapters.local import LocalLogFeed, LocalLogs
from shopfloor.errors import LogBusy
from shopfloor.log import Entry, Reset, new_run_id
from shopfloor.ports import LogFeed, Logs, LogUpdate
from shopfloor.record import Storage

pytestmark = [pytest.mark.anyio, pytest.mark.req("SF-38")]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def write(logs: Logs, count: int, run_id: str | None = None) -> tuple[str, list[Entry]]:
    """Write a log of `count` events, and return its run id."""
    run_id = run_id or new_run_id()
    async with logs.open(run_id) as log:
        entries = [await log.append(started())] if not log.seq else []
        return run_id, entries + [
            await log.append(assistant_message(str(one)), path="s") for one in range(count - len(entries))
        ]


async def test_every_started_run_is_listed_oldest_first(logs: Logs, feed: LogFeed) -> None:
    assert await feed.run_ids() == []
    ids = [new_run_id() for _ in range(5)]
    # A run that started earlier is written later.
    for second in (3, 0, 4, 1, 2):
        async with logs.open(ids[second]) as log:
            await log.append(started(), at=f"2020-01-01T00:00:0{second}.000Z")
    async with logs.open(RUN_ID) as log:
        # A log without events is not listed yet.
        assert await feed.run_ids() == ids
        await log.append(started())
        assert await feed.run_ids() == [*ids, RUN_ID]
    assert await feed.run_ids({ids[1], RUN_ID, new_run_id()}) == [ids[0], *ids[2:]]
    await logs.delete(ids[0])
    assert await feed.run_ids() == [*ids[1:], RUN_ID]


# Updates


async def test_updates_are_the_events_after_each_position(logs: Logs, feed: LogFeed) -> None:
    one, first = await write(logs, 4)
    other, second = await write(logs, 2)
    missing = new_run_id()
    updates = await feed.updates({one: 1, other: 0, missing: 0}, limit=100)
    assert updates == {
        one: LogUpdate(entries=first[1:]),
        other: LogUpdate(entries=second),
        missing: LogUpdate(is_missing=True),
    }
    assert await feed.updates({one: 4, other: 2}, limit=100) == {one: LogUpdate(), other: LogUpdate()}
    _, more = await write(logs, 1, other)
    assert await feed.updates({one: 4, other: 2}, limit=100) == {one: LogUpdate(), other: LogUpdate(entries=more)}
    assert await feed.updates({}, limit=100) == {}


async def test_updates_show_if_the_log_has_a_writer(logs: Logs, feed: LogFeed) -> None:
    async with logs.open(RUN_ID) as log:
        assert await feed.updates({RUN_ID: 0}, limit=9) == {RUN_ID: LogUpdate(has_writer=True)}
        entry = await log.append(started())
        assert await feed.updates({RUN_ID: 0}, limit=9) == {RUN_ID: LogUpdate(entries=[entry], has_writer=True)}
        assert await feed.updates({RUN_ID: 1}, limit=9) == {RUN_ID: LogUpdate(has_writer=True)}
    assert await feed.updates({RUN_ID: 0}, limit=9) == {RUN_ID: LogUpdate(entries=[entry])}
    assert await feed.updates({RUN_ID: 1}, limit=9) == {RUN_ID: LogUpdate()}


async def test_updates_of_a_long_log_are_read_in_chunks(logs: Logs, feed: LogFeed) -> None:
    run_id, entries = await write(logs, 5_000)
    read: list[Entry] = []
    rounds = 0
    while chunk := (await feed.updates({run_id: len(read)}, limit=4_000))[run_id].entries:
        read += chunk
        rounds += 1
    assert read == entries
    assert rounds > 1


async def test_runs_are_omitted_once_there_are_enough_events(logs: Logs, feed: LogFeed) -> None:
    logs_of = dict([await write(logs, 10) for _ in range(6)])
    places = dict.fromkeys(logs_of, 0)
    seen: dict[str, list[Entry]] = {run_id: [] for run_id in logs_of}
    rounds = 0
    while updates := {run_id: one for run_id, one in (await feed.updates(places, limit=15)).items() if one.entries}:
        # Enough events, and at most one log more than needed.
        assert 15 <= sum(len(one.entries) for one in updates.values()) <= 25 or len(updates) == len(places)
        rounds += 1
        for run_id, one in updates.items():
            seen[run_id] += one.entries
            # Runs that were read go to the end of the queue.
            del places[run_id]
            places[run_id] = one.entries[-1].seq
    assert seen == logs_of
    assert rounds == 3


async def test_a_log_that_ends_before_the_position_gives_a_reset(
    storage_under_test: StorageUnderTest, logs: Logs, feed: LogFeed
) -> None:
    _, entries = await write(logs, 5, RUN_ID)
    storage_under_test.truncate_log(RUN_ID, 3)
    assert await feed.updates({RUN_ID: 5}, limit=9) == {RUN_ID: LogUpdate(reset=Reset(3))}
    assert await feed.updates({RUN_ID: 3}, limit=9) == {RUN_ID: LogUpdate()}
    assert await feed.updates({RUN_ID: 1}, limit=9) == {RUN_ID: LogUpdate(entries=entries[1:3])}
    storage_under_test.truncate_log(RUN_ID, 0)
    assert await feed.updates({RUN_ID: 5}, limit=9) == {RUN_ID: LogUpdate(reset=Reset(0))}
    assert await feed.updates({RUN_ID: 0}, limit=9) == {RUN_ID: LogUpdate()}


async def test_a_log_that_was_deleted_is_missing_wherever_its_views_are(logs: Logs, feed: LogFeed) -> None:
    await write(logs, 3, RUN_ID)
    await logs.delete(RUN_ID)
    for seq in (0, 3):
        assert await feed.updates({RUN_ID: seq}, limit=9) == {RUN_ID: LogUpdate(is_missing=True)}


# Openings


async def test_runs_whose_logs_were_opened_or_deleted_after_a_mark_are_listed(logs: Logs, feed: LogFeed) -> None:
    assert (await feed.opened_logs(0))[0] == []
    one, _ = await write(logs, 1)
    named, first = await feed.opened_logs(0)
    assert set(named) == {one}
    assert first > 0
    async with logs.open(RUN_ID):
        # From its opening on, even without events.
        named, second = await feed.opened_logs(first)
        assert set(named) == {RUN_ID}
    assert set((await feed.opened_logs(0))[0]) == {one, RUN_ID}
    assert await feed.opened_logs(second) == ([], second)
    await write(logs, 1, one)
    named, third = await feed.opened_logs(second)
    assert set(named) == {one}
    await logs.delete(RUN_ID)
    # Its row is not deleted yet, so nothing is announced.
    assert await feed.opened_logs(third) == ([], third)
    await logs.announce_deletion(RUN_ID)
    named, fourth = await feed.opened_logs(third)
    assert set(named) == {RUN_ID}
    assert 0 < first < second < third < fourth


async def test_a_run_whose_deletion_is_announced_is_listed_even_without_a_log(logs: Logs, feed: LogFeed) -> None:
    await logs.announce_deletion(RUN_ID)
    assert set((await feed.opened_logs(0))[0]) == {RUN_ID}


async def test_a_listed_run_has_a_log(logs: Logs, feed: LogFeed) -> None:
    position = 0
    for _ in range(20):
        async with logs.open(new_run_id()) as log:
            named, position = await feed.opened_logs(position)
            assert set(named) == {log.run_id}
            assert await feed.updates({log.run_id: 0}, limit=9) == {log.run_id: LogUpdate(has_writer=True)}


async def test_a_rejected_second_writer_leaves_the_first_in_place(logs: Logs, feed: LogFeed) -> None:
    async with logs.open(RUN_ID) as log:
        entry = await log.append(started())
        with pytest.raises(LogBusy):
            async with logs.open(RUN_ID):
                pass
        assert await feed.updates({RUN_ID: 0}, limit=9) == {RUN_ID: LogUpdate(entries=[entry], has_writer=True)}


async def test_an_unknown_mark_lists_every_run(logs: Logs, feed: LogFeed) -> None:
    runs = {(await write(logs, 1))[0] for _ in range(3)}
    _, position = await feed.opened_logs(0)
    named, again = await feed.opened_logs(position + 1_000_000)
    assert (set(named), again) == (runs, position)


async def test_processed_entries_can_be_forgotten(logs: Logs, feed: LogFeed) -> None:
    for _ in range(3):
        await write(logs, 1)
    _, position = await feed.opened_logs(0)
    position = await feed.forget_opened_logs(position)
    assert position > 0
    assert await feed.opened_logs(position) == ([], position)
    assert (await feed.opened_logs(0))[0] == []
    run_id, _ = await write(logs, 1)
    named, after = await feed.opened_logs(position)
    assert set(named) == {run_id}
    assert after > position


async def test_entries_after_the_mark_are_not_forgotten(logs: Logs, feed: LogFeed) -> None:
    await write(logs, 1)
    _, position = await feed.opened_logs(0)
    late, _ = await write(logs, 1)
    position = await feed.forget_opened_logs(position)
    named, position = await feed.opened_logs(position)
    assert late in named
    assert await feed.forget_opened_logs(position) > 0


async def test_forgetting_without_opened_logs_does_nothing(feed: LogFeed) -> None:
    _, mark = await feed.opened_logs(0)
    assert (await feed.opened_logs(await feed.forget_opened_logs(mark)))[0] == []


async def test_an_outcome_is_an_update_like_any_event(logs: Logs, feed: LogFeed) -> None:
    async with logs.open(RUN_ID) as log:
        await log.append(started())
        outcome = await log.append(completed())
    assert await feed.updates({RUN_ID: 1}, limit=9) == {RUN_ID: LogUpdate(entries=[outcome])}


# The files


async def test_an_unreadable_log_is_omitted_and_the_others_are_read(tmp_path: Path) -> None:
    storage = Storage(tmp_path / "storage")
    feed = LocalLogFeed(storage)
    run_id, entries = await write(LocalLogs(storage), 2)
    storage.log_path(RUN_ID).mkdir()
    assert await feed.updates({RUN_ID: 0, run_id: 0}, limit=9) == {run_id: LogUpdate(entries=entries)}
