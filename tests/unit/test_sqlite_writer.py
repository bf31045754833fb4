"""The writing thread of the database: queued jobs share a transaction, and a failing job fails alone."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError, Future, wait
from contextlib import suppress
from pathlib import Path
from sqlite3 import Connection

import pytest
from tests.timeouts import TIMEOUT_SECONDS

from shopfloor.adapters.sqlite.database import Pool, Writer, open_database
from shopfloor.adapters.sqlite.intake import Intake, mark_line
from shopfloor.errors import DatabaseBusy, StoreError


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[Pool]:
    made = open_database(tmp_path / "shopfloor.db")
    yield made
    made.close()


@pytest.fixture
def writer(pool: Pool) -> Iterator[Writer]:
    # So long that queued jobs share a transaction however slow the machine is.
    made = Writer(pool, group_seconds=TIMEOUT_SECONDS)
    yield made
    made.close()


def add(name: str):
    def job(connection: Connection) -> str:
        connection.execute("INSERT INTO settings VALUES (?, 'x')", (name,))
        return name

    return job


def names(pool: Pool) -> list[str]:
    with pool.read_transaction() as connection:
        return [name for (name,) in connection.execute("SELECT name FROM settings ORDER BY name")]


class BlockingJob:
    """A job that blocks the writer until it is released, so that others queue up."""

    def __init__(self, writer: Writer) -> None:
        self._started, self._go = threading.Event(), threading.Event()
        self._future = writer.submit(self._job)
        self._started.wait(TIMEOUT_SECONDS)

    def _job(self, connection: Connection) -> None:
        self._started.set()
        self._go.wait(TIMEOUT_SECONDS)

    def release(self) -> None:
        self._go.set()
        self._future.result(TIMEOUT_SECONDS)


def submit_together(writer: Writer, *wanted: str) -> list[Future[str]]:
    blocker = BlockingJob(writer)
    futures = [writer.submit(add(name)) for name in wanted]
    blocker.release()
    return futures


def test_queued_jobs_share_a_transaction(pool: Pool, writer: Writer) -> None:
    def committed(connection: Connection) -> list[str]:
        # What other connections see meanwhile.
        return names(pool)

    blocker = BlockingJob(writer)
    futures = [writer.submit(add("a")), writer.submit(committed), writer.submit(add("b")), writer.submit(committed)]
    blocker.release()
    assert [future.result(TIMEOUT_SECONDS) for future in futures] == ["a", [], "b", []]
    assert names(pool) == ["a", "b"]


def test_a_failing_job_fails_alone(pool: Pool, writer: Writer) -> None:
    writer.submit(add("taken")).result(TIMEOUT_SECONDS)
    futures = submit_together(writer, "a", "taken", "b", "taken", "c")
    assert [futures[n].result(TIMEOUT_SECONDS) for n in (0, 2, 4)] == ["a", "b", "c"]
    for n in (1, 3):
        with pytest.raises(StoreError, match="UNIQUE constraint failed"):
            futures[n].result(TIMEOUT_SECONDS)
    assert names(pool) == ["a", "b", "c", "taken"]


def test_a_failing_job_leaves_no_changes(pool: Pool, writer: Writer) -> None:
    def half(connection: Connection) -> None:
        add("half")(connection)
        raise LookupError

    blocker = BlockingJob(writer)
    failing, other = writer.submit(half), writer.submit(add("whole"))
    blocker.release()
    with pytest.raises(LookupError):
        failing.result(TIMEOUT_SECONDS)
    assert other.result(TIMEOUT_SECONDS) == "whole"
    assert names(pool) == ["whole"]


def test_a_cancelled_job_is_not_executed(pool: Pool, writer: Writer) -> None:
    blocker = BlockingJob(writer)
    cancelled, other = writer.submit(add("gone")), writer.submit(add("other"))
    assert cancelled.cancel()
    blocker.release()
    assert other.result(TIMEOUT_SECONDS) == "other"
    with pytest.raises(CancelledError):
        cancelled.result(TIMEOUT_SECONDS)
    assert names(pool) == ["other"]


def test_closing_executes_the_queued_jobs(pool: Pool) -> None:
    writer = Writer(pool)
    blocker = BlockingJob(writer)
    futures = [writer.submit(add(f"n{number}")) for number in range(5)]
    blocker.release()
    writer.close()
    writer.close()
    assert [future.result(0) for future in futures] == names(pool)
    with pytest.raises(StoreError, match="closed"):
        writer.submit(add("late"))


def test_a_locked_database_is_reported_as_busy(tmp_path: Path, pool: Pool) -> None:
    with pool.connection() as connection:
        # The writer gets this connection, with a short busy timeout.
        connection.execute("PRAGMA busy_timeout=50")
    writer = Writer(pool)
    other = sqlite3.connect(tmp_path / "shopfloor.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(DatabaseBusy) as refused:
        writer.submit(add("a")).result(TIMEOUT_SECONDS)
    assert refused.value.hint
    other.execute("ROLLBACK")
    assert writer.submit(add("a")).result(TIMEOUT_SECONDS) == "a"
    other.close()
    writer.close()


def test_a_job_submitted_during_close_gets_a_result_or_an_error(pool: Pool) -> None:
    writer = Writer(pool)
    blocker = BlockingJob(writer)
    closing = threading.Thread(target=writer.close)
    closing.start()
    accepted: list[Future[str]] = []
    deadline = time.monotonic() + 1
    with suppress(StoreError):
        while time.monotonic() < deadline:
            accepted.append(writer.submit(add(f"n{len(accepted):05}")))
            time.sleep(0.001)
    blocker.release()
    closing.join(TIMEOUT_SECONDS)
    assert not wait(accepted, timeout=TIMEOUT_SECONDS).not_done
    assert sorted(future.result(0) for future in accepted) == names(pool)


class Disk:
    """Makes the next calls of a function of `os` fail, as a broken disk does."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, function: str, failures: int = 1) -> None:
        self._work = getattr(os, function)
        self.failures = failures
        monkeypatch.setattr(os, function, self._call)

    def _call(self, *arguments: int) -> None:
        if self.failures:
            self.failures -= 1
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        self._work(*arguments)


@pytest.fixture
def intake(tmp_path: Path) -> Iterator[Intake]:
    made = Intake(tmp_path / "intake.jsonl")
    yield made
    made.close()


def test_jobs_are_not_repeated_if_the_intake_cannot_be_flushed_after_their_commit(
    pool: Pool, intake: Intake, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    writer = Writer(pool, intake=intake, group_seconds=TIMEOUT_SECONDS)
    executed: list[str] = []

    def pin(name: str):
        def job(connection: Connection) -> str:
            executed.append(name)
            intake.add(mark_line("pin", name))
            return add(name)(connection)

        return job

    blocker = BlockingJob(writer)
    disk = Disk(monkeypatch, "fdatasync")
    futures = [writer.submit(pin(name)) for name in ("a", "b")]
    with caplog.at_level(logging.WARNING, "shopfloor"):
        blocker.release()
        assert [future.result(TIMEOUT_SECONDS) for future in futures] == ["a", "b"]
    assert (disk.failures, executed) == (0, ["a", "b"])
    assert "intake.jsonl" in caplog.text
    assert intake.needs_rewrite
    assert names(pool) == ["a", "b"]
    # The next job is written as usual.
    assert writer.submit(pin("c")).result(TIMEOUT_SECONDS) == "c"
    writer.close()


def test_a_failed_commit_leaves_no_open_transaction_if_the_intake_cannot_be_truncated(
    tmp_path: Path, pool: Pool, intake: Intake, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = Writer(pool, intake=intake)

    def refused_at_commit(connection: Connection) -> None:
        intake.add(mark_line("pin", "refused"))
        connection.execute("PRAGMA defer_foreign_keys=ON")
        connection.execute("INSERT INTO worker_transcripts VALUES ('of no run', x'00')")

    disk = Disk(monkeypatch, "ftruncate")
    with pytest.raises(StoreError, match="FOREIGN KEY"):
        writer.submit(refused_at_commit).result(TIMEOUT_SECONDS)
    assert disk.failures == 0
    assert intake.needs_rewrite
    # Neither the database nor the intake is locked.
    other = sqlite3.connect(tmp_path / "shopfloor.db", isolation_level=None, timeout=0)
    other.execute("BEGIN IMMEDIATE")
    other.close()
    with (tmp_path / "intake.jsonl").open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert writer.submit(add("a")).result(TIMEOUT_SECONDS) == "a"
    writer.close()
