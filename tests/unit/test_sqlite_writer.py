"""The thread that writes the database: who waits together shares a transaction, and who fails fails alone."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError, Future
from pathlib import Path
from sqlite3 import Connection

import pytest

from shopfloor.adapters.sqlite.database import Pool, Writer, open_database
from shopfloor.errors import DatabaseBusy, StoreError

PATIENCE = 10.0


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[Pool]:
    made = open_database(tmp_path / "shopfloor.db")
    yield made
    made.close()


@pytest.fixture
def writer(pool: Pool) -> Iterator[Writer]:
    # So long that those in line share a transaction however slow the machine is.
    made = Writer(pool, group_seconds=PATIENCE)
    yield made
    made.close()


def add(name: str):
    def job(connection: Connection) -> str:
        connection.execute("INSERT INTO settings VALUES (?, 'x')", (name,))
        return name

    return job


def names(pool: Pool) -> list[str]:
    with pool.reading() as connection:
        return [name for (name,) in connection.execute("SELECT name FROM settings ORDER BY name")]


class Held:
    """A job that holds the writer until it is let go, so that others line up behind it."""

    def __init__(self, writer: Writer) -> None:
        self._begun, self._go = threading.Event(), threading.Event()
        self._future = writer.submit(self._job)
        self._begun.wait(PATIENCE)

    def _job(self, connection: Connection) -> None:
        self._begun.set()
        self._go.wait(PATIENCE)

    def let_go(self) -> None:
        self._go.set()
        self._future.result(PATIENCE)


def waiting(writer: Writer, *wanted: str) -> list[Future[str]]:
    held = Held(writer)
    futures = [writer.submit(add(name)) for name in wanted]
    held.let_go()
    return futures


def test_those_that_wait_in_line_share_a_transaction(pool: Pool, writer: Writer) -> None:
    def committed(connection: Connection) -> list[str]:
        # What anybody else sees meanwhile.
        return names(pool)

    held = Held(writer)
    futures = [writer.submit(add("a")), writer.submit(committed), writer.submit(add("b")), writer.submit(committed)]
    held.let_go()
    assert [future.result(PATIENCE) for future in futures] == ["a", [], "b", []]
    assert names(pool) == ["a", "b"]


def test_one_that_fails_fails_alone(pool: Pool, writer: Writer) -> None:
    writer.submit(add("taken")).result(PATIENCE)
    futures = waiting(writer, "a", "taken", "b", "taken", "c")
    assert [futures[n].result(PATIENCE) for n in (0, 2, 4)] == ["a", "b", "c"]
    for n in (1, 3):
        with pytest.raises(StoreError, match="UNIQUE constraint failed"):
            futures[n].result(PATIENCE)
    assert names(pool) == ["a", "b", "c", "taken"]


def test_nothing_of_one_that_fails_is_left(pool: Pool, writer: Writer) -> None:
    def half(connection: Connection) -> None:
        add("half")(connection)
        raise LookupError

    held = Held(writer)
    failing, other = writer.submit(half), writer.submit(add("whole"))
    held.let_go()
    with pytest.raises(LookupError):
        failing.result(PATIENCE)
    assert other.result(PATIENCE) == "whole"
    assert names(pool) == ["whole"]


def test_what_nobody_waits_for_any_more_is_not_begun(pool: Pool, writer: Writer) -> None:
    held = Held(writer)
    gone, other = writer.submit(add("gone")), writer.submit(add("other"))
    assert gone.cancel()
    held.let_go()
    assert other.result(PATIENCE) == "other"
    with pytest.raises(CancelledError):
        gone.result(PATIENCE)
    assert names(pool) == ["other"]


def test_closing_does_what_is_in_line(pool: Pool) -> None:
    writer = Writer(pool)
    held = Held(writer)
    futures = [writer.submit(add(f"n{number}")) for number in range(5)]
    held.let_go()
    writer.close()
    writer.close()
    assert [future.result(0) for future in futures] == names(pool)
    with pytest.raises(StoreError, match="closed"):
        writer.submit(add("late"))


def test_a_database_that_is_held_by_another_is_said_to_be_busy(tmp_path: Path, pool: Pool) -> None:
    with pool.connection() as connection:
        # The writer gets this connection, and shall not wait long.
        connection.execute("PRAGMA busy_timeout=50")
    writer = Writer(pool)
    other = sqlite3.connect(tmp_path / "shopfloor.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(DatabaseBusy) as refused:
        writer.submit(add("a")).result(PATIENCE)
    assert refused.value.hint
    other.execute("ROLLBACK")
    assert writer.submit(add("a")).result(PATIENCE) == "a"
    other.close()
    writer.close()
