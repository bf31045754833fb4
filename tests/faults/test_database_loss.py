"""The database of a running server is damaged or deleted: acknowledged requests exist after a rebuild."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from tests.faults.engine_server import SHOPFLOOR, Deployment, Server
from tests.timeouts import TIMEOUT_SECONDS, wait_until

SLOTS = ("--slots", "2")
SEED = 20260731
CODES = {"database_damaged", "database_lost", "storage_lost"}


@pytest.fixture
def deployment(tmp_path: Path) -> Deployment:
    return Deployment(tmp_path)


def command(deployment: Deployment, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [SHOPFLOOR, *words], env=deployment.env, capture_output=True, text=True, timeout=120, check=False
    )


def overwrite(path: Path, offset: int, size: int) -> None:
    """Overwrite a part of a file with random bytes."""
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(random.Random(SEED + offset).randbytes(size))


def damage_header(database: Path) -> None:
    # SQLite reads the header from the file only if the write-ahead log has none.
    checkpoint(database)
    overwrite(database, 0, 512)


def damage_middle(database: Path) -> None:
    checkpoint(database)
    overwrite(database, 4096, database.stat().st_size - 4096)


def damage_wal(database: Path) -> None:
    wal = Path(f"{database}-wal")
    overwrite(wal, 32, wal.stat().st_size - 32)


def truncate(database: Path) -> None:
    checkpoint(database)
    os.truncate(database, 4096)


def delete(database: Path) -> None:
    for path in database.parent.glob("shopfloor.db*"):
        path.unlink()


def replace(database: Path) -> None:
    """Replace a file by another with the same name, like a restored copy."""
    copy = database.with_name("copy")
    copy.write_bytes(b"")
    copy.replace(database)


def checkpoint(database: Path) -> None:
    connection = sqlite3.connect(database, timeout=20)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()


class Load:
    """Run clients that dispatch until they are rejected or stopped."""

    def __init__(self, server: Server, clients: int = 3) -> None:
        self.acknowledged: list[str] = []
        self.refused: list[httpx.Response] = []
        self._server = server
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._dispatch) for _ in range(clients)]
        for thread in self._threads:
            thread.start()

    def _dispatch(self) -> None:
        deployment = self._server.deployment
        body = {"worker": "reading", "input": {"NOTES": str(deployment.notes), "GO": str(deployment.go)}}
        http = httpx.Client(
            base_url=self._server.http.base_url, headers=self._server.http.headers, timeout=TIMEOUT_SECONDS
        )
        with http:
            while not self._stop.is_set():
                try:
                    answer = http.post("/api/runs", json=body)
                except httpx.HTTPError:
                    return
                if answer.status_code != httpx.codes.OK:
                    self.refused.append(answer)
                    return
                self.acknowledged.append(answer.json()["run_id"])

    def end(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()


LONG = os.environ.get("SHOPFLOOR_TEST_LONG") == "1"
FAULTS = [damage_middle, delete, *([damage_header, damage_wal, truncate, replace] if LONG else [])]


@pytest.mark.req("SF-7")
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_acknowledged_requests_survive_the_loss_of_the_database(
    deployment: Deployment, fault: Callable[[Path], None]
) -> None:
    with deployment.up(*SLOTS) as server:
        question_run = server.dispatch("question")
        wait_until(lambda: deployment.open_calls(question_run), "the question")
        load = Load(server)
        wait_until(lambda: len(load.acknowledged) >= 25, "dispatches")
        fault(deployment.storage.database)
        # Every request now succeeds, or is rejected with a reason and a hint.
        wait_until(
            lambda: load.refused or server.process.poll() is not None or len(load.acknowledged) > 120, "refusals"
        )
        load.end()
        for answer in load.refused:
            assert answer.status_code == httpx.codes.SERVICE_UNAVAILABLE, answer.text
            problem = answer.json()["error"]
            assert problem["code"] in CODES
            assert "shopfloor rebuild" in problem["hint"]
        # Active runs continue to their end; then the server exits with the reason.
        assert server.process.poll() is None
        deployment.go.touch()
        if load.refused:
            _, stderr = server.process.communicate(timeout=60)
            assert server.process.returncode == 6
            assert "error[database_" in stderr.decode()
            assert "shopfloor rebuild" in stderr.decode()
            assert "Traceback" not in stderr.decode()
            assert "ExceptionGroup" not in stderr.decode()
        else:
            server.stop()
    rebuilt = command(deployment, "rebuild")
    assert rebuilt.returncode == 0, rebuilt.stderr
    with deployment.up() as server:
        server.answer_all(dict.fromkeys(("client-tool", "question", "branches"), question_run))
        acknowledged = {*load.acknowledged, question_run}
        wait_until(lambda: acknowledged <= set(deployment.runs()), "every run that was acknowledged")
        outcomes = deployment.wait_until_all_ended(120)
        assert {outcomes[run_id].status for run_id in acknowledged} == {"completed"}
        server.stop()
    # Nothing was repeated: each run has written its start once.
    assert deployment.note_counts()["before reading"] == len(deployment.runs()) - 1


@pytest.mark.req("SF-7")
def test_requests_without_a_server_survive_too(deployment: Deployment) -> None:
    workers = ("--workers", str(deployment.folder / "workers"))
    options = ("-i", f"NOTES={deployment.notes}", "-i", f"GO={deployment.go}")
    with deployment.up() as server:
        answered, unanswered = server.dispatch("question"), server.dispatch("question")
        wait_until(lambda: deployment.open_calls(answered) and deployment.open_calls(unanswered), "the questions")
        server.stop()
    stderr = command(deployment, "answer", answered, "yes")
    assert stderr.returncode == 0, stderr.stderr
    dispatched = command(deployment, "dispatch", "reading", *options, *workers, "-q").stdout.strip()
    assert dispatched, "the id of the run"
    delete(deployment.storage.database)
    deployment.go.touch()
    # No rebuild: a new database imports the intake, whichever process opens it first.
    listed = command(deployment, "list", "--json").stdout
    assert all(run_id in listed for run_id in (answered, unanswered, dispatched))
    with deployment.up() as server:
        wait_until(lambda: deployment.outcome(answered) and deployment.outcome(dispatched), "what was asked for")
        assert deployment.open_calls(unanswered)
        server.stop()


@pytest.mark.req("SF-9")
def test_a_deleted_storage_folder_ends_the_server_with_the_reason(deployment: Deployment) -> None:
    with deployment.up(*SLOTS) as server:
        load = Load(server)
        wait_until(lambda: len(load.acknowledged) >= 5, "dispatches")
        moved = deployment.folder / "moved"
        deployment.storage.root.rename(moved)
        shutil.rmtree(moved)
        _, stderr = server.process.communicate(timeout=60)
        load.end()
        assert server.process.returncode == 6
        assert "error[storage_lost]" in stderr.decode()
        assert str(deployment.storage.root) in stderr.decode()
        assert "Traceback" not in stderr.decode()
        assert {answer.status_code for answer in load.refused} <= {httpx.codes.SERVICE_UNAVAILABLE}
        assert len(stderr.decode().splitlines()) < 200


def test_a_running_server_prevents_rebuild(deployment: Deployment) -> None:
    with deployment.up() as server:
        refused = command(deployment, "rebuild")
        assert (refused.returncode, "error[server_running]" in refused.stderr) == (5, True)
        server.stop()


@pytest.mark.req("SF-11")
def test_a_run_without_a_readable_start_does_not_wait_for_an_answer(deployment: Deployment) -> None:
    with deployment.up() as server:
        run_id = server.dispatch("question")
        wait_until(lambda: deployment.open_calls(run_id), "the question")
        (call_id,) = deployment.open_calls(run_id)
        overwrite(deployment.storage.log_path(run_id), 0, 40)
        refused = server.http.post(f"/api/runs/{run_id}/answer", json={"call_id": call_id, "answer": "yes"})
        assert refused.json()["error"]["code"] == "transcript_broken"
        assert f"shopfloor cancel {run_id}" in refused.json()["error"]["hint"]
        server.kill()
    rebuilt = command(deployment, "rebuild")
    assert rebuilt.returncode == 0, rebuilt.stderr
    assert "waiting" not in command(deployment, "list", "--json").stdout
    outcome = deployment.outcome(run_id)
    assert outcome is not None
    assert outcome.error is not None
    assert outcome.error.code == "transcript_broken"
