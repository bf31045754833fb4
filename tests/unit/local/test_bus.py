"""Notices between processes: a datagram notifies the server of new events in a log."""

from __future__ import annotations

import logging
import os
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from shopfloor.adapters.limits import NOTIFY_INTERVAL_SECONDS, NOTIFY_TRACKED_RUNS
from shopfloor.adapters.local import LocalBus, LocalLogFeed, LocalLogReader, LocalLogs
from shopfloor.adapters.local.bus import NoticeSender, receive_notices
from shopfloor.adapters.memory import MemoryStore
from shopfloor.engine import Ingest
from shopfloor.log import Entry, RunCompleted, RunStarted, new_run_id
from shopfloor.ports import RunItem
from shopfloor.record import Storage

pytestmark = pytest.mark.anyio
TIMEOUT_SECONDS = 30.0
NEVER = 1_000.0
"""The polling interval in these tests: so long that every event arrives by a notice."""


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(params=["a short path", "a long path"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    root = tmp_path / "storage" if request.param == "a short path" else tmp_path / ("x" * 60) / ("y" * 60)
    root.mkdir(parents=True)
    return Storage(root)


async def until(done: Callable[[], bool]) -> None:
    with anyio.fail_after(TIMEOUT_SECONDS):
        while not done():
            await anyio.sleep(0.005)


def shopfloor(storage: Storage, *words: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "shopfloor", *words, "--storage", str(storage.root)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, env={**os.environ, "SHOPFLOOR_URL": ""})


@pytest.mark.req("SF-40")
async def test_a_run_of_another_process_is_followed_and_listed_without_polling(storage: Storage) -> None:
    bus, store = LocalBus(storage), MemoryStore()
    reader = LocalLogReader(storage, bus=bus, poll_seconds=NEVER)
    ingest = Ingest(LocalLogFeed(storage), store, bus, poll_seconds=NEVER)
    got: list[int] = []

    async def follow(run_id: str) -> None:
        async for batch in reader.follow(run_id, wait_for_writer=True):
            got.extend(one.seq for one in batch if isinstance(one, Entry))

    async def row_status(run_id: str) -> str | None:
        item = await store.get_run(run_id)
        return item and item.row.status

    with bus.listen(storage), anyio.fail_after(TIMEOUT_SECONDS):
        async with anyio.create_task_group() as tasks, ingest.subscribe() as changes:
            tasks.start_soon(ingest.run)
            # Wait until the server has polled all logs, so that only notices are left.
            await anyio.sleep(0.3)
            go_on = storage.root / "go-on"
            command = f"echo begun; while [ ! -e {go_on} ]; do sleep 0.02; done; echo more; sleep 0.1; echo last"
            process = shopfloor(storage, "run", "--command", command)
            (item, *_) = await anext(changes)
            assert isinstance(item, RunItem)
            run_id = item.row.id
            async with anyio.create_task_group() as followers:
                followers.start_soon(follow, run_id)
                await until(lambda: len(got) >= 3)
                go_on.touch()
            while await row_status(run_id) != "completed":
                await anext(changes)
            tasks.cancel_scope.cancel()
            with anyio.CancelScope(shield=True):
                assert await anyio.to_thread.run_sync(process.wait) == 0
    assert got == list(range(1, len(got) + 1))


async def test_a_burst_of_events_sends_few_notices_and_the_last_is_not_lost(
    storage: Storage,
) -> None:
    sender, run_id = NoticeSender(storage.notice_socket), new_run_id()
    notified: list[str] = []
    with receive_notices(storage.notice_socket, notified.append):
        started_at = time.monotonic()
        sender.notify(run_id)
        await until(lambda: notified == [run_id])
        for _ in range(2_000):
            sender.notify(run_id)
        seconds = time.monotonic() - started_at
        count = len(notified)
        await until(lambda: len(notified) > count)
        await anyio.sleep(20 * NOTIFY_INTERVAL_SECONDS)
    assert set(notified) == {run_id}
    assert len(notified) <= 3 + seconds / NOTIFY_INTERVAL_SECONDS


async def test_a_busy_server_blocks_no_sender_and_gets_the_notice_later(storage: Storage) -> None:
    runs = [new_run_id() for _ in range(3_000)]
    notified: set[str] = set()
    sender = NoticeSender(storage.notice_socket)
    with receive_notices(storage.notice_socket, notified.add):
        # This blocks the receiving loop.
        for run_id in runs:
            sender.notify(run_id)
        assert notified == set()
        await until(lambda: notified == set(runs))
    assert len(runs) < NOTIFY_TRACKED_RUNS


async def test_invalid_and_overlong_datagrams_are_ignored(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    notified: list[str] = []
    run_id = new_run_id()
    monkeypatch.chdir(storage.root)
    with (
        receive_notices(storage.notice_socket, notified.append),
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender,
    ):
        for data in (
            b"",
            b"\xff\xfe",
            b"../../etc/passwd",
            run_id.upper().encode(),
            run_id.encode() * 2,
            b"x" * 10_000,
        ):
            sender.sendto(data, storage.notice_socket.name)
            await anyio.sleep(0.01)
        sender.sendto(run_id.encode(), storage.notice_socket.name)
        await until(lambda: bool(notified))
    assert notified == [run_id]


async def test_only_the_owner_may_send(storage: Storage) -> None:
    before = os.umask(0)
    try:
        with receive_notices(storage.notice_socket, print):
            assert stat.S_IMODE(storage.notice_socket.stat().st_mode) == 0o600
    finally:
        os.umask(before)
    assert not storage.notice_socket.exists()


async def test_the_socket_of_a_server_that_was_killed_is_replaced(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(storage.root)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as killed:
        killed.bind(storage.notice_socket.name)
    sender, run_id = NoticeSender(storage.notice_socket), new_run_id()
    sender.notify(run_id)  # no receiver
    notified: list[str] = []
    with receive_notices(storage.notice_socket, notified.append):
        while not notified:
            sender.notify(run_id)
            await anyio.sleep(0.05)
    assert set(notified) == {run_id}


async def test_without_a_server_sending_does_nothing(storage: Storage) -> None:
    run_id = new_run_id()
    async with LocalLogs(storage).open(run_id) as log:
        await log.append(RunStarted(name="w", kind="worker", attempt=1, host="h"))
        await log.append(RunCompleted(name="w", kind="worker", status="completed"))
    assert not storage.notice_socket.exists()


async def test_without_a_socket_logs_are_polled(storage: Storage, caplog: pytest.LogCaptureFixture) -> None:
    storage.notice_socket.mkdir()
    bus, run_id = LocalBus(storage), new_run_id()
    with caplog.at_level(logging.WARNING, "shopfloor.adapters"), bus.listen(storage):
        assert "events of other processes are shown with a delay" in caplog.text
        async with LocalLogs(storage).open(run_id) as log:
            await log.append(RunStarted(name="w", kind="worker", attempt=1, host="h"))
            with anyio.fail_after(TIMEOUT_SECONDS):
                async for batch in LocalLogReader(storage, bus=bus).follow(run_id, wait_for_writer=True):
                    if not batch:
                        await log.append(RunCompleted(name="w", kind="worker", status="completed"))
