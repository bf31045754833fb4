"""Peers of dispatching, each in separate processes: a plain queue in SQLite, DBOS on SQLite, and taskiq on Redis.

`python -m benchmarks.queues dbos <folder>` is a peer: it reads numbers of tasks and prints the seconds for each.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter, sleep
from typing import Any

WORKERS = 2
_POLL_SECONDS = 0.02
_DBOS_POLL_SECONDS = 0.05
"""Twenty times as often as DBOS polls by default, so that its polling interval does not count."""

_TAKE = "UPDATE tasks SET state = 1 WHERE num = (SELECT min(num) FROM tasks WHERE state = 0) RETURNING num"
_END = "UPDATE tasks SET state = 2 WHERE num = ?"

Tasks = Callable[[int], float]
"""Executes a number of tasks and returns the seconds from the first dispatch to the last outcome."""


@contextmanager
def peer(name: str, folder: Path) -> Iterator[Tasks]:
    """Start a peer that waits for tasks until the block ends."""
    folder.mkdir()
    command = [sys.executable, "-m", "benchmarks.queues", name, str(folder)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    stdin, stdout = process.stdin, process.stdout
    if stdin is None or stdout is None:
        raise RuntimeError("no pipes")

    def tasks(count: int) -> float:
        with _resumed(process):
            print(count, file=stdin, flush=True)
            answer = stdout.readline()
        if not answer:
            raise RuntimeError(f"{name} ended early with exit code {process.wait()}")
        return float(answer)

    try:
        yield tasks
    finally:
        process.send_signal(signal.SIGCONT)
        stdin.close()
        process.wait(30)


@contextmanager
def _resumed(*processes: subprocess.Popen[Any]) -> Iterator[None]:
    """Resume processes for the block and stop them afterwards: their polling would slow down the other peers."""
    for process in processes:
        process.send_signal(signal.SIGCONT)
    try:
        yield
    finally:
        for process in processes:
            process.send_signal(signal.SIGSTOP)


def row_counter(database: Path, query: str) -> Callable[[], int]:
    """Return a function that counts rows on a separate connection, so that counting costs the same for every peer."""
    connection = sqlite3.connect(database, isolation_level=None, timeout=30)
    return lambda: int(connection.execute(query).fetchone()[0] or 0)


def wait_for_count(count: Callable[[], int], wanted: int) -> None:
    while count() < wanted:
        sleep(_POLL_SECONDS)


# The plain queue.


def _open(database: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(database, isolation_level=None, timeout=30)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=NORMAL")
    return connection


def work(database: Path) -> None:
    """Run a worker of the plain queue: claim a task, do nothing, end it; until the parent process exits."""
    connection, parent = _open(database), os.getppid()
    while os.getppid() == parent:
        found = connection.execute(_TAKE).fetchone()
        if found is None:
            sleep(0.001)
        else:
            connection.execute(_END, found)


@contextmanager
def _plain_queue(folder: Path) -> Iterator[Tasks]:
    database = folder / "queue.db"
    with closing(_open(database)) as connection:
        connection.execute("CREATE TABLE tasks (num INTEGER PRIMARY KEY, state INTEGER NOT NULL)")
        connection.execute("CREATE INDEX free ON tasks (num) WHERE state = 0")
        ended = row_counter(database, "SELECT count(*) FROM tasks WHERE state = 2")
        command = [sys.executable, "-m", "benchmarks.queues", "work", str(database)]
        workers = [subprocess.Popen(command) for _ in range(WORKERS)]

        def tasks(count: int) -> float:
            wanted = ended() + count
            with _resumed(*workers):
                started_at = perf_counter()
                for _ in range(count):
                    connection.execute("INSERT INTO tasks (state) VALUES (0)")
                wait_for_count(ended, wanted)
                return perf_counter() - started_at

        try:
            yield tasks
        finally:
            for worker in workers:
                worker.kill()
                worker.wait()


# DBOS.


@contextmanager
def _dbos(folder: Path) -> Iterator[Tasks]:
    # Imported by name: packages of `make bench` are not installed when the code is type-checked.
    dbos: Any = import_module("dbos").DBOS

    database = folder / "dbos.db"
    dbos(config={"name": "bench", "system_database_url": f"sqlite:///{database}", "console_log_level": "ERROR"})

    @dbos.workflow()
    def nothing() -> None:
        return None

    dbos.launch()
    dbos.register_queue("bench", polling_interval_sec=_DBOS_POLL_SECONDS)
    ended = row_counter(database, "SELECT count(*) FROM workflow_status WHERE status = 'SUCCESS'")

    def tasks(count: int) -> float:
        wanted = ended() + count
        started_at = perf_counter()
        with ThreadPoolExecutor(8) as dispatchers:
            list(dispatchers.map(lambda _: dbos.enqueue_workflow("bench", nothing), range(count)))
        wait_for_count(ended, wanted)
        return perf_counter() - started_at

    try:
        yield tasks
    finally:
        dbos.destroy()


# taskiq.


def taskiq_unavailable_reason() -> str | None:
    """Return why taskiq on Redis cannot be measured here, or None if it can."""
    if shutil.which("redis-server") is None:
        return "redis-server is not installed; apt-get install redis-server"
    return None if find_spec("taskiq_redis") else "taskiq is not installed; pip install --group bench"


@contextmanager
def _taskiq(folder: Path) -> Iterator[Tasks]:
    """Start Redis with its default settings (in memory, periodic snapshots) and two worker processes."""
    socket = folder / "redis.sock"
    os.environ["BENCH_REDIS_URL"] = url = f"unix://{socket}"
    options = ["--port", "0", "--unixsocket", str(socket), "--dir", str(folder), "--daemonize", "no"]
    redis = subprocess.Popen(["redis-server", *options], stdout=subprocess.DEVNULL)
    while not socket.exists():
        sleep(_POLL_SECONDS)
    arguments = ["worker", "benchmarks._taskiq_tasks:broker", "--workers", str(WORKERS), "--log-level", "ERROR"]
    workers = subprocess.Popen([sys.executable, "-m", "taskiq", *arguments], stdout=subprocess.DEVNULL)
    taskiq_tasks = import_module("benchmarks._taskiq_tasks")
    client: Any = import_module("redis").Redis.from_url(url)

    def ended() -> int:
        # Each result is a key, and so is the queue while it is not empty.
        return int(client.dbsize()) - int(client.exists(taskiq_tasks.QUEUE))

    async def dispatch(count: int) -> None:
        left = iter(range(count))

        async def dispatcher() -> None:
            for _ in left:
                await taskiq_tasks.nothing.kiq()

        await asyncio.gather(*(dispatcher() for _ in range(8)))

    def tasks(count: int) -> float:
        wanted = ended() + count
        started_at = perf_counter()
        loop.run_until_complete(dispatch(count))
        wait_for_count(ended, wanted)
        return perf_counter() - started_at

    # One loop for all rounds, because the connections belong to it.
    loop = asyncio.new_event_loop()
    loop.run_until_complete(taskiq_tasks.broker.startup())
    try:
        yield tasks
    finally:
        loop.run_until_complete(taskiq_tasks.broker.shutdown())
        loop.close()
        workers.terminate()
        workers.wait(30)
        # Not terminated: Redis would first save data that is not needed.
        redis.kill()
        redis.wait()


_PEERS = {"plain_queue": _plain_queue, "dbos": _dbos, "taskiq": _taskiq}


def main(name: str, path: Path) -> None:
    if name == "work":
        work(path)
        return
    with _PEERS[name](path) as tasks:
        for line in sys.stdin:
            print(tasks(int(line)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
