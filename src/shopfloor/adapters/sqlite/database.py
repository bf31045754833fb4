"""The database file: opening and migration, the connection pool, and the thread that writes."""

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

from shopfloor.adapters.limits import DATABASE_BUSY_TIMEOUT_SECONDS, DATABASE_GROUP_COMMIT_SECONDS
from shopfloor.adapters.sqlite.health import REBUILD_HINT, Health
from shopfloor.adapters.sqlite.intake import Intake
from shopfloor.adapters.sqlite.search import TEMPORARY_TABLES
from shopfloor.error_factories import storage_error
from shopfloor.errors import DatabaseBusy, DatabaseDamaged, DatabaseTooNew, DatabaseTooOld, ShopfloorError, StoreError
from shopfloor.limits import LOG_MODE
from shopfloor.record import lock_file, make_folder, open_for_append

_PRAGMAS: Final = (
    "journal_mode=WAL",
    # A control message that was acknowledged survives a power cut. Messages that arrive together share the sync.
    "synchronous=FULL",
    "foreign_keys=ON",
    "recursive_triggers=ON",
    # Ids are random, so each run is on other pages: use a cache that holds the indexes of many runs, and a WAL that
    # collects many changes of a page before it is written back.
    "cache_size=-16384",
    "wal_autocheckpoint=4000",
    # Statement journals for rollback are small: keep them in memory, not in files.
    "temp_store=MEMORY",
)
MIGRATIONS: Final = sorted(Path(__file__).with_name("migrations").glob("*.sql"))
"""The migration scripts, oldest first. The version of a database is the number of scripts executed on it."""
_ENVIRONMENT_CODES: Final = frozenset(
    {
        *(sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM),
        *(sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN),
    }
)
"""SQLite's codes for failures of the environment, which do not mean that the file is damaged."""
_DAMAGE_CODES: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_DAMAGE_MESSAGES: Final = ("no such table", "Could not decode to UTF-8")
"""The driver's messages for content that Shopfloor never wrote."""
_CREATE_LOCK: Final = threading.Lock()
_log = logging.getLogger("shopfloor.store")

A = TypeVar("A")
T = TypeVar("T")
Job = Callable[[Connection], Any]
Jobs = Callable[[Connection, list[Any]], list[Any]]
_Item = tuple[Jobs, Any, "Future[Any] | LoopFuture[Any]"]


class LoopFuture(Generic[T]):
    """The result of a job, for a task of an event loop that waits for it."""

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


def _set_results(results: list[tuple[asyncio.Future[Any], Any]]) -> None:
    for waiter, result in results:
        if not waiter.done():
            waiter.set_result(result)


class Pool:
    """Connections to the file, in autocommit mode. The pool has no limit: its users limit how many they acquire."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._idle: list[Connection] = []
        self._closed = False

    def acquire(self) -> Connection:
        """Return an open connection, for one thread at a time. The caller must `release` or close it."""
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
        """Return a connection to the pool."""
        if self._closed:
            connection.close()
        else:
            self._idle.append(connection)

    @contextmanager
    def connection(self) -> Generator[Connection]:
        """Acquire a connection for the context. Closes it after an error."""
        connection = self.acquire()
        try:
            yield connection
        except BaseException:
            connection.close()
            raise
        self.release(connection)

    @contextmanager
    def read_transaction(self) -> Generator[Connection]:
        """Open a transaction that sees one state of the database. Rolls back its writes to temporary tables."""
        with self.connection() as connection:
            connection.execute("BEGIN")
            yield connection
            connection.rollback()

    def close(self) -> None:
        self._closed = True
        while self._idle:
            self._idle.pop().close()


def open_database(path: Path, migrations: Sequence[Path] = MIGRATIONS) -> Pool:
    """Open the database at `path`. Creates it if missing, and migrates it to the newest version under a lock.

    Raises `StoreError` or `StorageError`. Blocks.
    """
    make_folder(path.parent)
    pool = Pool(path)
    try:
        _make_private(path)
        # The first connection makes an empty file a WAL database. SQLite's busy timeout does not cover that, so lock.
        if path.stat().st_size == 0 or _version(pool) != len(migrations):
            with lock_file(path.with_suffix(".migrating")):
                _migrate(pool, migrations)
    except sqlite3.DatabaseError as error:
        pool.close()
        raise _open_error(error, path) from error
    except OSError as error:
        pool.close()
        raise storage_error(error, f"cannot open {path}") from error
    except BaseException:
        pool.close()
        raise
    return pool


def _make_private(path: Path) -> None:
    """Make the file private, whatever the umask is. SQLite creates the files beside it with the same mode."""
    # Only if the file is missing, and by one thread at a time: closing a file releases all locks that the process has
    # on it, including SQLite's.
    with _CREATE_LOCK, suppress(FileExistsError):
        if not path.exists():
            os.close(open_for_append(path, new=True))
    for file in (path, Path(f"{path}-wal"), Path(f"{path}-shm")):
        # The last process that closes the database deletes the files beside it.
        with suppress(FileNotFoundError):
            mode = file.stat().st_mode
            if stat.S_ISREG(mode) and stat.S_IMODE(mode) != LOG_MODE:
                file.chmod(LOG_MODE)


def _open_error(error: sqlite3.DatabaseError, path: Path) -> ShopfloorError:
    """Return the error for a failed open. Its hint advises a rebuild only if the file itself is at fault."""
    code = _primary_code(error)
    if code == sqlite3.SQLITE_CANTOPEN and path.is_file() and not os.access(path.parent, os.W_OK):
        # The file can be opened, but the files beside it, which reading needs too, cannot be created.
        return storage_error(OSError(errno.EACCES, "its folder is read-only"), f"cannot use {path}")
    if code in _ENVIRONMENT_CODES:
        return map_sqlite_error(error)
    return DatabaseDamaged(f"{path} cannot be used as a database: {error}", hint=REBUILD_HINT)


def _version(pool: Pool) -> int:
    with pool.connection() as connection:
        return connection.execute("PRAGMA user_version").fetchone()[0]


def _migrate(pool: Pool, migrations: Sequence[Path]) -> None:
    """Execute the scripts that are new to the database, each in a transaction."""
    version = _version(pool)
    if version > len(migrations):
        raise DatabaseTooNew(
            f"the database has version {version}, but this Shopfloor supports versions up to {len(migrations)}",
            hint="use the newer Shopfloor that created it, or another SHOPFLOOR_STORAGE",
        )
    with pool.connection() as connection:
        if not version and connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchone() is not None:
            raise DatabaseTooOld(
                "the database was created by a Shopfloor from before its first release", hint=REBUILD_HINT
            )
        for number, script in enumerate(migrations[version:], version + 1):
            text = script.read_text(encoding="utf-8")
            connection.executescript(f"BEGIN IMMEDIATE;\n{text}PRAGMA user_version = {number};\nCOMMIT;")


class Writer:
    """The single writing thread. Jobs queue up; those that arrive during a transaction share it.

    Results are delivered after the commit. If a job fails, each job of the transaction is executed again in a separate
    transaction, so that only the failing one fails: jobs have no effects but writes. No job is repeated after its
    commit.
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
        self._submit_lock = threading.Lock()
        """Held to add a job, and to close, so that no job is added after the queue was emptied for the last time."""
        self._thread = threading.Thread(target=self._run, name="shopfloor-store", daemon=True)
        self._thread.start()

    def submit(self, job: Callable[[Connection], T]) -> Future[T]:
        """Queue a job, from any thread. Raises `StoreError` once the writer closes."""
        future: Future[T] = Future()
        self._put((run_each, job, future))
        return future

    def submit_batched(self, jobs: Callable[[Connection, list[A]], list[T]], argument: A) -> asyncio.Future[T]:
        """Queue a job, for a task of the running loop. Raises `StoreError` once the writer closes.

        Consecutive jobs with the same function `jobs` are executed by one call, with the list of their arguments; it
        returns one result per argument. Between two statements the driver has to reacquire the GIL, so a few statements
        for all arguments take a fraction of the time of a few for each. For the same reason the tasks whose jobs share
        a transaction are woken together.
        """
        future: LoopFuture[T] = LoopFuture()
        self._put((jobs, argument, future))
        return future.waiter

    def _put(self, item: _Item) -> None:
        with self._submit_lock:
            if self._closed:
                raise _store_closed()
            self._jobs.put(item)

    def _run(self) -> None:
        try:
            while not self._closing and (item := self._jobs.get()) is not None:
                # Skip the job if its caller was cancelled.
                if item[2].set_running_or_notify_cancel():
                    self._execute([item])
        finally:
            self._fail_remaining()
            if self._connection is not None:
                self._pool.release(self._connection)

    def _fail_remaining(self) -> None:
        """Accept no more jobs, and fail those that are still queued."""
        with self._submit_lock, suppress(queue.Empty):
            self._closed = True
            while True:
                item = self._jobs.get_nowait()
                if item is not None and item[2].set_running_or_notify_cancel():
                    item[2].set_exception(_store_closed())

    def _execute(self, items: list[_Item], *, alone: bool = False, confirmed: bool = False) -> None:
        """Execute these jobs and, unless `alone`, the queued ones, and deliver their results.

        A job that finds the database damaged is executed again on a new connection, unless the damage is `confirmed`.
        """
        try:
            results = self._commit(items, alone=alone)
        except BaseException as error:  # noqa: BLE001 - the caller gets it
            if len(items) == 1:
                if not confirmed and is_damage(error):
                    self._execute(items, alone=True, confirmed=True)
                    return
                mapped = _map_error(error)
                if self._health is not None:
                    self._health.note(mapped)
                items[0][2].set_exception(mapped)
                return
            for item in items:
                self._execute([item], alone=True)
            return
        by_loop: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[Any], Any]]] = {}
        for (_, _, future), result in zip(items, results, strict=True):
            if isinstance(future, LoopFuture):
                by_loop.setdefault(future.loop, []).append((future.waiter, result))
            else:
                future.set_result(result)
        for loop, loop_results in by_loop.items():
            # A closed loop raises RuntimeError; no task waits in it.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(_set_results, loop_results)

    def _commit(self, items: list[_Item], *, alone: bool) -> list[Any]:
        with self._transaction() as connection:
            deadline = monotonic() + self._group_seconds
            results: list[Any] = []
            batch = items + ([] if alone else self._take_queued())
            while batch:
                items[len(results) :] = batch
                for jobs, group in groupby(batch, itemgetter(0)):
                    results += jobs(connection, [item[1] for item in group])
                batch = [] if alone or monotonic() > deadline else self._take_queued()
        self._end_intake()
        return results

    @contextmanager
    def _transaction(self) -> Generator[Connection]:
        """Open a write transaction, on a connection that is reused: opening one takes as long as a write.

        The intake is written before the commit, and truncated again if the commit fails.
        """
        try:
            self._check()
            connection = self._connection = self._connection or self._pool.acquire()
            # Take the write lock now, not at the first write statement.
            connection.execute("BEGIN IMMEDIATE")
            yield connection
            if self._intake is not None:
                self._intake.begin_write()
            # Checked as late as possible: a write to a file that was deleted must not be acknowledged.
            self._check()
            connection.commit()
        except BaseException:
            self._roll_back()
            raise

    def _roll_back(self) -> None:
        """Truncate the intake, then roll back: until then the write lock keeps other processes from the intake."""
        try:
            if self._intake is not None:
                self._intake.cancel_write()
        except Exception as error:  # noqa: BLE001 - the error that made the transaction fail is reported, not this one
            _log.warning("%s; the backup of accepted requests is rewritten later; nothing is lost", error)
        finally:
            # Closing rolls back. The next transaction uses a new connection.
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.close()

    def _end_intake(self) -> None:
        """Wait until the intake is on disk. Never raises: the jobs are committed and must not be repeated.

        They are acknowledged even if this fails: the database has them on disk, and the intake is the second copy.
        """
        try:
            if self._intake is not None:
                self._intake.end_write()
        except Exception as error:  # noqa: BLE001 - see above
            _log.warning("%s; the backup of accepted requests is rewritten later; nothing is lost", error)

    def _check(self) -> None:
        if self._health is not None:
            self._health.check()

    def _take_queued(self) -> list[_Item]:
        """Return the jobs that are queued now."""
        queued: list[_Item] = []
        with suppress(queue.Empty):
            while (item := self._jobs.get_nowait()) is not None:
                if item[2].set_running_or_notify_cancel():
                    queued.append(item)
            self._closing = True
        return queued

    def close(self) -> None:
        """Execute the queued jobs, then end the thread. Blocks until then. Calling twice is fine."""
        with self._submit_lock:
            self._closed = True
            self._jobs.put(None)
        self._thread.join()


def _store_closed() -> StoreError:
    return StoreError("the store is closed")


def run_each(connection: Connection, jobs: list[Job]) -> list[Any]:
    """Execute each job, for `Writer.submit_batched`."""
    return [job(connection) for job in jobs]


def _map_error(error: BaseException) -> BaseException:
    if not isinstance(error, DATABASE_ERRORS):
        return error
    mapped = map_sqlite_error(error)
    mapped.__cause__ = error
    return mapped


def _primary_code(error: BaseException) -> int | None:
    """Return SQLite's primary result code, the lowest byte; None if the driver itself raised the error."""
    code: int | None = getattr(error, "sqlite_errorcode", None)
    return None if code is None else code & 0xFF


DATABASE_ERRORS: Final = (sqlite3.DatabaseError, msgspec.MsgspecError, UnicodeDecodeError)
"""The errors of a query if the database cannot be used, or contains data that Shopfloor never wrote."""


def is_damage(error: BaseException) -> bool:
    """Return whether a query found invalid content: in the file, or only in the cache of its connection."""
    return isinstance(error, DATABASE_ERRORS) and isinstance(map_sqlite_error(error), DatabaseDamaged)


def damaged_error(reason: str) -> DatabaseDamaged:
    """Return the error for a damaged database."""
    return DatabaseDamaged(f"the database is damaged: {reason}", hint=REBUILD_HINT)


def map_sqlite_error(error: BaseException) -> ShopfloorError:
    """Return the Shopfloor error for one of `DATABASE_ERRORS`."""
    if not isinstance(error, sqlite3.DatabaseError):
        return damaged_error(str(error))
    message = str(error)
    code = _primary_code(error)
    is_short = getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_IOERR_SHORT_READ
    if code in _DAMAGE_CODES or is_short or any(words in message for words in _DAMAGE_MESSAGES):
        return damaged_error(message)
    if code == sqlite3.SQLITE_READONLY:
        return storage_error(OSError(errno.EROFS, message), "cannot write the database")
    if code == sqlite3.SQLITE_FULL:
        return storage_error(OSError(errno.ENOSPC, message), "cannot write the database")
    if "locked" in message or "busy" in message:
        return DatabaseBusy("the database is locked by another process", hint="try again in a moment")
    return StoreError(f"the database cannot be used: {message}", hint="check the disk; the logs are safe")
