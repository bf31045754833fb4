"""The database file: opened, brought up to date, and written by one thread."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import queue
import sqlite3
import stat
import threading
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from sqlite3 import Connection
from time import monotonic
from typing import Any, Final, Generic, TypeVar

import msgspec

from shopfloor.adapters.sqlite.health import REBUILD_HINT, Health
from shopfloor.adapters.sqlite.intake import Intake
from shopfloor.adapters.sqlite.search import TEMPORARY_TABLES
from shopfloor.errors import (
    DatabaseBusy,
    DatabaseDamaged,
    DatabaseTooNew,
    DatabaseTooOld,
    ShopfloorError,
    StoreError,
    storage_error,
)
from shopfloor.limits import DATABASE_BUSY_TIMEOUT_SECONDS, DATABASE_GROUP_COMMIT_SECONDS, LOG_MODE
from shopfloor.record import lock_file, make_folder, open_for_append

_PRAGMAS: Final = (
    "journal_mode=WAL",
    # An order that was acknowledged survives a power cut. Those that come together share the wait.
    "synchronous=FULL",
    "foreign_keys=ON",
    "recursive_triggers=ON",
    # Ids are random, so that each run is on pages of its own: a cache that holds the indexes of many, and a log that
    # takes many changes of a page before it is written back.
    "cache_size=-16384",
    "wal_autocheckpoint=4000",
    # What a statement might have to take back is not worth a file.
    "temp_store=MEMORY",
)
MIGRATIONS: Final = sorted(Path(__file__).with_name("migrations").glob("*.sql"))
"""The scripts that make the tables, oldest first. The version of a database is how many of them it has seen."""
_SURROUNDINGS: Final = frozenset(
    {
        *(sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM),
        *(sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN),
    }
)
"""What SQLite says where the file may well be sound, and what is around it is not."""
_DAMAGED: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_NOT_OURS: Final = ("no such table", "Could not decode to UTF-8")
"""What the driver says of content that we never wrote."""
_MAKING: Final = threading.Lock()
_log = logging.getLogger("shopfloor.store")

A = TypeVar("A")
T = TypeVar("T")
Job = Callable[[Connection], Any]
Jobs = Callable[[Connection, list[Any]], list[Any]]
_Item = tuple[Jobs, Any, "Future[Any] | LoopFuture[Any]"]


class LoopFuture(Generic[T]):
    """The answer to a job, for a task of the event loop that waits for it."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.waiter: asyncio.Future[T] = self.loop.create_future()

    def set_running_or_notify_cancel(self) -> bool:
        return not self.waiter.cancelled()

    def set_exception(self, error: BaseException) -> None:
        with suppress(RuntimeError):
            self.loop.call_soon_threadsafe(_fail, self.waiter, error)


def _fail(waiter: asyncio.Future[Any], error: BaseException) -> None:
    if not waiter.done():
        waiter.set_exception(error)


def _answer_all(answered: list[tuple[asyncio.Future[Any], Any]]) -> None:
    for waiter, answer in answered:
        if not waiter.done():
            waiter.set_result(answer)


class Pool:
    """Connections to the file, without a transaction of their own. Who uses them sees to it that they are not many."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._idle: list[Connection] = []
        self._closed = False

    def acquire(self) -> Connection:
        """An open connection, for one thread at a time. It goes back with `release`, or is closed."""
        with suppress(IndexError):
            return self._idle.pop()
        connection = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
        try:
            for pragma in (*_PRAGMAS, f"busy_timeout={int(DATABASE_BUSY_TIMEOUT_SECONDS * 1000)}"):
                connection.execute(f"PRAGMA {pragma}")
            for statement in TEMPORARY_TABLES:
                connection.execute(statement)
        except BaseException:
            connection.close()
            raise
        return connection

    def release(self, connection: Connection) -> None:
        if self._closed:
            connection.close()
        else:
            self._idle.append(connection)

    @contextmanager
    def connection(self) -> Generator[Connection]:
        connection = self.acquire()
        try:
            yield connection
        except BaseException:
            connection.close()
            raise
        self.release(connection)

    @contextmanager
    def read_transaction(self) -> Generator[Connection]:
        """A connection that sees one state of the database. What is written to temporary tables is taken back."""
        with self.connection() as connection:
            connection.execute("BEGIN")
            yield connection
            connection.rollback()

    def close(self) -> None:
        self._closed = True
        while self._idle:
            self._idle.pop().close()


def open_database(path: Path, migrations: Sequence[Path] = MIGRATIONS) -> Pool:
    """The file at `path`, made if it is not there, migrated to the newest version under a lock."""
    make_folder(path.parent)
    pool = Pool(path)
    try:
        _make_private(path)
        # An empty file becomes a WAL database with the first connection, and SQLite lets nobody wait for that.
        if path.stat().st_size == 0 or _version(pool) != len(migrations):
            with lock_file(path.with_suffix(".migrating")):
                _migrate(pool, migrations)
    except sqlite3.DatabaseError as error:
        pool.close()
        raise _refused(error, path) from error
    except OSError as error:
        pool.close()
        raise storage_error(error, f"cannot open {path}") from error
    except BaseException:
        pool.close()
        raise
    return pool


def _make_private(path: Path) -> None:
    """Nobody else may read the file, nor what SQLite makes beside it with the same mode; whatever the umask is."""
    # By nobody else in this process meanwhile, and only where there is none: whoever closes a file takes away all the
    # locks that its process has on it, SQLite's too.
    with _MAKING, suppress(FileExistsError):
        if not path.exists():
            os.close(open_for_append(path, new=True))
    for file in (path, Path(f"{path}-wal"), Path(f"{path}-shm")):
        # The last to close the database takes those two away.
        with suppress(FileNotFoundError):
            mode = file.stat().st_mode
            if stat.S_ISREG(mode) and stat.S_IMODE(mode) != LOG_MODE:
                file.chmod(LOG_MODE)


def _refused(error: sqlite3.DatabaseError, path: Path) -> ShopfloorError:
    """Why it cannot be opened. To move a file away is advised only where the file itself is at fault."""
    code = _code_of(error)
    if code == sqlite3.SQLITE_CANTOPEN and path.is_file() and not os.access(path.parent, os.W_OK):
        # The file could be opened; those beside it, which it takes to read it too, could not be made.
        return storage_error(OSError(errno.EACCES, "its folder is read-only"), f"cannot use {path}")
    if code in _SURROUNDINGS:
        return map_sqlite_error(error)
    return DatabaseDamaged(f"{path} cannot be used as a database: {error}", hint=REBUILD_HINT)


def _version(pool: Pool) -> int:
    with pool.connection() as connection:
        return connection.execute("PRAGMA user_version").fetchone()[0]


def _migrate(pool: Pool, migrations: Sequence[Path]) -> None:
    """Execute the scripts that the database has not seen, each in a transaction."""
    version = _version(pool)
    if version > len(migrations):
        raise DatabaseTooNew(
            f"the database has version {version}, and this program knows {len(migrations)} at most",
            hint="use the newer Shopfloor that made it, or another SHOPFLOOR_STORAGE",
        )
    with pool.connection() as connection:
        if not version and connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchone() is not None:
            raise DatabaseTooOld(
                "the database was made by a Shopfloor from before the first version", hint=REBUILD_HINT
            )
        for number, script in enumerate(migrations[version:], version + 1):
            text = script.read_text(encoding="utf-8")
            connection.executescript(f"BEGIN IMMEDIATE;\n{text}PRAGMA user_version = {number};\nCOMMIT;")


class Writer:
    """The one thread that writes. Jobs wait in line; those that came while one was at work share its transaction.

    All are answered after the commit. If one of them fails, each is done once more in a transaction of its own, so
    that it fails alone: a job does nothing but write. No job is done again after its commit.
    """

    def __init__(
        self,
        pool: Pool,
        *,
        health: Health | None = None,
        intake: Intake | None = None,
        group_seconds: float = DATABASE_GROUP_COMMIT_SECONDS,
    ) -> None:
        self._pool = pool
        self._health = health
        self._intake = intake
        self._group_seconds = group_seconds
        self._jobs: queue.SimpleQueue[_Item | None] = queue.SimpleQueue()
        self._connection: Connection | None = None
        self._closing = False
        self._closed = False
        self._submitting = threading.Lock()
        """Held to add a job, and to close: no job is added behind the last one that is looked at."""
        self._thread = threading.Thread(target=self._work, name="shopfloor-store", daemon=True)
        self._thread.start()

    def submit(self, job: Callable[[Connection], T]) -> Future[T]:
        """Put a job in line, from any thread. Raises `StoreError` once the writer closes."""
        future: Future[T] = Future()
        self._put((do_each, job, future))
        return future

    def submit_batched(self, jobs: Callable[[Connection, list[A]], list[T]], asked: A) -> asyncio.Future[T]:
        """Put a job in line, for a task of the running loop. Raises `StoreError` once the writer closes.

        One of many: those that stand in line one after the other are done at once, each with its answer. Between two
        statements the driver waits until the other threads let it go on: a few for all take a fraction of the time that
        a few for each do. For the same reason the tasks whose jobs share a transaction are woken at once.
        """
        future: LoopFuture[T] = LoopFuture()
        self._put((jobs, asked, future))
        return future.waiter

    def _put(self, item: _Item) -> None:
        with self._submitting:
            if self._closed:
                raise _store_closed()
            self._jobs.put(item)

    def _work(self) -> None:
        try:
            while not self._closing and (item := self._jobs.get()) is not None:
                # Not where whoever asked has gone already.
                if item[2].set_running_or_notify_cancel():
                    self._answer([item])
        finally:
            self._refuse_rest()
            if self._connection is not None:
                self._pool.release(self._connection)

    def _refuse_rest(self) -> None:
        """Accept no more jobs, and fail those that nobody will do."""
        with self._submitting, suppress(queue.Empty):
            self._closed = True
            while True:
                item = self._jobs.get_nowait()
                if item is not None and item[2].set_running_or_notify_cancel():
                    item[2].set_exception(_store_closed())

    def _answer(self, items: list[_Item], *, alone: bool = False, confirmed: bool = False) -> None:
        """Does these jobs and, unless they shall be alone, those behind them.

        A job that finds the database damaged is done once more in a new connection, unless that is `confirmed`.
        """
        try:
            answers = self._commit(items, alone=alone)
        except BaseException as error:  # noqa: BLE001 - whoever asked is told
            if len(items) == 1:
                if not confirmed and is_damage(error):
                    self._answer(items, alone=True, confirmed=True)
                    return
                said = _told(error)
                if self._health is not None:
                    self._health.note(said)
                items[0][2].set_exception(said)
                return
            for item in items:
                self._answer([item], alone=True)
            return
        by_loop: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[Any], Any]]] = {}
        for (_, _, future), answer in zip(items, answers, strict=True):
            if isinstance(future, LoopFuture):
                by_loop.setdefault(future.loop, []).append((future.waiter, answer))
            else:
                future.set_result(answer)
        for loop, answered in by_loop.items():
            # A loop that is closed has nobody left who waits.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(_answer_all, answered)

    def _commit(self, items: list[_Item], *, alone: bool) -> list[Any]:
        with self._transaction() as connection:
            until = monotonic() + self._group_seconds
            answers: list[Any] = []
            some = items + ([] if alone else self._in_line())
            while some:
                items[len(answers) :] = some
                for jobs, asked in groupby(some, itemgetter(0)):
                    answers += jobs(connection, [item[1] for item in asked])
                some = [] if alone or monotonic() > until else self._in_line()
        self._end_intake()
        return answers

    @contextmanager
    def _transaction(self) -> Generator[Connection]:
        """On a connection that is kept: to get one takes as long as to write.

        The intake is written before the commit, and is cut again where the commit fails.
        """
        try:
            self._check()
            connection = self._connection = self._connection or self._pool.acquire()
            # The write lock at once, not in the middle.
            connection.execute("BEGIN IMMEDIATE")
            yield connection
            if self._intake is not None:
                self._intake.begin_write()
            # As late as possible: nothing is acknowledged that went to a file which is no longer there.
            self._check()
            connection.commit()
        except BaseException:
            self._cancel()
            raise

    def _cancel(self) -> None:
        """Cut the intake, then roll back: the write lock keeps other processes from the intake meanwhile."""
        try:
            if self._intake is not None:
                self._intake.cancel_write()
        except Exception as error:  # noqa: BLE001 - the error that made the transaction fail is reported, not this one
            _log.warning("%s; the intake is rewritten at the next recovery", error)
        finally:
            # Whatever became of it, the next is a new one.
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.close()

    def _end_intake(self) -> None:
        """Wait until the intake is on disk. Never raises: the jobs are committed and must not be done again.

        They are acknowledged in any case: the database has them on disk, and the intake is the second copy.
        """
        try:
            if self._intake is not None:
                self._intake.end_write()
        except Exception as error:  # noqa: BLE001 - see above
            _log.warning("%s; the intake is rewritten at the next recovery", error)

    def _check(self) -> None:
        if self._health is not None:
            self._health.check()

    def _in_line(self) -> list[_Item]:
        """Those that wait now."""
        found: list[_Item] = []
        with suppress(queue.Empty):
            while (item := self._jobs.get_nowait()) is not None:
                if item[2].set_running_or_notify_cancel():
                    found.append(item)
            self._closing = True
        return found

    def close(self) -> None:
        """Does what is in line, then ends. Twice is fine."""
        with self._submitting:
            self._closed = True
            self._jobs.put(None)
        self._thread.join()


def _store_closed() -> StoreError:
    return StoreError("the store is closed")


def do_each(connection: Connection, jobs: list[Job]) -> list[Any]:
    return [job(connection) for job in jobs]


def _told(error: BaseException) -> BaseException:
    if not isinstance(error, DATABASE_ERRORS):
        return error
    said = map_sqlite_error(error)
    said.__cause__ = error
    return said


def _code_of(error: BaseException) -> int | None:
    """SQLite's code, of which the lowest byte says what it is; none where the driver itself refused."""
    code: int | None = getattr(error, "sqlite_errorcode", None)
    return None if code is None else code & 0xFF


DATABASE_ERRORS: Final = (sqlite3.DatabaseError, msgspec.MsgspecError, UnicodeDecodeError)
"""What a query raises where the database cannot be used, or gives what nobody ever wrote to it."""


def is_damage(error: BaseException) -> bool:
    """Whether a query met content that nobody wrote: in the file, or only in what its connection keeps of the file."""
    return isinstance(error, DATABASE_ERRORS) and isinstance(map_sqlite_error(error), DatabaseDamaged)


def damaged_error(how: str) -> DatabaseDamaged:
    return DatabaseDamaged(f"the database is damaged: {how}", hint=REBUILD_HINT)


def map_sqlite_error(error: BaseException) -> ShopfloorError:
    """The error of ours that one of `DATABASE_ERRORS` means."""
    if not isinstance(error, sqlite3.DatabaseError):
        return damaged_error(str(error))
    said = str(error)
    code = _code_of(error)
    is_short = getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_IOERR_SHORT_READ
    if code in _DAMAGED or is_short or any(words in said for words in _NOT_OURS):
        return damaged_error(said)
    if code == sqlite3.SQLITE_READONLY:
        return storage_error(OSError(errno.EROFS, said), "cannot write the database")
    if code == sqlite3.SQLITE_FULL:
        return storage_error(OSError(errno.ENOSPC, said), "cannot write the database")
    if "locked" in said or "busy" in said:
        return DatabaseBusy("the database is held by another process", hint="try again in a moment")
    return StoreError(f"the database cannot be used: {said}", hint="check the disk; the logs themselves are safe")
