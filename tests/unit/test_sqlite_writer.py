"""The thread that writes the database: who waits together shares a transaction, and who fails fails alone."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError, Future
from pathlib import Path

import pytest
from sqlalchemy import Connection, Engine, text

from shopfloor.adapters.sqlite.database import Writer, driver, open_database
from shopfloor.errors import DatabaseBusy, StoreError

PATIENCE = 10.0


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    made = open_database(tmp_path / "shopfloor.db")
    yield made
    made.dispose()


@pytest.fixture
def writer(engine: Engine) -> Iterator[Writer]:
    # So long that those in line share a transaction however slow the machine is.
    made = Writer(engine, group_seconds=PATIENCE)
    yield made
    made.close()


def add(name: str):
    def job(connection: Connection) -> str:
        driver(connection).execute("INSERT INTO settings VALUES (?, 'x')", (name,))
        return name

    return job


def names(engine: Engine) -> list[str]:
    with engine.connect() as connection:
        return list(connection.execute(text("SELECT name FROM settings ORDER BY name")).scalars())


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


def test_those_that_wait_in_line_share_a_transaction(engine: Engine, writer: Writer) -> None:
    def committed(connection: Connection) -> list[str]:
        # What anybody else sees meanwhile.
        return names(engine)

    held = Held(writer)
    futures = [writer.submit(add("a")), writer.submit(committed), writer.submit(add("b")), writer.submit(committed)]
    held.let_go()
    assert [future.result(PATIENCE) for future in futures] == ["a", [], "b", []]
    assert names(engine) == ["a", "b"]


def test_one_that_fails_fails_alone(engine: Engine, writer: Writer) -> None:
    writer.submit(add("taken")).result(PATIENCE)
    futures = waiting(writer, "a", "taken", "b", "taken", "c")
    assert [futures[n].result(PATIENCE) for n in (0, 2, 4)] == ["a", "b", "c"]
    for n in (1, 3):
        with pytest.raises(StoreError, match="UNIQUE constraint failed"):
            futures[n].result(PATIENCE)
    assert names(engine) == ["a", "b", "c", "taken"]


def test_nothing_of_one_that_fails_is_left(engine: Engine, writer: Writer) -> None:
    def half(connection: Connection) -> None:
        add("half")(connection)
        raise LookupError

    held = Held(writer)
    failing, other = writer.submit(half), writer.submit(add("whole"))
    held.let_go()
    with pytest.raises(LookupError):
        failing.result(PATIENCE)
    assert other.result(PATIENCE) == "whole"
    assert names(engine) == ["whole"]


def test_what_nobody_waits_for_any_more_is_not_begun(engine: Engine, writer: Writer) -> None:
    held = Held(writer)
    gone, other = writer.submit(add("gone")), writer.submit(add("other"))
    assert gone.cancel()
    held.let_go()
    assert other.result(PATIENCE) == "other"
    with pytest.raises(CancelledError):
        gone.result(PATIENCE)
    assert names(engine) == ["other"]


def test_closing_does_what_is_in_line(engine: Engine) -> None:
    writer = Writer(engine)
    held = Held(writer)
    futures = [writer.submit(add(f"n{number}")) for number in range(5)]
    held.let_go()
    writer.close()
    writer.close()
    assert [future.result(0) for future in futures] == names(engine)
    with pytest.raises(StoreError, match="closed"):
        writer.submit(add("late"))


def test_a_database_that_is_held_by_another_is_said_to_be_busy(tmp_path: Path, engine: Engine) -> None:
    with engine.connect() as connection:
        # The writer gets this connection, and shall not wait long.
        driver(connection).execute("PRAGMA busy_timeout=50")
    writer = Writer(engine)
    other = sqlite3.connect(tmp_path / "shopfloor.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(DatabaseBusy) as refused:
        writer.submit(add("a")).result(PATIENCE)
    assert refused.value.hint
    other.execute("ROLLBACK")
    assert writer.submit(add("a")).result(PATIENCE) == "a"
    other.close()
    writer.close()
