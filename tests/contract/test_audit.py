"""The contract of the port `Audit`, for every adapter."""

from __future__ import annotations

import json
import logging
import stat
import subprocess
import sys
from pathlib import Path

import anyio
import pytest
from tests.contract.storages import StorageUnderTest
from tests.sample_events import ROOT

from shopfloor.adapters.local import LocalAudit
from shopfloor.limits import AUDIT_TEXT_CHARS
from shopfloor.ports import Audit, audit_entry

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "storage" / "audit.jsonl"


@pytest.fixture
def audit(storage_under_test: StorageUnderTest) -> Audit:
    return storage_under_test.audit


async def test_at_first_there_is_no_entry(storage_under_test: StorageUnderTest) -> None:
    assert storage_under_test.audit_entries() == []


@pytest.mark.req("SF-22")
async def test_an_entry_has_actor_action_origin_and_time(storage_under_test: StorageUnderTest, audit: Audit) -> None:
    fields = {
        "by": "token ci",
        "role": "operator",
        "address": "127.0.0.1",
        "client": "curl/8",
        "run_id": "r1",
        "detail": "ä",
    }
    await audit.write(audit_entry("run.cancelled", **fields))
    (entry,) = storage_under_test.audit_entries()
    assert len(entry.pop("at")) == len("2026-01-01T00:00:00.000Z")
    assert entry == {"action": "run.cancelled", **fields}


async def test_unknown_fields_are_omitted(storage_under_test: StorageUnderTest, audit: Audit) -> None:
    await audit.write(audit_entry("login.failed", by="nobody", role=None))
    (entry,) = storage_under_test.audit_entries()
    assert set(entry) == {"at", "action", "by"}


async def test_texts_that_others_choose_are_shortened(storage_under_test: StorageUnderTest, audit: Audit) -> None:
    await audit.write(audit_entry("run.pinned", by="b" * 1000, client="c" * 1000, detail="d" * 1000))
    (entry,) = storage_under_test.audit_entries()
    assert [len(entry[name]) for name in ("by", "client", "detail")] == [AUDIT_TEXT_CHARS] * 3


async def test_entries_are_read_in_the_order_of_their_writing(
    storage_under_test: StorageUnderTest, audit: Audit
) -> None:
    for number in range(20):
        await audit.write(audit_entry("run.pinned", by="token x", run_id=str(number)))
    entries = storage_under_test.audit_entries()
    assert [entry["run_id"] for entry in entries] == [str(number) for number in range(20)]
    assert [entry["at"] for entry in entries] == sorted(entry["at"] for entry in entries)


async def test_entries_of_many_tasks_are_all_there(storage_under_test: StorageUnderTest, audit: Audit) -> None:
    async def write(number: int) -> None:
        await audit.write(audit_entry("run.pinned", by="token x", run_id=str(number)))

    async with anyio.create_task_group() as tasks:
        for number in range(100):
            tasks.start_soon(write, number)
    assert sorted(int(entry["run_id"]) for entry in storage_under_test.audit_entries()) == list(range(100))


async def test_a_request_that_is_cancelled_after_its_action_has_its_entry(
    storage_under_test: StorageUnderTest, audit: Audit
) -> None:
    with anyio.CancelScope() as scope:
        scope.cancel()
        await audit.write(audit_entry("run.cancelled", by="token x", run_id="r1"))
    assert [entry["run_id"] for entry in storage_under_test.audit_entries()] == ["r1"]


# The file


@pytest.mark.req("SF-22")
async def test_only_its_owner_can_read_the_file(path: Path) -> None:
    await LocalAudit(path).write(audit_entry("run.pinned", by="token x"))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [json.loads(line)["by"] for line in path.read_text().splitlines()] == ["token x"]


async def test_a_file_over_its_limit_is_rotated_once_and_a_truncated_line_is_skipped(path: Path) -> None:
    audit = LocalAudit(path, limit_bytes=1000)
    for number in range(50):
        await audit.write(audit_entry("run.pinned", by="token x", run_id=str(number)))
    assert sorted(file.name for file in path.parent.glob("audit*.jsonl")) == ["audit.1.jsonl", "audit.jsonl"]
    storage_under_test = [int(entry["run_id"]) for entry in audit.read()]
    assert storage_under_test == list(range(storage_under_test[0], 50))
    assert sum(file.stat().st_size for file in (audit.path, audit.rotated_path)) < 2500
    with path.open("ab") as file:
        file.write(b'{"at": "20')
    await audit.write(audit_entry("run.pinned", by="token x", run_id="50"))
    assert [entry["run_id"] for entry in audit.read()][-2:] == ["49", "50"]


PROGRAM = """
import sys
from pathlib import Path
import anyio
from shopfloor.adapters.local import LocalAudit
from shopfloor.ports import audit_entry

async def main():
    audit = LocalAudit(Path(sys.argv[1]))
    for number in range(50):
        await audit.write(audit_entry("run.pinned", by=f"process {sys.argv[2]}", run_id=f"{sys.argv[2]}-{number}"))

anyio.run(main)
"""


def start_process(path: Path, name: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", PROGRAM, str(path), name], cwd=ROOT, stderr=subprocess.PIPE)


async def test_entries_of_many_processes_are_all_there(path: Path) -> None:
    processes = [start_process(path, str(number)) for number in range(2)]
    audit = LocalAudit(path)
    for number in range(50):
        await audit.write(audit_entry("run.pinned", by="this process", run_id=f"here-{number}"))
    for process in processes:
        _, complaints = process.communicate(timeout=120)
        assert (process.returncode, complaints) == (0, b"")
    wanted = [f"{who}-{number}" for who in ("here", 0, 1) for number in range(50)]
    assert sorted(entry["run_id"] for entry in audit.read()) == sorted(wanted)


async def test_a_failure_is_logged_and_not_raised(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path.mkdir(parents=True)
    (path.parent / "file").touch()
    for unusable in (path, path.parent / "file" / "audit.jsonl"):
        caplog.clear()
        with caplog.at_level(logging.ERROR):
            await LocalAudit(unusable).write(audit_entry("run.deleted", by="token x"))
        assert f"cannot write {unusable}" in caplog.text
        assert "run.deleted by token x is not in it" in caplog.text
