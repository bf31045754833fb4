"""A value of a worker is never executed, wherever its placeholder is."""

import os
import random
import subprocess

import pytest
from tests.faults.shell_programs import BY_HAND, CANARY, EVIL, VALUES, VALUES_BY_HAND, program

from shopfloor.engine.workers import fill_shell
from shopfloor.errors import StepFailed

IS_LONG = os.environ.get("SHOPFLOOR_TEST_LONG") == "1"
CASES = 100_000 if IS_LONG else 400
PARTS = 20 if IS_LONG else 2
SHELLS = ("sh", "bash")


@pytest.mark.req("SF-1")
@pytest.mark.parametrize("part", range(PARTS))
def test_no_value_is_executed_in_any_position(tmp_path, part):
    """Replay a failure with its seed: `program(random.Random(seed))`."""
    executed = 0
    for seed in range(part, CASES, PARTS):
        rng = random.Random(seed)
        script, values = program(rng), {"X": rng.choice(VALUES), "Y": rng.choice(VALUES)}
        try:
            filled = fill_shell(script, values)
        except StepFailed:
            continue
        executed += 1
        for shell in SHELLS:
            run(shell, filled.text, filled.variables, tmp_path)
            assert not (tmp_path / CANARY).exists(), f"seed {seed}: {script!r} with {values!r} in {shell}"
    assert executed > CASES / PARTS / 20, "the grammar hardly makes a program that is accepted"


@pytest.mark.req("SF-1")
def test_no_value_is_executed_by_programs_that_use_it_in_roundabout_ways(tmp_path):
    evil = tmp_path / EVIL
    evil.write_text(f"#!/bin/sh\ntouch {CANARY}\n")
    evil.chmod(0o755)
    (tmp_path / "f").write_text("a\n")
    for script in BY_HAND:
        for value in VALUES_BY_HAND:
            for second in ("-v", f"a[$(touch {CANARY})]") if "{{Y}}" in script else ("",):
                try:
                    filled = fill_shell(script, {"X": value, "Y": second})
                except StepFailed:
                    continue
                run("bash", filled.text, filled.variables, tmp_path)
                assert not (tmp_path / CANARY).exists(), f"{script!r} with {value!r} and {second!r}"


def run(shell, script, variables, folder):
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), **variables}
    subprocess.run(
        [shell, "-c", script], cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=20
    )


def test_the_canary_appears_where_values_are_text_of_the_script(tmp_path):
    """The test above can fail: if values are inserted as text, the same programs execute them."""
    found = 0
    for seed in range(60):
        rng = random.Random(seed)
        script = program(rng).replace("{{X}}", rng.choice(VALUES)).replace("{{Y}}", rng.choice(VALUES))
        run("bash", script, {}, tmp_path)
        found += (tmp_path / CANARY).exists()
        (tmp_path / CANARY).unlink(missing_ok=True)
    assert found > 10
