"""The fault harness with fixed seeds: faults under load, and every invariant afterwards."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from tests.faults.harness.campaign import schedule
from tests.faults.harness.faults import FAULTS

LONG = os.environ.get("SHOPFLOOR_TEST_LONG") == "1"
LONG_MINUTES = 20.0
TIMEOUT_SECONDS = 1200.0
"""The timeout of a campaign of a few seconds, on a machine that is many times slower."""
ROOT = Path(__file__).parents[2]
SIGNALS = ["kill", "kill-at-start", "kill-with-reaper", "kill-reaper", "kill-bare", "term", "interrupt"]
SIGNALS += ["freeze", "mix", "hang-up"]
CAMPAIGNS = {
    "signals": (367, 10, SIGNALS),
    "disk": (166, 8, ["disk", "disk-and-kill", "lock", "clock"]),
    "descriptors": (24, 5, ["descriptors", "connections"]),
    "database": (5, 4, ["database"]),
}
"""The seed, the seconds and the faults of each campaign. The seeds were chosen for the variety of their faults.

A memory limit is tested in long tests only: if an import runs out of memory, a half-loaded module may misbehave.
"""


def campaign(folder: Path, *words: str, seconds: float) -> None:
    command = [sys.executable, "-m", "tests.faults.harness", "--keep", str(folder), *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=seconds)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


@pytest.mark.req("SF-12")
@pytest.mark.parametrize("name", CAMPAIGNS)
def test_the_invariants_hold_after_every_fault(tmp_path: Path, name: str):
    seed, seconds, faults = CAMPAIGNS[name]
    words = ["--seed", str(seed), "--seconds", str(seconds), "--only", ",".join(faults)]
    campaign(tmp_path, *words, seconds=TIMEOUT_SECONDS)


if LONG:

    @pytest.mark.req("SF-12")
    def test_many_faults_of_all_kinds(tmp_path: Path):
        """New seeds each time, for twenty minutes."""
        words = ["--seed", str(random.randrange(10**6)), "--minutes", str(LONG_MINUTES), "--seconds", "20"]
        campaign(tmp_path, *words, seconds=TIMEOUT_SECONDS + LONG_MINUTES * 60)


def test_a_seed_is_the_same_list_of_faults_each_time():
    faults = list(FAULTS)
    assert schedule(7, 30, faults) == schedule(7, 30, faults)
    assert schedule(7, 30, faults) != schedule(8, 30, faults)
    assert {one.fault for seed in range(100) for one in schedule(seed, 30, faults)} == set(faults)
