"""The installed `shopfloor`, used as a user would."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.shorter_limits import SHOPFLOOR, shopfloor_with
from tests.timeouts import TIMEOUT_SECONDS

__all__ = ["SHOPFLOOR"]
Cli = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return {**os.environ, "SHOPFLOOR_STORAGE": str(tmp_path / "storage"), "NO_COLOR": "1"}


@pytest.fixture
def shopfloor(env: dict[str, str]) -> Cli:
    """Run the command to its end and return its output."""

    def run(*words: str, **options: object) -> subprocess.CompletedProcess[str]:
        settings: dict[str, object] = {
            "text": True,
            "capture_output": True,
            "timeout": 2 * TIMEOUT_SECONDS,
            "env": env,
            **options,
        }
        return subprocess.run([SHOPFLOOR, *words], **settings)  # type: ignore[call-overload]

    return run


@pytest.fixture
def start(env: dict[str, str]):
    """Starts the command and leaves it running; ended at the end of the test if it still is.

    `limits` replace some of its limits.
    """
    started: list[subprocess.Popen[bytes]] = []

    def run(*words: str, limits: dict[str, float] | None = None, **options: object) -> subprocess.Popen[bytes]:
        settings: dict[str, object] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "env": env, **options}
        process = subprocess.Popen([*shopfloor_with(limits or {}), *words], **settings)  # type: ignore[call-overload]
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def transcripts(env: dict[str, str]) -> Callable[[], list[Path]]:
    return lambda: sorted(Path(env["SHOPFLOOR_STORAGE"], "transcripts").glob("*.jsonl"))
