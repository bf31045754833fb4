"""The database file: opened, brought up to date, and written by one thread."""

from __future__ import annotations

import errno
import os
import queue
import sqlite3
import stat
import threading
from collections.abc import Callable, Generator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from time import monotonic
from typing import Any, Final, TypeVar, cast

import msgspec
from sqlalchemy import URL, Connection, Engine, create_engine, event, text
from sqlalchemy.exc import DatabaseError
from sqlalchemy.pool import QueuePool

from shopfloor.adapters.sqlite.health import REBUILD, Health
from shopfloor.adapters.sqlite.intake import Intake
from shopfloor.adapters.sqlite.search import TEMPORARY_TABLES
from shopfloor.errors import (
    DatabaseBusy,
    DatabaseDamaged,
    DatabaseTooNew,
    ShopfloorError,
    StoreError,
    storage_error,
)
from shopfloor.limits import DATABASE_GROUP_SECONDS, DATABASE_PATIENCE_SECONDS, DATABASE_READERS, LOG_MODE
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
HEAD: Final = "0010"
"""The newest migration that this program knows."""
SCHEMA: Final = Path(__file__).with_name("schema.sql")
"""What all migrations together make, for a new database."""
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

A = TypeVar("A")
T = TypeVar("T")
Job = Callable[[Connection], Any]
Jobs = Callable[[Connection, list[Any]], list[Any]]
_Item = tuple[Jobs, Any, Future[Any]]


def open_engine(path: Path) -> Engine:
    """Connections to the file: for readers as they are, for the writer inside `BEGIN IMMEDIATE`."""
    # Not put together as text: a path may have what means something in a URL.
    url = URL.create("sqlite", database=str(path))
    engine = create_engine(url, poolclass=QueuePool, pool_size=DATABASE_READERS + 1, max_overflow=0)

    @event.listens_for(engine, "connect")
    def prepare(connection: sqlite3.Connection, record: object) -> None:
        # SQLAlchemy says when a transaction begins, not the driver.
        connection.isolation_level = None
        for pragma in _PRAGMAS:
            connection.execute(f"PRAGMA {pragma}")
        connection.execute(f"PRAGMA busy_timeout={int(DATABASE_PATIENCE_SECONDS * 1000)}")
        for statement in TEMPORARY_TABLES:
            connection.execute(statement)

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE" if connection.info.get("writes") else "BEGIN")

    return engine


def open_database(path: Path) -> Engine:
    """The file at `path`, made if it is not there, migrated to the newest version under a lock."""
    make_folder(path.parent)
    engine = open_engine(path)
    try:
        _make_private(path)
        # An empty file becomes a WAL database with the first connection, and SQLite lets nobody wait for that.
        if path.stat().st_size == 0 or _version(engine) != HEAD:
            with lock_file(path.with_suffix(".migrating")):
                _migrate(engine)
    except (DatabaseError, sqlite3.DatabaseError) as error:
        engine.dispose()
        raise _refused(error, path) from error
    except OSError as error:
        engine.dispose()
        raise storage_error(error, f"cannot open {path}") from error
    except BaseException:
        engine.dispose()
        raise
    return engine


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


def _refused(error: DatabaseError | sqlite3.DatabaseError, path: Path) -> ShopfloorError:
    """Why it cannot be opened. To move a file away is advised only where the file itself is at fault."""
    said = _driver_error(error)
    code = _code_of(said)
    if code == sqlite3.SQLITE_CANTOPEN and path.is_file() and not os.access(path.parent, os.W_OK):
        # The file could be opened; those beside it, which it takes to read it too, could not be made.
        return storage_error(OSError(errno.EACCES, "its folder is read-only"), f"cannot use {path}")
    if code in _SURROUNDINGS:
        return readable(error)
    return DatabaseDamaged(f"{path} cannot be used as a database: {said}", hint=REBUILD)


def _version(engine: Engine) -> str | None:
    with engine.connect() as connection:
        known = connection.execute(text("SELECT 1 FROM sqlite_master WHERE name = 'alembic_version'")).scalar()
        return connection.execute(text("SELECT version_num FROM alembic_version")).scalar() if known else None


def _migrate(engine: Engine) -> None:
    """Create the tables in an empty database, or update those of an older version."""
    version = _version(engine)
    if version is not None and version > HEAD:
        raise DatabaseTooNew(
            f"the database has version {version}, and this program knows {HEAD} at most",
            hint="use the newer Shopfloor that made it, or another SHOPFLOOR_STORAGE",
        )
    if version == HEAD:
        # Another process has done it meanwhile.
        return
    with engine.connect() as connection, _writing(connection):
        if _is_empty(connection):
            driver(connection).executescript(f"BEGIN IMMEDIATE;\n{SCHEMA.read_text(encoding='utf-8')}COMMIT;")
        else:
            with connection.begin():
                _upgrade(connection)


def _is_empty(connection: Connection) -> bool:
    return driver(connection).execute("SELECT count(*) FROM sqlite_schema").fetchone() == (0,)


def _upgrade(connection: Connection) -> None:
    # Loaded only where there is something to upgrade: it takes longer than all else here.
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).with_name("migrations")))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def migrate_file(path: Path) -> None:
    """Make a database by the migrations alone, one after the other."""
    engine = open_engine(path)
    with engine.connect() as connection, _writing(connection), connection.begin():
        _upgrade(connection)
    engine.dispose()


@contextmanager
def _writing(connection: Connection) -> Generator[None]:
    """A transaction that begins inside takes the write lock at once, not in the middle."""
    connection.info["writes"] = True
    try:
        yield
    finally:
        # The connection goes back to those that read.
        connection.info.pop("writes")


class Writer:
    """The one thread that writes. Jobs wait in line; those that came while one was at work share its transaction.

    All are answered after the commit. If one of them fails, each is done once more in a transaction of its own, so
    that it fails alone: a job does nothing but write.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        health: Health | None = None,
        intake: Intake | None = None,
        group_seconds: float = DATABASE_GROUP_SECONDS,
    ) -> None:
        self._engine = engine
        self._health = health
        self._intake = intake
        self._group_seconds = group_seconds
        self._jobs: queue.SimpleQueue[_Item | None] = queue.SimpleQueue()
        self._connection: Connection | None = None
        self._closing = False
        self._thread = threading.Thread(target=self._work, name="shopfloor-store", daemon=True)
        self._thread.start()

    def submit(self, job: Callable[[Connection], T]) -> Future[T]:
        return self.submit_one(_alone, job)

    def submit_one(self, jobs: Callable[[Connection, list[A]], list[T]], asked: A) -> Future[T]:
        """One of many: those that stand in line one after the other are done at once, each with its answer.

        Between two statements the driver waits until the other threads let it go on: a few for all take a fraction
        of the time that a few for each do.
        """
        future: Future[T] = Future()
        if not self._thread.is_alive():
            raise StoreError("the store is closed")
        self._jobs.put((jobs, asked, future))
        return future

    def _work(self) -> None:
        while not self._closing and (item := self._jobs.get()) is not None:
            # Not where whoever asked has gone already.
            if item[2].set_running_or_notify_cancel():
                self._answer([item])
        self._let_go()

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
        for (_, _, future), answer in zip(items, answers, strict=True):
            future.set_result(answer)

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
        return answers

    @contextmanager
    def _transaction(self) -> Generator[Connection]:
        """On a connection that is kept: to get one takes as long as to write.

        What the jobs added to the intake is on disk when this ends, and is gone again where the commit failed.
        """
        try:
            self._check()
            if self._connection is None:
                self._connection = self._engine.connect()
                self._connection.info["writes"] = True
            with self._connection.begin():
                yield self._connection
                if self._intake is not None:
                    self._intake.begin_write()
                # As late as possible: nothing is acknowledged that went to a file which is no longer there.
                self._check()
            if self._intake is not None:
                self._intake.end_write()
        except BaseException as error:
            if self._intake is not None:
                self._intake.cancel_write()
            # Whatever became of it, the next is a new one.
            self._let_go(is_unusable=is_damage(error))
            raise

    def _check(self) -> None:
        if self._health is not None:
            self._health.check()

    def _let_go(self, *, is_unusable: bool = False) -> None:
        if self._connection is not None:
            # It goes back to those that read.
            self._connection.info.pop("writes")
            if is_unusable:
                self._connection.invalidate()
            self._connection.close()
            self._connection = None

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
        self._jobs.put(None)
        self._thread.join()


def _alone(connection: Connection, jobs: list[Job]) -> list[Any]:
    return [job(connection) for job in jobs]


def _told(error: BaseException) -> BaseException:
    if not isinstance(error, UNREADABLE):
        return error
    said = readable(error)
    said.__cause__ = error
    return said


def driver(connection: Connection) -> sqlite3.Connection:
    """Past SQLAlchemy, whose part in a small statement costs more than the statement does."""
    return cast("sqlite3.Connection", connection.connection.driver_connection)


def _driver_error(error: DatabaseError | sqlite3.DatabaseError) -> BaseException:
    return error.orig or error if isinstance(error, DatabaseError) else error


def _code_of(error: BaseException) -> int | None:
    """SQLite's code, of which the lowest byte says what it is; none where the driver itself refused."""
    code: int | None = getattr(error, "sqlite_errorcode", None)
    return None if code is None else code & 0xFF


UNREADABLE: Final = (DatabaseError, sqlite3.DatabaseError, msgspec.MsgspecError, UnicodeDecodeError)
"""What a query raises where the database cannot be used, or gives what nobody ever wrote to it."""


def is_damage(error: BaseException) -> bool:
    """Whether a query met content that nobody wrote: in the file, or only in what its connection keeps of the file."""
    return isinstance(error, UNREADABLE) and isinstance(readable(error), DatabaseDamaged)


def damaged(how: str) -> DatabaseDamaged:
    return DatabaseDamaged(f"the database is damaged: {how}", hint=REBUILD)


def readable(error: BaseException) -> ShopfloorError:
    """The error of ours that one of `UNREADABLE` means."""
    if not isinstance(error, DatabaseError | sqlite3.DatabaseError):
        return damaged(str(error))
    raised = _driver_error(error)
    said = str(raised)
    code = _code_of(raised)
    is_short = getattr(raised, "sqlite_errorcode", None) == sqlite3.SQLITE_IOERR_SHORT_READ
    if code in _DAMAGED or is_short or any(words in said for words in _NOT_OURS):
        return damaged(said)
    if code == sqlite3.SQLITE_READONLY:
        return storage_error(OSError(errno.EROFS, said), "cannot write the database")
    if _code_of(raised) == sqlite3.SQLITE_FULL:
        return storage_error(OSError(errno.ENOSPC, said), "cannot write the database")
    if "locked" in said or "busy" in said:
        return DatabaseBusy("the database is held by another process", hint="try again in a moment")
    return StoreError(f"the database cannot be used: {said}", hint="check the disk; the logs themselves are safe")
