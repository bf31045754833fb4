"""The checks of the fault harness find violations."""

from __future__ import annotations

import sqlite3
import subprocess
from pathlib import Path

from tests.faults.harness.driver import Ledger
from tests.faults.harness.invariants import MEMORY_BYTES, read_logs, violations
from tests.faults.harness.records import key_of
from tests.faults.harness.server import Deployment, Server

from shopfloor.log import new_run_id


def kinds(found: list[str]) -> set[str]:
    return {line.split(":")[0] for line in found}


def test_every_violation_is_found_and_nothing_else_is(tmp_path: Path):
    deployment = Deployment(tmp_path, tmp_path / "disk", {})
    for key in ("steps-0", "steps-1", "steps-2"):
        done = deployment.command("run", "-q", "steps", "--workers", str(tmp_path / "workers"), "-i", f"KEY={key}")
        assert done.returncode == 0, done.stderr
    assert deployment.command("list").returncode == 0
    server, ledger = Server(deployment), Ledger()
    runs = {key_of(events): run_id for run_id, events in read_logs(deployment).items()}
    ledger.acknowledge("steps-0", runs["steps-0"])
    assert violations(deployment, server, ledger, frozenset()) == []

    server.peak_memory_bytes = MEMORY_BYTES + 1
    ledger.acknowledge("steps-3", new_run_id())
    with deployment.tokens.open("a") as tokens:
        tokens.write("steps-0 first 0 once first\n")
    log = deployment.storage.log_path(runs["steps-1"])
    log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:-1]))
    with deployment.storage.log_path(runs["steps-2"]).open("ab") as file:
        file.write(b"{}\n")
    database = sqlite3.connect(deployment.storage.database)
    database.execute("UPDATE worker_runs SET task = 'another' WHERE id = ?", [runs["steps-0"]])
    database.commit()
    database.close()
    with subprocess.Popen(["sleep", "300"], env=deployment.env) as left:
        try:
            found = violations(deployment, server, ledger, frozenset())
        finally:
            left.kill()
    assert kinds(found) >= {"memory", "lost", "effect", "outcome", "verify", "row", "rebuild", "process"}, found


def test_a_failure_is_excused_by_a_fault_alone(tmp_path: Path):
    deployment = Deployment(tmp_path, tmp_path / "disk", {})
    folder = tmp_path / "workers" / "steps" / "worker.yaml"
    folder.write_text(folder.read_text().replace("echo done", "exit 3", 1))
    done = deployment.command("run", "-q", "steps", "--workers", str(tmp_path / "workers"), "-i", "KEY=steps-0")
    assert done.returncode != 0
    assert kinds(violations(deployment, Server(deployment), Ledger(), frozenset())) == {"end"}
    assert violations(deployment, Server(deployment), Ledger(), frozenset({"execution_error"})) == []
