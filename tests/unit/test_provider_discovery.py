"""Programs of providers that are asked for their version."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from shopfloor.adapters.providers import discover_providers, kill_probed_programs
from shopfloor.ports import ProviderInfo

PROGRAMS = ("claude", "codex", "gemini", "copilot", "opencode")


@pytest.fixture
def hanging_programs(tmp_path: Path) -> Path:
    """A folder with programs of all agents, none of which answers."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in PROGRAMS:
        (folder / name).write_text(f"#!/bin/sh\n: > {tmp_path}/started\nexec sleep 30\n")
        (folder / name).chmod(0o755)
    return folder


@pytest.mark.req("SF-12")
@pytest.mark.parametrize("milliseconds", range(0, 10, 2))
def test_no_program_is_started_after_the_others_were_killed(hanging_programs: Path, milliseconds: int):
    infos: list[ProviderInfo] = []
    env = {"PATH": f"{hanging_programs}:/usr/bin:/bin"}
    probing = threading.Thread(
        target=lambda: infos.extend(discover_providers(env, hanging_programs, timeout_seconds=3.0))
    )
    probing.start()
    while not (hanging_programs.parent / "started").exists():
        time.sleep(0.001)
    time.sleep(milliseconds / 1000)
    kill_probed_programs()
    probing.join()
    problems = {info.program or "": info.problem for info in infos if info.path and str(hanging_programs) in info.path}
    assert sorted(problems) == sorted(PROGRAMS)
    assert [problem for problem in problems.values() if not problem or "did not answer" in problem] == []
