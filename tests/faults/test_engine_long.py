"""A run of ten thousand steps: it completes, its log is complete, and a kill in the middle loses nothing."""

from __future__ import annotations

import os
import time
from collections import Counter
from pathlib import Path

import pytest
from tests.faults.engine_process import DONE, HostPlan, run_host

from shopfloor.log import RunCompleted, RunStarted, StepCompleted, StepStarted, Verifier, decode, new_run_id
from shopfloor.record import Storage, read

LONG = os.environ.get("SHOPFLOOR_TEST_LONG") == "1"
ROUNDS = 10_000
KILLED = -9
TIMEOUT_SECONDS = 500.0
COUNTS = """
from shopfloor import Run, worker

@worker
async def counts(run: Run, ROUNDS: int):
    total = 0
    for n in range(ROUNDS):
        total += await run.step("count", one, n)
    return total

async def one(n):
    return 1
"""
PEAK_BYTES = 400 * 1024 * 1024


@pytest.mark.parametrize("killed", [False, True] if LONG else [True])
def test_ten_thousand_steps_are_done_once_each(tmp_path: Path, killed: bool):
    (tmp_path / "workers" / "counts").mkdir(parents=True)
    (tmp_path / "workers" / "counts" / "worker.py").write_text(COUNTS)
    run_id = new_run_id()
    common = {"storage": tmp_path / "storage", "workers": tmp_path / "workers", "run_id": run_id, "answers": False}
    dispatch = ("counts", {"ROUNDS": ROUNDS})
    started_at = time.monotonic()
    if killed:
        assert (
            run_host(HostPlan(**common, timeout_seconds=TIMEOUT_SECONDS, dispatch=dispatch, act="kill", at=ROUNDS + 1))
            == KILLED
        )
        assert run_host(HostPlan(**common, timeout_seconds=TIMEOUT_SECONDS)) == DONE
    else:
        assert run_host(HostPlan(**common, timeout_seconds=TIMEOUT_SECONDS, dispatch=dispatch)) == DONE
    took = time.monotonic() - started_at
    path = Storage(tmp_path / "storage").log_path(run_id)
    verifier = Verifier(run_id)
    with path.open("rb") as file:
        assert [problem for line in file for problem in verifier.line(line)] == []
    events = [decode(entry.raw) for entry in read(path)]
    outcome = events[-1].payload
    assert isinstance(outcome, RunCompleted)
    assert (outcome.status, outcome.result) == ("completed", ROUNDS)
    begun = Counter(event.iteration for event in events if isinstance(event.payload, StepStarted))
    done = Counter(event.iteration for event in events if isinstance(event.payload, StepCompleted))
    assert begun == done == Counter(range(ROUNDS))
    assert sum(isinstance(event.payload, RunStarted) for event in events) == 1 + killed
    peak = int((tmp_path / "storage" / "peak").read_text())
    print(f"{len(events) / took:,.0f} events/s; the host had {peak // 2**20} MiB at most")
    assert peak < PEAK_BYTES
