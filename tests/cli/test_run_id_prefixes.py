"""Naming a run by the first characters of its id."""

from __future__ import annotations

from pathlib import Path

import pytest

from shopfloor.log import RunCompleted, RunStarted
from shopfloor.record import Recorder, Storage

IDS = ("aaaa1111-0000-4000-8000-000000000001", "aaaa2222-0000-4000-8000-000000000002")


@pytest.fixture(autouse=True)
def _two_of_a_name(env: dict[str, str]) -> None:
    storage = Storage(Path(env["SHOPFLOOR_STORAGE"]))
    for run_id in IDS:
        with Recorder(storage.log_path(run_id), run_id) as recorder:
            recorder.append(RunStarted(name="w", kind="worker", attempt=1, host="h"))
            recorder.append(RunCompleted(name="w", kind="worker", status="completed", result=run_id))
        storage.announce(run_id)


@pytest.mark.parametrize("command", ["show", "status", "result", "cancel", "tree", "delete", "answer --list"])
def test_an_ambiguous_prefix_is_refused_with_the_matching_runs(shopfloor, command: str):
    name, *options = command.split()
    refused = shopfloor(name, "aaaa", *options)
    assert refused.returncode == 2
    assert refused.stderr == (
        "error[ambiguous_run]: 2 runs begin with 'aaaa': aaaa1111-0, aaaa2222-0\nhint: type more characters of the run id\n"
    )


def test_an_empty_reference_names_no_run_even_if_there_is_only_one(shopfloor):
    assert shopfloor("delete", IDS[0]).returncode == 0
    for command in ("show", "status", "cancel", "delete", "rerun", "export"):
        refused = shopfloor(command, "")
        assert refused.returncode != 0, command
        assert refused.stderr.startswith("error[run_not_found]"), command
    assert shopfloor("result", "last").stdout == f"{IDS[1]}\n"


def test_with_enough_characters_the_run_is_found(shopfloor):
    assert shopfloor("result", "aaaa2").stdout == f"{IDS[1]}\n"
