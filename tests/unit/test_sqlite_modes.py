"""The files of the database: private, at their path, and with errors that tell damage from a failing disk."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from sqlite3 import Connection
from stat import S_IMODE

import pytest

from shopfloor.adapters.sqlite.database import Writer, map_sqlite_error, open_database
from shopfloor.errors import DatabaseBusy, StorageUnwritable, StoreError


@pytest.fixture
def no_umask() -> Generator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def modes(folder: Path) -> dict[str, int]:
    return {path.name: S_IMODE(path.stat().st_mode) for path in folder.glob("shopfloor.db*")}


PRIVATE = {"shopfloor.db": 0o600, "shopfloor.db-wal": 0o600, "shopfloor.db-shm": 0o600}


@pytest.mark.usefixtures("no_umask")
def test_a_new_database_and_the_files_beside_it_are_private(tmp_path: Path):
    pool = open_database(tmp_path / "shopfloor.db")
    assert modes(tmp_path) == PRIVATE
    pool.close()


@pytest.mark.usefixtures("no_umask")
def test_files_that_others_could_read_become_private(tmp_path: Path):
    path = tmp_path / "shopfloor.db"
    open_database(path).close()
    path.chmod(0o644)
    with sqlite3.connect(path) as before:
        before.execute("INSERT INTO settings VALUES ('kept', 'one')")
    assert modes(tmp_path) == dict.fromkeys(PRIVATE, 0o644)
    pool = open_database(path)
    assert modes(tmp_path) == PRIVATE
    pool.close()
    before.close()


def test_opening_a_database_again_keeps_the_locks_of_this_process(tmp_path: Path):
    path = tmp_path / "shopfloor.db"
    pool = open_database(path)
    open_database(path).close()
    # Closing the last connection deletes the journal.
    other = f"import sqlite3; c = sqlite3.connect({str(path)!r}); c.execute('SELECT * FROM worker_runs'); c.close()"
    subprocess.run([sys.executable, "-c", other], check=True)
    assert set(modes(tmp_path)) == set(PRIVATE)
    pool.close()


@pytest.mark.parametrize("name", ["what?", "a?mode=memory", "a#b", "a%41", "a b:c@d", os.fsdecode(b"\xff")])
def test_the_database_is_created_at_its_path_whatever_the_folder_name(tmp_path: Path, name: str):
    folder = tmp_path / name
    open_database(folder / "shopfloor.db").close()
    assert (folder / "shopfloor.db").stat().st_size > 0
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_connection_that_may_only_read_is_a_storage_that_cannot_be_written(tmp_path: Path):
    path = tmp_path / "shopfloor.db"
    open_database(path).close()
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    with pytest.raises(sqlite3.OperationalError) as caught:
        connection.execute("DELETE FROM worker_runs")
    connection.close()
    error = map_sqlite_error(caught.value)
    assert isinstance(error, StorageUnwritable)
    assert error.message == "cannot write the database: attempt to write a readonly database"
    assert error.hint == "make the folder writable, or set SHOPFLOOR_STORAGE to another folder"


def test_a_failed_write_raises_a_storage_error(tmp_path: Path):
    pool = open_database(tmp_path / "shopfloor.db")
    writer = Writer(pool)

    def write(connection: Connection) -> None:
        connection.execute("PRAGMA query_only=ON")
        connection.execute("DELETE FROM worker_runs")

    with pytest.raises(StorageUnwritable):
        writer.submit(write).result(10)
    writer.close()
    pool.close()


def test_a_rebuild_is_advised_only_if_the_file_itself_is_damaged(tmp_path: Path):
    path = tmp_path / "shopfloor.db"
    holder = sqlite3.connect(path)
    holder.execute("BEGIN EXCLUSIVE")
    with pytest.raises(DatabaseBusy):
        open_database(path)
    holder.close()
    path.write_bytes(b"words" * 1000)
    with pytest.raises(StoreError, match="cannot be used as a database: file is not a database") as caught:
        open_database(path)
    assert caught.value.code == "database_damaged"
    assert "`shopfloor rebuild`" in str(caught.value.hint)
