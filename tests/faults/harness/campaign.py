"""A campaign: from a seed to a schedule of faults, the schedule under load, and the invariants afterwards."""

from __future__ import annotations

import contextlib
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Generator
from pathlib import Path

import msgspec
from tests.faults.harness import invariants
from tests.faults.harness.driver import Driver
from tests.faults.harness.faults import FAULTS, FaultContext
from tests.faults.harness.load import MODEL
from tests.faults.harness.records import EndedRuns, events_of
from tests.faults.harness.server import Deployment, Server, Violation
from tests.model_server.server import in_process

FAULT_SECONDS = (0.3, 3.0)
"""The range of seconds between two faults."""
LOAD_RUNS = 6
"""The minimum number of runs between two faults, unless that takes longer than `LOAD_SECONDS`."""
LOAD_SECONDS = 20.0
DRAIN_SECONDS = 180.0
"""The time limit for all runs to end after the last fault."""
DISK_BYTES = 256 * 2**20
# The usual library for this, libfaketime, causes deadlocks between the threads of Python.
_CLOCK = """
import os, time

real_time, real_time_ns, monotonic = time.time, time.time_ns, time.monotonic
known = [0.0, -1.0]

def offset():
    if monotonic() - known[1] > 0.1:
        try:
            with open(os.environ["HARNESS_CLOCK"]) as file:
                known[:] = float(file.read() or 0), monotonic()
        except OSError:
            # No descriptor is left: the clock itself must not fail.
            pass
    return known[0]

time.time = lambda: real_time() + offset()
time.time_ns = lambda: real_time_ns() + int(offset() * 1e9)
"""
Report = Callable[[str], None]


class Action(msgspec.Struct, frozen=True):
    """A fault, the seconds since the fault before, and the seed of its random choices."""

    wait_seconds: float
    fault: str
    seed: int


def schedule(seed: int, seconds: float, faults: list[str]) -> list[Action]:
    """Return the faults of a campaign; the same seed has the same faults."""
    rng = random.Random(seed)
    actions: list[Action] = []
    length = 0.0
    # At least one fault. Each takes time itself, a restart most of all.
    while length < seconds:
        wait = round(rng.uniform(*FAULT_SECONDS), 2)
        (name,) = rng.choices(faults, [FAULTS[name].weight for name in faults])
        actions.append(Action(wait, name, rng.randrange(2**32)))
        length += wait + 1.5
    return actions


@contextlib.contextmanager
def _small_disk(folder: Path) -> Generator[Path]:
    """Mount a separate disk that the campaign can fill. Requires a mount namespace."""
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def _clock_env(folder: Path, clock: Path) -> dict[str, str]:
    """Return an environment in which the wall clock of Python programs is shifted by the offset in a file."""
    clock.write_text("0")
    (folder / "deployment").mkdir()
    (folder / "deployment" / "sitecustomize.py").write_text(_CLOCK)
    return {"PYTHONPATH": str(folder / "deployment"), "HARNESS_CLOCK": str(clock)}


def run(seed: int, folder: Path, *, seconds: float, faults: list[str], workers: list[str], report: Report) -> list[str]:
    """Run the campaign of that seed in an empty folder, and return the violations."""
    actions = schedule(seed, seconds, faults)
    for action in actions:
        report(f"  after {action.wait_seconds:g} s: {action.fault} ({action.seed})")
    with _small_disk(folder / "disk") as disk, in_process(folder, MODEL) as model:
        clock = folder / "clock"
        env = {**model.env, **(_clock_env(folder, clock) if any(one.fault == "clock" for one in actions) else {})}
        deployment = Deployment(folder, disk, env)
        server = Server(deployment)
        driver = Driver(deployment, server, random.Random(seed), workers)
        try:
            return _under_load(FaultContext(deployment, server, driver, clock), actions, report)
        except Violation as violation:
            return [str(violation)]
        finally:
            server.close()
            with contextlib.suppress(OSError, shutil.Error):
                shutil.copytree(deployment.storage.root, folder / "storage")


def _under_load(context: FaultContext, actions: list[Action], report: Report) -> list[str]:
    server, driver = context.server, context.driver
    found: list[str] = []
    server.start()
    driver.start()
    try:
        for action in actions:
            _let_work(context, action.wait_seconds)
            server.ensure_up()
            FAULTS[action.fault].act(context, random.Random(action.seed))
        server.ensure_up()
        driver.stop_dispatching()
        found += _stuck(context)
    finally:
        driver.stop_dispatching()
        driver.close()
    server.record_peak_memory()
    server.signal(signal.SIGTERM)
    code = server.wait_for_exit()
    excused_codes = frozenset[str]().union(*(FAULTS[action.fault].excuses for action in actions))
    found += [] if code == 0 else [f"the server ended with {code} at the end"]
    found += invariants.violations(context.deployment, server, driver.ledger, excused_codes)
    if not any(FAULTS[action.fault].noisy for action in actions):
        found += invariants.stderr_defects(context.deployment)
    ledger = driver.ledger
    report(
        f"  {len(ledger.runs)} of {len(ledger.kinds)} dispatches, {len(ledger.answers)} answers and "
        f"{len(ledger.cancels)} cancels acknowledged; {server.starts} starts; "
        f"{server.peak_memory_bytes // 2**20} MiB; refusals: {ledger.refusals}"
    )
    return found


def _let_work(context: FaultContext, seconds: float) -> None:
    """Wait for the seconds and, with a time limit, until some runs were dispatched."""
    runs, started_at = context.driver.ledger.runs, time.monotonic()
    before = len(runs)
    time.sleep(seconds)
    while len(runs) < before + LOAD_RUNS and time.monotonic() < started_at + LOAD_SECONDS and context.server.is_alive():
        time.sleep(0.05)


def _stuck(context: FaultContext) -> list[str]:
    """Return the runs that do not end although the faults have stopped."""
    ended = EndedRuns(context.deployment.storage)
    deadline = time.monotonic() + DRAIN_SECONDS
    while True:
        logs = {path.stem for path in context.deployment.storage.transcripts.glob("*.jsonl")}
        stuck = (logs | set(context.driver.ledger.runs.values())) - ended.ids()
        if not stuck:
            return []
        if context.server.has_run_out_of_memory():
            # The cause is a fault that was over before the server had ended.
            context.server.ensure_up()
        if not context.server.is_alive():
            code = context.server.wait_for_exit()
            raise Violation(f"the server died without a fault (exit code {code}), with {len(stuck)} open runs")
        if time.monotonic() > deadline:
            lines = [_state(context, run_id) for run_id in sorted(stuck)[:5]]
            return [f"{len(stuck)} runs did not end within {DRAIN_SECONDS:g} s:", *lines]
        time.sleep(0.2)


def _state(context: FaultContext, run_id: str) -> str:
    path = context.deployment.storage.log_path(run_id)
    keys = [key for key, one in context.driver.ledger.runs.items() if one == run_id]
    if not path.exists():
        return f"{run_id} {keys}: no log"
    last = [(event.seq, event.type, event.path, event.iteration) for event in events_of(path)[-3:]]
    return f"{run_id} {keys}: ends with {last}"
