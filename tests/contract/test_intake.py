"""The intake: what a queue in a database file restores when that file is lost."""

from __future__ import annotations

import errno
import os
import sqlite3
import threading
from collections.abc import Collection
from pathlib import Path
from sqlite3 import Connection

import anyio
import msgspec
import pytest
from tests.contract.test_queue import answer, dispatch, statuses

from shopfloor.adapters.limits import INTAKE_BYTES
from shopfloor.adapters.sqlite import SqliteHooks, SqliteQueue, SqliteStore
from shopfloor.errors import DatabaseLost, StoreError
from shopfloor.log import Requirements
from shopfloor.ports import ControlMessage, Hook, HostOffer, QueuedRun
from shopfloor.views import RunRow

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def lose_database(folder: Path) -> None:
    for path in folder.glob("shopfloor.db*"):
        path.unlink()


class Logs:
    """Implements `LogLookup`: these runs have started, each with its id as its idempotency key."""

    def __init__(self, runs: Collection[str] = ()) -> None:
        self._runs = runs

    def has(self, entry: QueuedRun | ControlMessage) -> bool:
        return entry.run_id in self._runs

    def runs_with_idempotency_key(self) -> list[QueuedRun]:
        return [dispatch("c", run_id=run_id, idempotency_key=run_id) for run_id in self._runs]


async def open_queue(folder: Path, *, recorded: Collection[str] = ()) -> tuple[SqliteQueue, SqliteStore]:
    """Open a queue as every process does. `recorded` are the runs whose logs contain their requests."""
    store = await SqliteStore.open(folder / "shopfloor.db")
    queue = SqliteQueue(store, Logs(recorded))
    await queue.recover()
    return queue, store


def intake_text(folder: Path) -> str:
    return (folder / "intake.jsonl").read_text()


@pytest.mark.req("SF-7")
async def test_a_lost_database_loses_no_dispatch_and_no_message(tmp_path: Path) -> None:
    queue, store = await open_queue(tmp_path)
    first, second, started_run = dispatch("a", idempotency_key="k"), dispatch("b"), dispatch("c")
    for order in (first, second, started_run):
        await queue.dispatch(order)
    await queue.dispatch(dispatch("own"), host="alive")
    await queue.put_control_message(answer(second.run_id))
    await queue.put_control_message(answer(started_run.run_id))
    await store.close()
    lose_database(tmp_path)

    queue, store = await open_queue(tmp_path, recorded={started_run.run_id})
    assert set(await statuses(store)) >= {first.run_id, second.run_id}
    assert await queue.claim("h", 9, HostOffer()) == [first, second]
    assert [host for _, host in await queue.claimed() if host == "alive"] == ["alive"]
    assert [order for _, order in await queue.control_messages()] == [answer(second.run_id)]
    assert await queue.dispatch(dispatch("a", idempotency_key="k")) == first.run_id
    assert await queue.dispatch(dispatch("c", idempotency_key=started_run.run_id)) == started_run.run_id
    await store.close()
    # The new database has all entries now: opening it again restores nothing twice.
    queue, store = await open_queue(tmp_path)
    assert await queue.claim("h", 9, HostOffer()) == []
    await store.close()


@pytest.mark.req("SF-7")
async def test_priority_and_requirements_survive_a_lost_database(tmp_path: Path) -> None:
    queue, store = await open_queue(tmp_path)
    plain, urgent = dispatch("plain"), dispatch("urgent", priority=5)
    gpu = dispatch("gpu", priority=9, requires=Requirements(labels={"gpu": "yes"}))
    for order in (plain, gpu, urgent):
        await queue.dispatch(order)
    await store.close()
    lose_database(tmp_path)
    queue, store = await open_queue(tmp_path)
    assert (await item_row(store, gpu.run_id)).requires == gpu.started.requires
    assert await queue.claim("h", 9, HostOffer()) == [urgent, plain]
    assert await queue.claim("h", 9, HostOffer(labels={"gpu": "yes"})) == [gpu]
    await store.close()


async def item_row(store: SqliteStore, run_id: str) -> RunRow:
    item = await store.get_run(run_id)
    assert item is not None
    return item.row


@pytest.mark.req("SF-7")
async def test_a_deleted_run_does_not_come_back_with_the_intake(tmp_path: Path) -> None:
    queue, store = await open_queue(tmp_path)
    deleted_run, stays = dispatch("gone"), dispatch("stays")
    await queue.dispatch(deleted_run)
    await queue.dispatch(stays)
    await store.add_tombstone(deleted_run.run_id)
    await store.close()
    lose_database(tmp_path)
    queue, store = await open_queue(tmp_path)
    assert await queue.claim("h", 9, HostOffer()) == [stays]
    await store.close()


async def test_an_older_copy_of_the_database_gets_what_it_does_not_know(tmp_path: Path) -> None:
    queue, store = await open_queue(tmp_path)
    old, new = dispatch("old"), dispatch("new")
    await queue.dispatch(old)
    await store.close()
    copy = (tmp_path / "shopfloor.db").read_bytes()
    queue, store = await open_queue(tmp_path)
    await queue.recover(is_idle=True)
    await queue.dispatch(new)
    await store.close()
    (tmp_path / "shopfloor.db").write_bytes(copy)
    queue, store = await open_queue(tmp_path)
    assert await queue.claim("h", 9, HostOffer()) == [old, new]
    await store.close()


async def test_a_torn_line_is_skipped_and_the_lines_after_it_are_read(tmp_path: Path) -> None:
    queue, store = await open_queue(tmp_path)
    first, second = dispatch("a"), dispatch("b")
    await queue.dispatch(first)
    await store.close()
    with (tmp_path / "intake.jsonl").open("a") as file:
        file.write('{"dispatch": {"run_id": "5')
    queue, store = await open_queue(tmp_path)
    await queue.dispatch(second)
    await store.close()
    lose_database(tmp_path)
    queue, store = await open_queue(tmp_path)
    assert await queue.claim("h", 9, HostOffer()) == [first, second]
    await store.close()


async def test_lines_that_logs_have_are_dropped_when_the_intake_is_large_or_idle(tmp_path: Path) -> None:
    queue, store = await open_queue(tmp_path)
    large = [dispatch("x" * 400_000) for _ in range(12)]
    for order in large:
        await queue.dispatch(order)
    assert len(intake_text(tmp_path)) > INTAKE_BYTES
    await queue.mark_started([order.run_id for order in large[1:]])
    await queue.recover()
    assert large[0].run_id in intake_text(tmp_path)
    assert not any(order.run_id in intake_text(tmp_path) for order in large[1:])
    await queue.mark_started([large[0].run_id])
    await queue.recover()
    assert large[0].run_id in intake_text(tmp_path)
    await queue.recover(is_idle=True)
    assert large[0].run_id not in intake_text(tmp_path)
    await store.close()


async def test_a_rejected_request_is_not_stored(tmp_path: Path) -> None:
    queue, store = await open_queue(tmp_path)
    await queue.dispatch(dispatch("a"))
    before = intake_text(tmp_path)

    def fail(connection: Connection) -> None:
        store.intake.add(b'{"message": "of nobody"}\n')
        connection.execute("INSERT INTO nowhere VALUES (1)")

    with pytest.raises(StoreError):
        store.writer.submit(fail).result()
    assert intake_text(tmp_path) == before
    await store.close()


async def test_a_deleted_intake_is_recreated_from_the_database(tmp_path: Path) -> None:
    queue, store = await open_queue(tmp_path)
    first, second = dispatch("a"), dispatch("b")
    await queue.dispatch(first)
    (tmp_path / "intake.jsonl").unlink()
    await queue.dispatch(second)
    await queue.recover()
    await store.close()
    lose_database(tmp_path)
    queue, store = await open_queue(tmp_path)
    assert await queue.claim("h", 9, HostOffer()) == [first, second]
    await store.close()


def fail_once(monkeypatch: pytest.MonkeyPatch, function: str) -> None:
    """Make the next call of a function of `os` fail, as a broken disk does."""
    work = getattr(os, function)

    def fail(*arguments: int) -> None:
        monkeypatch.setattr(os, function, work)
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, function, fail)


@pytest.mark.req("SF-7")
async def test_a_dispatch_whose_line_did_not_reach_the_disk_is_acknowledged_and_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, store = await open_queue(tmp_path)
    first, second = dispatch("a"), dispatch("b")
    await queue.dispatch(first)
    flushed = intake_text(tmp_path)
    fail_once(monkeypatch, "fdatasync")
    claims: list[QueuedRun] = []

    async def claim() -> None:
        claims.extend(await queue.claim("h", 9, HostOffer()))

    is_blocked, unblock = threading.Event(), threading.Event()
    store.writer.submit(lambda _: (is_blocked.set(), unblock.wait(10)))
    await anyio.to_thread.run_sync(is_blocked.wait)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(queue.dispatch, second)
        tasks.start_soon(claim)
        # Both jobs are queued and share the transaction of the blocked job.
        await anyio.sleep(0.1)
        unblock.set()
    assert [order.run_id for order in claims] == [run_id for run_id, _ in await queue.claimed()]
    # The page that did not reach the disk is lost.
    (tmp_path / "intake.jsonl").write_text(flushed)
    await queue.recover()
    await store.close()
    lose_database(tmp_path)
    queue, store = await open_queue(tmp_path)
    assert sorted(run_id for run_id, _ in await queue.claimed()) == sorted([first.run_id, second.run_id])
    await store.close()


async def test_a_rolled_back_line_that_cannot_be_truncated_is_removed_by_the_next_recovery(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, store = await open_queue(tmp_path)
    first = dispatch("a")
    await queue.dispatch(first)

    def refused_at_commit(connection: Connection) -> None:
        store.intake.add(b'{"message": "of nobody"}\n')
        connection.execute("PRAGMA defer_foreign_keys=ON")
        connection.execute("INSERT INTO worker_transcripts VALUES ('of no run', x'00')")

    fail_once(monkeypatch, "ftruncate")
    with pytest.raises(StoreError, match="FOREIGN KEY"):
        store.writer.submit(refused_at_commit).result()
    assert "of nobody" in intake_text(tmp_path)
    await queue.recover()
    assert "of nobody" not in intake_text(tmp_path)
    assert first.run_id in intake_text(tmp_path)
    # Nothing is left to recover.
    name = intake_text(tmp_path)
    await queue.recover()
    assert intake_text(tmp_path) == name
    await store.close()


async def test_a_write_to_a_deleted_database_is_not_acknowledged(tmp_path: Path) -> None:
    queue, store = await open_queue(tmp_path)
    first, refused = dispatch("a"), dispatch("b")
    await queue.dispatch(first)
    lose_database(tmp_path)
    with pytest.raises(DatabaseLost):
        await queue.dispatch(refused)
    with pytest.raises(DatabaseLost):
        await store.known_runs()
    await store.close()
    queue, store = await open_queue(tmp_path)
    assert await queue.claim("h", 9, HostOffer()) == [first]
    await store.close()


async def test_processes_that_dispatch_and_compact_at_once_lose_nothing(tmp_path: Path) -> None:
    made: list[str] = []

    async def process(number: int) -> None:
        queue, store = await open_queue(tmp_path)
        for n in range(15):
            order = dispatch(f"{number}-{n}")
            await queue.dispatch(order)
            made.append(order.run_id)
            if n % 4 == number:
                await queue.recover(is_idle=True)
        await store.close()

    threads = [threading.Thread(target=anyio.run, args=(process, number)) for number in range(4)]
    for thread in threads:
        thread.start()
    await anyio.to_thread.run_sync(lambda: [thread.join() for thread in threads])
    lose_database(tmp_path)
    queue, store = await open_queue(tmp_path)
    assert sorted(order.run_id for order in await queue.claim("h", 99, HostOffer())) == sorted(made)
    await store.close()


async def test_invalid_content_is_damage(tmp_path: Path) -> None:
    queue, store = await open_queue(tmp_path)
    await queue.dispatch(dispatch("a"))
    with sqlite3.connect(tmp_path / "shopfloor.db") as connection:
        connection.execute("UPDATE dispatches SET body = x'00ff'")
    with pytest.raises(StoreError) as refused:
        await queue.claim("h", 9, HostOffer())
    assert refused.value.code == "database_damaged"
    # Nothing is written to a damaged database.
    with pytest.raises(StoreError) as refused:
        await queue.dispatch(dispatch("b"))
    assert refused.value.code == "database_damaged"
    await store.close()


@pytest.mark.req("SF-7")
async def test_a_lost_database_loses_no_pin_and_no_dismissal(tmp_path: Path) -> None:
    queue, store = await open_queue(tmp_path)
    pinned_run, unblock, deleted = dispatch("a"), dispatch("b"), dispatch("c")
    for order in (pinned_run, unblock, deleted):
        await queue.dispatch(order)
        assert await store.pin(order.run_id, pinned=True)
        assert await store.dismiss(order.run_id)
    assert await store.pin(unblock.run_id, pinned=False)
    await store.add_tombstone(deleted.run_id)
    await store.close()
    lose_database(tmp_path)
    for _ in range(2):
        # The second time, the intake has been compacted.
        queue, store = await open_queue(tmp_path)
        pinned = await store.read(lambda connection: connection.execute("SELECT worker_id FROM pins").fetchall())
        assert pinned == [(pinned_run.run_id,)]
        dismissed = await store.read(
            lambda connection: connection.execute("SELECT worker_id FROM dismissals").fetchall()
        )
        assert sorted(dismissed) == sorted([(pinned_run.run_id,), (unblock.run_id,)])
        await store.close()
        lose_database(tmp_path)


@pytest.mark.req("SF-7")
async def test_a_lost_database_loses_no_webhook_and_no_hook_of_a_run(tmp_path: Path) -> None:
    _, store = await open_queue(tmp_path)
    hooks = SqliteHooks(store)
    webhook = Hook(id="kept", origin="api", created_at="2026", url="http://127.0.0.1:9/", secret="c2VjcmV0")
    of_run = Hook(id="run-a", origin="run", created_at="2026", command="true", run_id="a")
    own = [Hook(id=name, origin=name, created_at="2026", command="true") for name in ("settings", "desktop")]
    removed, of_deleted = (msgspec.structs.replace(webhook, id="removed"), msgspec.structs.replace(of_run, run_id="b"))
    for hook in (webhook, removed, of_run, msgspec.structs.replace(of_deleted, id="run-b"), *own):
        await hooks.add(hook)
    webhook = msgspec.structs.replace(webhook, url="http://127.0.0.1:9/changed")
    await hooks.add(webhook)
    assert await hooks.remove("removed")
    await store.add_tombstone("b")
    await store.close()
    for _ in range(2):
        # The second time, the intake has been compacted.
        lose_database(tmp_path)
        queue, store = await open_queue(tmp_path)
        assert [status.hook for status in await SqliteHooks(store).all()] == [webhook, of_run]
        # Nothing has changed: an idle server leaves the file as it is.
        before = intake_text(tmp_path)
        await queue.recover(is_idle=True)
        assert intake_text(tmp_path) == before
        await store.close()


@pytest.mark.parametrize("damaged", ["mark", "dispatch"])
async def test_invalid_content_in_one_connection_only_is_no_damage(tmp_path: Path, damaged: str) -> None:
    """The page cache of a connection can be wrong while the file is intact. A new connection decides."""
    queue, store = await open_queue(tmp_path)
    order = dispatch("a")
    await queue.dispatch(order)
    await store.apply([], feed_position=38)
    await store.close()
    database = tmp_path / "shopfloor.db"
    sound = b'intake["' if damaged == "mark" else b'{"run_id":"' + order.run_id.encode()
    offset = database.read_bytes().index(sound)
    # The file stays open until the end: closing it would release the locks of SQLite.
    with database.open("r+b", buffering=0) as file:
        os.pwrite(file.fileno(), sound.replace(b'["', b"55").replace(b'{"', b"55"), offset)
        store = await SqliteStore.open(database)
        queue = SqliteQueue(store)
        # The connection reads the page, and no query decodes its content.
        if damaged == "mark":
            assert await store.feed_position() == 38
        else:
            assert await queue.claim_one(order.run_id, "h", previous_host="nobody") is None
        os.pwrite(file.fileno(), sound, offset)
        assert await queue.recover() == 0
        assert await queue.claim("h", 9, HostOffer()) == [order]
        assert store.failure() is None
        await store.close()
