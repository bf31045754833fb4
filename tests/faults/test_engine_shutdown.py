"""`shopfloor up` with workers that cannot be stopped: it stops anyway, and reports the abandoned runs."""

from __future__ import annotations

import signal
import time
from pathlib import Path

from tests.faults.engine_server import Deployment, Server
from tests.timeouts import wait_until

from shopfloor.cli.limits import FORCED_EXIT_SECONDS
from shopfloor.log import RunStarted

ABANDON_SECONDS = 3.0
WORKERS = """
import asyncio, time
from pathlib import Path
from shopfloor import Run, worker

async def cling(run, go):
    Path(f"{go}-{run.id}").touch()
    while not Path(go).exists():
        try:
            await asyncio.sleep(0.1)
        except BaseException:
            pass

@worker
async def mulish(run: Run, GO: str):
    await cling(run, GO)
    return "in the end"

@worker
async def gathers(run: Run, GO: str):
    await asyncio.gather(cling(run, GO), cling(run, GO))

@worker
async def sleeps(run: Run, GO: str):
    def sleep():
        Path(f"{GO}-{run.id}").touch()
        time.sleep(120)
    await run.step("sleep", sleep)
"""


def test_a_server_stops_although_its_workers_do_not_and_the_next_resumes_them(tmp_path: Path):
    deployment = Deployment(tmp_path)
    odd = tmp_path / "odd.py"
    odd.write_text(WORKERS)
    with deployment.up("--workers", str(odd), ABANDON_SECONDS=ABANDON_SECONDS) as server:
        runs = {slug: _clings(server, slug) for slug in ("mulish", "gathers", "sleeps")}
        cancelled = _clings(server, "mulish")
        server.post(f"/api/runs/{cancelled}/cancel", reason="enough")
        started_at = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        _, stderr = server.process.communicate(timeout=ABANDON_SECONDS + FORCED_EXIT_SECONDS + 30)
        assert server.process.returncode == 0
        assert time.monotonic() - started_at > ABANDON_SECONDS - 1
    for run_id in (runs["mulish"], runs["gathers"], cancelled):
        assert f"run {run_id}: the worker did not stop in time" in stderr.decode()
    assert all(deployment.outcome(run_id) is None for run_id in (runs["mulish"], runs["gathers"]))
    ended = deployment.outcome(cancelled)
    assert ended is not None
    assert (ended.status, ended.error and ended.error.message) == ("cancelled", "enough")

    deployment.go.touch()
    with deployment.up("--workers", str(odd)):
        outcomes = deployment.wait_until_all_ended()
    assert outcomes[runs["mulish"]].result == "in the end"
    attempts = [event for event in deployment.events(runs["mulish"]) if isinstance(event.payload, RunStarted)]
    assert len(attempts) == 2
    assert outcomes[runs["gathers"]].status == "completed"
    # The outcome of a step that must not be repeated is unknown.
    error = outcomes[runs["sleeps"]].error
    assert error is not None
    assert error.code == "host_stopped"


def _clings(server: Server, slug: str) -> str:
    run_id = server.post("/api/runs", worker=slug, input={"GO": str(server.deployment.go)})["run_id"]
    wait_until(Path(f"{server.deployment.go}-{run_id}").exists, f"{slug} to be in the middle")
    return run_id
