"""The database file: opened, brought up to date, and written by one thread."""

from __future__ import annotations

import queue
import sqlite3
import threading
from collections.abc import Callable, Generator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

from sqlalchemy import Connection, Engine, create_engine, event, text
from sqlalchemy.exc import DatabaseError, OperationalError
from sqlalchemy.pool import QueuePool

from shopfloor.errors import DatabaseBusy, DatabaseTooNew, StoreError, storage_error
from shopfloor.limits import DATABASE_PATIENCE_SECONDS, DATABASE_READERS, LOG_MODE
from shopfloor.record import lock_file, make_folder

HEAD: Final = "0003"
"""The newest migration that this program knows."""

T = TypeVar("T")
Job = Callable[[Connection], Any]


def open_engine(path: Path) -> Engine:
    """Connections to the file: for readers as they are, for the writer inside `BEGIN IMMEDIATE`."""
    engine = create_engine(f"sqlite:///{path}", poolclass=QueuePool, pool_size=DATABASE_READERS + 1, max_overflow=0)

    @event.listens_for(engine, "connect")
    def prepare(connection: sqlite3.Connection, record: object) -> None:
        # SQLAlchemy says when a transaction begins, not the driver.
        connection.isolation_level = None
        for pragma in ("journal_mode=WAL", "synchronous=NORMAL", "foreign_keys=ON", "recursive_triggers=ON"):
            connection.execute(f"PRAGMA {pragma}")
        connection.execute(f"PRAGMA busy_timeout={int(DATABASE_PATIENCE_SECONDS * 1000)}")

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE" if connection.info.get("writes") else "BEGIN")

    return engine


def open_database(path: Path) -> Engine:
    """The file at `path`, made if it is not there, migrated to the newest version under a lock."""
    make_folder(path.parent)
    engine = open_engine(path)
    try:
        if _version(engine) != HEAD:
            with lock_file(path.with_suffix(".migrating")):
                _migrate(engine)
        path.chmod(LOG_MODE)
    except (DatabaseError, sqlite3.DatabaseError) as error:
        engine.dispose()
        raise StoreError(
            f"{path} cannot be used as a database: {error}",
            hint="move it away; `shopfloor rebuild` makes a new one from the logs",
        ) from error
    except OSError as error:
        engine.dispose()
        raise storage_error(error, f"cannot open {path}") from error
    except BaseException:
        engine.dispose()
        raise
    return engine


def _version(engine: Engine) -> str | None:
    with engine.connect() as connection:
        known = connection.execute(text("SELECT 1 FROM sqlite_master WHERE name = 'alembic_version'")).scalar()
        return connection.execute(text("SELECT version_num FROM alembic_version")).scalar() if known else None


def _migrate(engine: Engine) -> None:
    # Loaded only where there is something to migrate: it takes longer than all else here.
    from alembic import command
    from alembic.config import Config

    version = _version(engine)
    if version is not None and version > HEAD:
        raise DatabaseTooNew(
            f"the database has version {version}, and this program knows {HEAD} at most",
            hint="use the newer Shopfloor that made it, or another SHOPFLOOR_STORAGE",
        )
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).with_name("migrations")))
    with engine.connect() as connection, _writing(connection), connection.begin():
        config.attributes["connection"] = connection
        command.upgrade(config, "head")


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
    """The one thread that writes. Jobs wait in line, each in a transaction of its own."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._jobs: queue.SimpleQueue[tuple[Job, Future[Any]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="shopfloor-store", daemon=True)
        self._thread.start()

    def submit(self, job: Callable[[Connection], T]) -> Future[T]:
        future: Future[T] = Future()
        if not self._thread.is_alive():
            raise StoreError("the store is closed")
        self._jobs.put((job, future))
        return future

    def _work(self) -> None:
        while (item := self._jobs.get()) is not None:
            job, future = item
            try:
                future.set_result(self._run(job))
            except BaseException as error:  # noqa: BLE001 - whoever asked is told
                future.set_exception(error)

    def _run(self, job: Job) -> Any:
        try:
            with self._engine.connect() as connection, _writing(connection), connection.begin():
                return job(connection)
        except OperationalError as error:
            raise readable(error) from error

    def close(self) -> None:
        """Does what is in line, then ends. Twice is fine."""
        self._jobs.put(None)
        self._thread.join()


def readable(error: OperationalError | sqlite3.OperationalError) -> StoreError:
    """What the driver says, as an error of ours."""
    said = str(error.orig if isinstance(error, OperationalError) else error)
    if "locked" in said or "busy" in said:
        return DatabaseBusy("the database is held by another process", hint="try again in a moment")
    return StoreError(f"the database cannot be used: {said}", hint="check the disk; the logs themselves are safe")
