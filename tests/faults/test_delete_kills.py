"""A process is killed at every point of deleting runs: a restart repairs the rest."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import anyio
import pytest
from tests.faults.engine_server import Deployment

from shopfloor.engine import delete_run, finish_deletions
from shopfloor.log import RunCompleted, RunStarted, new_run_id
from shopfloor.record import Recorder, Storage
from shopfloor.wiring import local_backend

WATCHED = (
    "engine/retention.py",
    "local/logs.py",
    "sqlite/store.py",
    "sqlite/queue.py",
    "sqlite/intake.py",
    "record/storage.py",
)
MOST_POINTS = 1_000
STRIDE = 1 if os.environ.get("SHOPFLOOR_TEST_LONG") == "1" else 8


def write_run(storage: Storage, run_id: str, parent: str | None = None) -> None:
    with Recorder(storage.log_path(run_id), run_id, parent_run_id=parent) as log:
        log.append(RunStarted(name="build", kind="worker", attempt=1, host="h", idempotency_key=run_id))
        log.append(RunCompleted(name="build", kind="worker", status="completed"))


async def catch_up(storage: Storage) -> None:
    async with local_backend(storage) as backend:
        await backend.ingest.catch_up(everything=True)


async def delete(storage: Storage, run_id: str, watch: Callable[[FrameType, str, Any], None]) -> None:
    async with local_backend(storage) as backend:
        sys.setprofile(watch)
        await delete_run(backend, run_id)


async def heal(storage: Storage) -> set[str]:
    """Restart like a server and return the runs that are listed."""
    async with local_backend(storage) as backend:
        await finish_deletions(backend)
        await backend.ingest.catch_up(everything=True)
        return await backend.store.known_runs()


def in_child(storage: Storage, run_id: str, point: int) -> int:
    """Delete in a separate process that is killed at that call; return its exit code."""
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    calls = 0

    def watch(frame: FrameType, event: str, _: Any) -> None:
        nonlocal calls
        if event in ("call", "return") and frame.f_code.co_filename.endswith(WATCHED):
            calls += 1
            if calls == point:
                os.kill(os.getpid(), signal.SIGKILL)

    try:
        anyio.run(delete, storage, run_id, watch)
        os._exit(0)
    except BaseException:  # noqa: BLE001 - a forked child must not return to the test
        os._exit(1)


@pytest.mark.req("SF-8")
def test_a_kill_at_any_point_of_a_delete_leaves_complete_runs_or_none(tmp_path: Path) -> None:
    prepared = Storage(tmp_path / "prepared")
    root, child, other = new_run_id(), new_run_id(), new_run_id()
    write_run(prepared, root)
    write_run(prepared, child, parent=root)
    write_run(prepared, other)
    anyio.run(catch_up, prepared)
    ended, point, healed = -signal.SIGKILL, 0, set[frozenset[str]]()
    while ended == -signal.SIGKILL:
        point += STRIDE
        assert point < MOST_POINTS
        storage = Storage(tmp_path / "storage")
        shutil.copytree(prepared.root, storage.root)
        ended = in_child(storage, root, point)
        listed = anyio.run(heal, storage)
        assert listed == set(storage.run_ids())
        healed.add(frozenset(listed))
        shutil.rmtree(storage.root)
    assert ended == 0
    # Before, during and after the delete: no orphan and no other run.
    assert healed == {frozenset({root, child, other}), frozenset({root, other}), frozenset({other})}


@pytest.mark.req("SF-8")
def test_a_restart_finishes_an_interrupted_delete(tmp_path: Path) -> None:
    deployment = Deployment(tmp_path)
    interrupted, other = new_run_id(), new_run_id()
    for run_id in (interrupted, other):
        write_run(deployment.storage, run_id)
    anyio.run(catch_up, deployment.storage)
    deployment.storage.log_path(interrupted).unlink()
    with sqlite3.connect(deployment.storage.database) as connection:
        connection.execute("INSERT INTO tombstones VALUES (?)", (interrupted,))
    connection.close()
    with deployment.up() as server:
        listed = server.http.get("/api/agents/workers").json()
        assert [run["id"] for run in listed["workers"]] == [other]
        assert server.stop() == 0
