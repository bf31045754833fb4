"""Which queued run starts where and when: labels, providers, priority; why a run waits; and how far a run is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.cli.test_run import events_of
from tests.cli.test_server import Server
from tests.timeouts import wait_until

from shopfloor.client import Client

SAY_HI = "steps:\n  Say hi: {block: terminal, output: hi}\n"
WORKERS = {
    "quick": SAY_HI,
    "gpu": f"requires: {{labels: {{gpu: yes}}}}\n{SAY_HI}",
    "codexed": f"requires: {{providers: [codex]}}\n{SAY_HI}",
    "copiloted": f"requires: {{providers: [copilot]}}\n{SAY_HI}",
    "parent": "steps:\n  Call: {block: run-worker, worker: quick}\n",
    "four-steps": """
input: {GATE: {}}
steps:
  First: {block: command, command: "true"}
  Gate: {block: command, command: 'until test -e "{{GATE}}"; do sleep 0.05; done'}
  Third: {block: command, command: "true"}
  Last: {block: terminal, output: done}
""",
}
PYTHON_WORKER = """
import asyncio
from pathlib import Path
from shopfloor import Run, worker

@worker(slug="reporter", requires={"labels": {"zone": "a"}})
async def reporter(run: Run, GATE: str) -> str:
    await run.progress(1, 4, summary="read one file")
    async def wait() -> None:
        while not Path(GATE).exists():
            await asyncio.sleep(0.05)
    await run.step("wait", wait)
    await run.progress(3, 4)
    raise RuntimeError("stop here")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder of workers."""
    folder = tmp_path / "workers"
    for slug, text in WORKERS.items():
        (folder / slug).mkdir(parents=True)
        (folder / slug / "worker.yaml").write_text(text)
    (folder / "reporter").mkdir()
    (folder / "reporter" / "worker.py").write_text(PYTHON_WORKER)
    return folder


@pytest.fixture
def server(start, env, folder) -> Iterator:
    servers: list[Server] = []

    def up(*words: str) -> Server:
        servers.append(Server(start("up", "--port", "0", "--workers", str(folder), *words), env))
        return servers[-1]

    yield up
    for one in servers:
        one.http.close()


def row_of(up: Server, run_id: str) -> dict[str, Any]:
    return next(row for row in up.runs(limit=100) if row["id"] == run_id)


def wait_for_status(up: Server, run_id: str, status: str) -> None:
    wait_until(lambda: row_of(up, run_id)["status"] == status, f"{run_id} to be {status}")


@pytest.mark.req("FE-55", "FE-56", "FE-57")
def test_runs_start_by_priority_on_a_host_with_their_labels_and_say_why_they_wait(
    shopfloor, server, env, tmp_path, transcripts
):
    up, gate = server("--slots", "1", "--label", "zone=a"), tmp_path / "gate"

    def dispatch(*words: str) -> str:
        done = shopfloor("dispatch", *words)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    blocking = dispatch("four-steps", "-i", f"GATE={gate}")
    wait_for_status(up, blocking, "running")
    low = dispatch("quick", "--priority", "-5")
    normal = up.http.post("/api/runs", json={"worker": "quick", "labels": {"zone": "a"}}).json()["run_id"]

    async def dispatch_high() -> str:
        async with Client(up.url, up.http.headers["authorization"].split()[1]) as client:
            return await client.workers.dispatch("quick", priority=10, labels={"zone": "a"})

    high = anyio.run(dispatch_high)
    gpu = shopfloor("dispatch", "gpu", "--priority", "100")
    assert gpu.stderr.startswith("shopfloor: queued: no host has the label gpu=yes · ")
    gpu_run = gpu.stdout.strip()

    assert [row_of(up, run_id)["priority"] for run_id in (low, normal, high, gpu_run)] == [-5, 0, 10, 100]
    assert row_of(up, low)["queue_reason"] == "waits for a free slot"
    assert up.get("/api/agents/workers/detail", worker_id=gpu_run)["queue_reason"] == "no host has the label gpu=yes"
    assert "\n          no host has the label gpu=yes\n" in shopfloor("list").stdout
    assert "no host has the label gpu=yes" in shopfloor("status", gpu_run).stdout
    queue = up.get("/api/queue")
    assert (queue["total"], queue["started_last_hour"]) == (4, 1)
    slots, labels = queue["groups"]
    assert queue["oldest_queued_at"] == slots["runs"][-1]["queued_at"]
    assert (slots["reason"], slots["message"], slots["total"]) == ("slots", "waits for a free slot", 3)
    assert [run["run_id"] for run in slots["runs"]] == [high, normal, low]
    assert (labels["reason"], labels["total"], labels["runs"][0]["worker"]) == ("labels", 1, "gpu")
    shown = shopfloor("queue").stdout
    assert shown.startswith(f"3 runs: waits for a free slot\n  {high[:8]}  ")
    assert f"\n1 run: no host has the label gpu=yes\n  {gpu_run[:8]}  " in shown

    gate.touch()
    for run_id in (high, normal, low):
        wait_for_status(up, run_id, "done")
    assert sorted((low, normal, high), key=lambda run_id: row_of(up, run_id)["started_at"]) == [high, normal, low]
    assert row_of(up, low)["queue_reason"] is None
    assert row_of(up, gpu_run)["status"] == "queued"

    assert shopfloor("down").returncode == 0
    assert "no host is running" in shopfloor("list").stdout
    up = server("--label", "gpu=yes")
    wait_for_status(up, gpu_run, "done")
    (path,) = [path for path in transcripts() if path.stem == gpu_run]
    first = events_of(path)[0]["payload"]
    assert (first["priority"], first["requires"]) == (100, {"labels": {"gpu": "yes"}})


def test_invalid_priorities_and_labels_are_refused(shopfloor, server):
    up = server()
    for body in ({"priority": 101}, {"priority": "high"}, {"labels": {"gpu": "a b"}}, {"labels": {"": "x"}}):
        refused = up.http.post("/api/runs", json={"worker": "quick", **body})
        assert (refused.status_code, refused.json()["error"]["code"]) == (400, "invalid_parameter"), refused.text
    for words in (("--priority", "101"), ("--label", "gpu"), ("--label", "gpu=a b")):
        refused = shopfloor("dispatch", "quick", *words)
        assert (refused.returncode, refused.stdout) == (2, "")
        assert f"argument {words[0]}: must be " in refused.stderr
    assert up.runs() == []
    refused = shopfloor("host", "--label", "gpu=a b")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "argument --label: must be NAME=VALUE of letters, " in refused.stderr
    # A variable that is not set names no host, not even the only one.
    assert shopfloor("hosts", "drain", "").stderr.startswith("error[host_not_found]")


@pytest.mark.req("FE-55")
def test_a_run_waits_for_a_host_with_its_provider_and_starts_when_the_provider_is_installed(
    shopfloor, server, env, tmp_path
):
    programs = tmp_path / "programs"
    programs.mkdir()
    env["PATH"] = f"{programs}:/usr/bin:/bin"
    up = server()
    run_id = shopfloor("dispatch", "copiloted").stdout.strip()
    assert row_of(up, run_id)["queue_reason"] == "no host has the provider copilot"
    assert [group["reason"] for group in up.get("/api/queue")["groups"]] == ["provider"]
    # Without another host that has it, the provider's own worker fails with the error that says how to install it.
    failed = shopfloor("dispatch", "copilot", "do it", "--wait")
    assert "error[agent_not_installed]: copilot is not installed; to install it: " in failed.stderr
    disabled = shopfloor("providers", "disable", "copilot", "--maintenance")
    assert disabled.returncode == 0, disabled.stderr
    (programs / "copilot").write_text("#!/bin/sh\n")
    (programs / "copilot").chmod(0o755)
    reasons = {"the provider copilot is disabled"}
    wait_until(lambda: row_of(up, run_id)["queue_reason"] in reasons, "the reason that the provider is disabled")
    assert shopfloor("providers", "enable", "copilot").returncode == 0
    wait_for_status(up, run_id, "done")


@pytest.mark.req("FE-55")
def test_with_several_hosts_a_run_says_that_its_provider_is_disabled_or_its_hosts_are_draining(
    shopfloor, server, start, env, folder, tmp_path
):
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "codex").write_text("#!/bin/sh\necho codex-cli 0.50.0\n")
    (programs / "codex").chmod(0o755)
    env |= {"PATH": f"{programs}:/usr/bin:/bin", "OPENAI_API_KEY": "k", "SHOPFLOOR_PROVIDER_CHECK": "0"}
    up = server()
    start("host", "--workers", str(folder), "--label", "gpu=yes")

    def hosts() -> list[dict[str, Any]]:
        return [host for host in up.get("/api/hosts")["hosts"] if "codex" in host["capabilities"]]

    wait_until(lambda: len(hosts()) == 2, "two hosts with codex")
    assert shopfloor("providers", "disable", "codex").returncode == 0
    codexed = shopfloor("dispatch", "codexed")
    assert codexed.stderr.startswith("shopfloor: queued: the provider codex is disabled · ")
    for host in hosts():
        assert shopfloor("hosts", "drain", host["id"]).returncode == 0
    wait_until(lambda: {host["status"] for host in hosts()} == {"draining"}, "both hosts to drain")
    for worker in ("quick", "gpu"):
        run_id = shopfloor("dispatch", worker).stdout.strip()
        reason = "every host that can execute it is draining"
        wait_until(lambda run_id=run_id, reason=reason: row_of(up, run_id)["queue_reason"] == reason, reason)

    assert shopfloor("down").returncode == 0
    shown = shopfloor("queue").stdout
    assert "2 runs: every host that can execute it is draining\n" in shown
    assert "1 run: the provider codex is disabled\n" in shown


@pytest.mark.req("FE-58")
def test_progress_is_what_the_worker_reports_or_its_completed_steps(shopfloor, server, tmp_path):
    up, gate = server("--label", "zone=a"), tmp_path / "gate"
    steps, reporter = (
        shopfloor("dispatch", worker, "-i", f"GATE={gate}").stdout.strip() for worker in ("four-steps", "reporter")
    )
    wait_until(lambda: row_of(up, steps)["progress"] == 0.25, "the first of four steps")
    wait_until(lambda: row_of(up, reporter)["progress"] == 0.25, "the first report")
    assert "  progress  25%\n" in shopfloor("status", steps).stdout
    assert json.loads(shopfloor("status", reporter, "--json").stdout)["summary"] == "read one file"
    assert " 25%  " in shopfloor("list").stdout
    gate.touch()
    wait_for_status(up, steps, "done")
    wait_for_status(up, reporter, "failed")
    assert row_of(up, steps)["progress"] == 1
    assert row_of(up, reporter)["progress"] == 0.75


@pytest.mark.req("FE-57")
def test_sub_runs_have_the_priority_of_their_parent(shopfloor, server):
    up = server()
    assert shopfloor("dispatch", "parent", "--priority", "7", "--wait").returncode == 0
    wait_until(lambda: {row["name"]: row["priority"] for row in up.runs()} == {"parent": 7, "quick": 7}, "both rows")
