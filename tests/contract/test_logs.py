"""The contract of the port `Logs`, for every adapter."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, get_args

import anyio
import anyio.lowlevel
import anyio.to_thread
import msgspec
import pytest
from tests.contract.storages import StorageUnderTest
from tests.sample_events import (
    CHILD_ID,
    PARENT_ID,
    PAYLOADS,
    RUN_ID,
    assistant_message,
    completed,
    location_of,
    started,
    tool_call,
)

from shopfloor.adapters.bus import InProcessBus
from shopfloor.adapters.local import LocalLogs
from shopfloor.errors import InvalidEvent, InvalidRunId, LogBusy, LogClosed, RunEnded, StorageError
from shopfloor.log import MASK, Entry, Event, Line, Masking, Payload, Status, UserMessage, decode, encode, new_run_id
from shopfloor.ports import Log, LogReader, Logs
from shopfloor.record import Storage

pytestmark = [pytest.mark.anyio, pytest.mark.req("SF-38")]
EARLY, LATE = "2020-01-01T00:00:00.000Z", "2999-01-01T00:00:00.000Z"


class UnknownKind(UserMessage, frozen=True):
    """A payload that is not part of the format."""


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def log(logs: Logs) -> AsyncIterator[Log]:
    """Open an empty log of `RUN_ID` for writing."""
    async with logs.open(RUN_ID) as opened:
        yield opened


async def events(reader: LogReader, run_id: str = RUN_ID) -> list[Event]:
    return [decode(entry.raw) for entry in await reader.page(run_id, limit=10_000) or []]


async def begin(log: Log, *texts: str) -> None:
    await log.append(started())
    for text in texts:
        await log.append(assistant_message(text), path="s")


# Events


async def test_a_new_log_exists_and_is_empty(log: Log, reader: LogReader) -> None:
    assert (log.run_id, log.seq) == (RUN_ID, 0)
    assert await reader.page(RUN_ID, limit=9) == []


async def test_an_event_can_be_read_as_it_was_acknowledged_when_append_returns(log: Log, reader: LogReader) -> None:
    acknowledged = [await log.append(started())]
    for number in range(2, 30):
        acknowledged.append(await log.append(assistant_message(str(number)), path=f"s.{number}", iteration=number))
        assert log.seq == number
        assert await reader.page(RUN_ID, limit=99) == acknowledged
    assert [entry.seq for entry in acknowledged] == list(range(1, 30))
    last = decode(acknowledged[-1].raw)
    assert (last.run_id, last.type, last.path, last.iteration) == (RUN_ID, "message.assistant", "s.29", 29)


@pytest.mark.parametrize("name", PAYLOADS)
async def test_every_kind_of_event_is_stored_unchanged_and_in_the_format(log: Log, name: str) -> None:
    payload = PAYLOADS[name]
    if name != "run.started":
        await log.append(started())
    entry = await log.append(payload, **location_of(payload))
    event = decode(entry.raw, entry.type)
    assert (event.payload, event.problems, entry.type) == (payload, (), name)
    line = Line(**{field: getattr(event, field) for field in Line.__struct_fields__})
    assert entry.raw == encode(line)
    assert b"\n" not in entry.raw


async def test_text_that_utf8_cannot_carry_is_stored_with_replacement_characters(log: Log, reader: LogReader) -> None:
    await log.append(started())
    await log.append(assistant_message("half a pair: \ud83d."), path="s")
    (_, event) = await events(reader)
    assert event.payload == assistant_message("half a pair: \ufffd.")


async def test_a_large_event_is_stored_whole(log: Log, reader: LogReader) -> None:
    await begin(log, "x" * 3_000_000, "after")
    assert [event.payload for event in await events(reader)][1:] == [
        assistant_message("x" * 3_000_000),
        assistant_message("after"),
    ]


@pytest.mark.parametrize("payload", [payload for name, payload in PAYLOADS.items() if name != "run.started"])
async def test_a_log_starts_with_run_started(log: Log, reader: LogReader, payload: Payload) -> None:
    with pytest.raises(InvalidEvent, match=r"begins with run\.started"):
        await log.append(payload, **location_of(payload))
    assert (log.seq, await reader.page(RUN_ID, limit=9)) == (0, [])
    await log.append(started())
    assert log.seq == 1


@pytest.mark.parametrize(
    ("payload", "place"),
    [
        pytest.param(assistant_message("x"), {"path": "s", "iteration": -1}, id="iteration"),
        pytest.param(assistant_message("x"), {"path": "s", "child_run_id": CHILD_ID}, id="link"),
        pytest.param(PAYLOADS["step.call_workflow.started"], {"path": "s"}, id="no link"),
        pytest.param(PAYLOADS["step.started"], {}, id="no path"),
        pytest.param(tool_call(object()), {"path": "s"}, id="not JSON"),
        pytest.param(completed("lost"), {}, id="status"),  # type: ignore[arg-type]
        pytest.param(UnknownKind(blocks=[]), {"path": "s"}, id="kind"),
    ],
)
async def test_a_rejected_event_uses_no_seq_and_is_not_published(
    storage_under_test: StorageUnderTest, log: Log, payload: Any, place: dict[str, Any]
) -> None:
    await log.append(started())
    with storage_under_test.bus.subscribe(RUN_ID) as live:
        with pytest.raises(InvalidEvent):
            await log.append(payload, **place)
        assert live.drain() == []
        entry = await log.append(assistant_message("next"), path="s")
    assert entry.seq == log.seq == 2
    assert len(await events(storage_under_test.reader)) == 2


async def test_an_event_is_published_after_it_is_stored(storage_under_test: StorageUnderTest) -> None:
    found: list[tuple[Entry, list[Entry]]] = []

    class LookingBus(InProcessBus):
        def publish(self, run_id: str, entry: Entry) -> None:
            found.append((entry, storage_under_test.stored(run_id)))

    async with storage_under_test.logs(bus=LookingBus()).open(RUN_ID) as log:
        first = await log.append(started())
        second = await log.append(assistant_message("x"), path="s")
        third = log.append_now(tool_call({}))
        last = await log.append(completed())
    acknowledged = [first, second, third, last]
    assert found == [(entry, acknowledged[: entry.seq]) for entry in acknowledged]


# Times


async def test_times_never_run_backwards_and_no_clock_is_trusted_beyond_reason(logs: Logs, reader: LogReader) -> None:
    async with logs.open(RUN_ID) as log:
        await log.append(started(), at=EARLY)
        await log.append(assistant_message("ahead"), path="s", at=LATE)
        await log.append(assistant_message("behind"), path="s", at=EARLY)
        await log.append(assistant_message("our own"), path="s")
    async with logs.open(RUN_ID) as log:
        await log.append(started(2))
    got = await events(reader)
    times = [event.timestamp for event in got]
    assert (times[0], times) == (EARLY, sorted(times))
    assert times[1] > EARLY
    assert times[-1] < LATE
    # An event whose time was replaced names the clock.
    assert [getattr(event.payload, "clock", None) for event in got] == [None, "reader", "reader", None, None]


# The outcome


@pytest.mark.parametrize("status", get_args(Status))
async def test_nothing_follows_the_outcome_not_even_once_the_log_is_opened_again(
    logs: Logs, reader: LogReader, status: Status
) -> None:
    async with logs.open(RUN_ID) as log:
        await begin(log)
        await log.append(completed(status))
        with pytest.raises(RunEnded):
            await log.append(assistant_message("more"), path="s")
    async with logs.open(RUN_ID) as log:
        for payload in (started(2), completed(status)):
            with pytest.raises(RunEnded):
                await log.append(payload)
        with pytest.raises(RunEnded):
            log.append_now(completed(status))
    assert [event.type for event in await events(reader)] == ["run.started", "run.completed"]


async def test_events_are_durable_on_request_and_an_outcome_always_is(log: Log) -> None:
    await begin(log, "one", "two")
    await log.make_durable()
    assert log.is_durable
    await log.append(assistant_message("three"), path="s")
    await log.append(completed())
    assert log.is_durable


# One writer


async def test_a_log_has_one_writer(storage_under_test: StorageUnderTest, logs: Logs) -> None:
    async with logs.open(RUN_ID) as log:
        await log.append(started())
        for others in (logs, storage_under_test.logs()):
            with pytest.raises(LogBusy) as refused:
                async with others.open(RUN_ID):
                    pass
            assert refused.value.hint
        # The rejected writer has changed nothing, and other runs are not affected.
        await log.append(assistant_message("still ours"), path="s")
        async with storage_under_test.logs().open(new_run_id()) as other:
            await other.append(started())
    async with storage_under_test.logs().open(RUN_ID) as log:
        assert log.seq == 2
        await log.append(completed())


async def test_an_error_closes_the_log(logs: Logs, reader: LogReader) -> None:
    log: Log | None = None
    with contextlib.suppress(ZeroDivisionError):
        async with logs.open(RUN_ID) as log:
            await log.append(started())
            raise ZeroDivisionError
    assert log is not None
    assert not await reader.has_writer(RUN_ID)
    with pytest.raises(LogClosed):
        await log.append(assistant_message("late"), path="s")
    with pytest.raises(LogClosed):
        log.append_now(completed())
    assert len(await events(reader)) == 1


async def test_a_reopened_log_continues_where_it_was(storage_under_test: StorageUnderTest, reader: LogReader) -> None:
    for attempt in range(1, 5):
        async with storage_under_test.logs().open(RUN_ID) as log:
            assert log.seq == 2 * (attempt - 1)
            await log.append(started(attempt))
            await log.append(assistant_message(str(attempt)), path="s")
    assert [event.seq for event in await events(reader)] == list(range(1, 9))


async def test_tasks_and_threads_that_append_at_once_leave_whole_events_and_no_gap(log: Log, reader: LogReader) -> None:
    await log.append(started())

    async def task(name: int) -> None:
        for number in range(20):
            await log.append(assistant_message(f"{name}:{number}"), path="s")
            if number % 5 == 0:
                await anyio.lowlevel.checkpoint()

    def thread(name: int) -> None:
        for number in range(20):
            log.append_now(assistant_message(f"{name}:{number}"))

    threads = [threading.Thread(target=thread, args=(name,)) for name in range(4)]
    for one in threads:
        one.start()
    async with anyio.create_task_group() as tasks:
        for name in range(4, 8):
            tasks.start_soon(task, name)
    await anyio.to_thread.run_sync(lambda: [one.join() for one in threads])
    got = await events(reader)
    assert [event.seq for event in got] == list(range(1, 162))
    texts: list[str] = [msgspec.to_builtins(event.payload)["blocks"][0]["text"] for event in got[1:]]
    for name in range(8):
        # Each task appended in order.
        assert [text for text in texts if text.startswith(f"{name}:")] == [f"{name}:{number}" for number in range(20)]


# Parents


async def test_every_event_of_a_sub_run_names_its_parent_even_after_a_reopen(logs: Logs, reader: LogReader) -> None:
    async with logs.open(RUN_ID, parent_run_id=PARENT_ID) as log:
        await begin(log, "one")
    async with logs.open(RUN_ID) as log:
        await log.append(completed())
    assert [event.parent_run_id for event in await events(reader)] == [PARENT_ID] * 3
    async with logs.open(PARENT_ID) as log:
        await log.append(started())
        await log.append(PAYLOADS["step.call_workflow.started"], path="call", child_run_id=RUN_ID)
    assert [(event.parent_run_id, event.child_run_id) for event in await events(reader, PARENT_ID)] == [
        (None, None),
        (None, RUN_ID),
    ]


@pytest.mark.parametrize("bad", ["", "..", "../../etc/passwd", "no-id", RUN_ID.upper()])
async def test_only_a_run_id_names_a_run_or_its_parent(logs: Logs, reader: LogReader, bad: str) -> None:
    with pytest.raises(InvalidRunId):
        async with logs.open(bad):
            pass
    with pytest.raises(InvalidRunId):
        await logs.delete(bad)
    with pytest.raises(InvalidRunId):
        await reader.page(bad, limit=1)
    if bad:
        with pytest.raises(InvalidRunId):
            async with logs.open(RUN_ID, parent_run_id=bad):
                pass
        assert not await reader.has_writer(RUN_ID)


# Masking


async def test_a_secret_is_in_no_event_that_is_stored_acknowledged_or_published(
    storage_under_test: StorageUnderTest,
) -> None:
    mask = Masking(["hunter22"])
    logs = storage_under_test.logs(mask=mask)
    async with logs.open(RUN_ID) as log:
        assert log.mask is mask
        with storage_under_test.bus.subscribe(RUN_ID) as live:
            await log.append(started())
            entry = await log.append(assistant_message("it is hunter22."), path="s")
            log.append_now(tool_call({"hunter22": ["hunter22"]}))
            published = live.drain()
    stored = await storage_under_test.reader.page(RUN_ID, limit=9)
    assert stored is not None
    assert stored == published
    assert stored[1] == entry
    assert decode(entry.raw).payload == assistant_message(f"it is {MASK}.")
    assert not any(b"hunter22" in one.raw for one in stored)
    assert logs.masks


async def test_without_a_mask_nothing_is_masked(logs: Logs, log: Log, reader: LogReader) -> None:
    assert (logs.masks, log.mask) == (False, None)
    await begin(log, "sk-ant-REDACTED")
    assert (await events(reader))[1].payload == assistant_message("sk-ant-REDACTED")


# Deleting


async def test_the_id_of_a_deleted_log_can_be_used_again(logs: Logs, reader: LogReader) -> None:
    other = new_run_id()
    for run_id in (RUN_ID, other):
        async with logs.open(run_id) as log:
            await begin(log, "one")
            await log.append(completed())
    for _ in range(2):
        await logs.delete(RUN_ID)
        assert await reader.page(RUN_ID, limit=9) is None
        assert not await reader.has_log(RUN_ID)
    assert len(await events(reader, other)) == 3
    async with logs.open(RUN_ID) as log:
        assert log.seq == 0
        await log.append(started())


async def test_an_outcome_in_a_deleted_log_is_not_acknowledged(
    storage_under_test: StorageUnderTest, logs: Logs, log: Log
) -> None:
    await begin(log)
    await logs.delete(RUN_ID)
    with storage_under_test.bus.subscribe(RUN_ID) as live:
        with pytest.raises(StorageError):
            await log.append(completed())
        assert live.drain() == []
    assert not await storage_under_test.reader.has_log(RUN_ID)


# After a crash


async def test_a_truncated_log_continues_after_its_last_event(storage_under_test: StorageUnderTest, logs: Logs) -> None:
    async with logs.open(RUN_ID, parent_run_id=PARENT_ID) as log:
        await begin(log, "one", "two")
        await log.append(completed())
    storage_under_test.truncate_log(RUN_ID, 2)
    async with storage_under_test.logs().open(RUN_ID) as log:
        assert log.seq == 2
        await log.append(assistant_message("again"), path="s")
    assert [event.seq for event in await events(storage_under_test.reader)] == [1, 2, 3]
    assert {event.parent_run_id for event in await events(storage_under_test.reader)} == {PARENT_ID}
    storage_under_test.truncate_log(RUN_ID, 0)
    async with storage_under_test.logs().open(RUN_ID) as log:
        assert log.seq == 0
        with pytest.raises(InvalidEvent):
            await log.append(assistant_message("no beginning"), path="s")


async def test_the_log_of_a_killed_process_can_be_continued(storage_under_test: StorageUnderTest) -> None:
    await storage_under_test.crash_writer(RUN_ID)
    assert not await storage_under_test.reader.has_writer(RUN_ID)
    async with storage_under_test.logs().open(RUN_ID) as log:
        assert log.seq == 1
        await log.append(completed())
    assert [event.type for event in await events(storage_under_test.reader)] == ["run.started", "run.completed"]


# The files


def test_the_headroom_is_the_free_space_above_the_low_water_mark(tmp_path: Path) -> None:
    storage = Storage(tmp_path / "storage")
    assert LocalLogs(storage, low_water=2**60).headroom_bytes() < 0 < LocalLogs(storage, low_water=0).headroom_bytes()
