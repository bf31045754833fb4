"""Processes that outlive a command or an agent are ended, and its step names them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Cli
from tests.cli.test_normalize import FIXTURES, fake
from tests.cli.test_run import events_of, only_path

Transcripts = Callable[[], list[Path]]

QUIET = ">/dev/null 2>&1"
WORKER = """\
steps:
  Leave behind:
    block: command
    command: |
      {line}
    output: OUT
output: OUT
"""


def steps_of(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [event["payload"] for event in events if event["type"] == "step.completed"]


def is_gone(pid: int) -> bool:
    """Whether the process has ended. A zombie counts as ended: its new parent has not reaped it yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


@pytest.mark.req("TR-69")
@pytest.mark.parametrize(
    ("line", "argv", "signal"),
    [
        (f"sleep 301 {QUIET} & echo $!", ["sleep", "301"], "SIGTERM"),
        ("sleep 302 & echo $!", ["sleep", "302"], "SIGTERM"),
        # `setsid` has become `sleep` when the command ends.
        (f"setsid sleep 303 {QUIET} & echo $!; sleep 0.5", ["sleep", "303"], "SIGTERM"),
        (
            f"sh -c 'trap \"\" TERM; while :; do read -r x; done </dev/zero' {QUIET} & echo $!; sleep 0.3",
            ["sh", "-c", 'trap "" TERM; while :; do read -r x; done </dev/zero'],
            "SIGKILL",
        ),
    ],
    ids=["background", "holding the output", "in a session of its own", "ignoring TERM"],
)
def test_a_process_that_outlived_a_command_is_on_record(
    shopfloor: Cli, transcripts: Transcripts, line: str, argv: list[str], signal: str
) -> None:
    done = shopfloor("run", "--command", line)
    pid = int(done.stdout)
    assert (done.returncode, is_gone(pid)) == (0, True)
    assert "ended 1 process that outlived it" in done.stderr
    (step,) = steps_of(events_of(only_path(transcripts())))
    assert step["ended_processes"] == [{"pid": pid, "command": argv[0], "args": argv[1:], "signal": signal}]
    assert "error" not in step
    shown = shopfloor("show", "last").stdout
    assert f"! process {pid} ({argv[0]} " in shown
    assert f"ended by {signal}" in shown
    assert shopfloor("verify", "last").returncode == 0


@pytest.mark.req("TR-69")
def test_a_command_without_remaining_processes_records_none(shopfloor: Cli, transcripts: Transcripts) -> None:
    done = shopfloor("run", "--command", "sleep 0.1 & echo hi")
    assert "outlived" not in done.stderr
    (step,) = steps_of(events_of(only_path(transcripts())))
    assert "ended_processes" not in step
    assert "outlived" not in shopfloor("show", "last").stdout


@pytest.mark.req("TR-69")
@pytest.mark.parametrize(("more", "exit_code"), [("", 0), ("; exit 3", 3)], ids=["well", "failed"])
def test_a_process_that_outlived_a_step_of_a_worker_is_on_record(
    shopfloor: Cli, transcripts: Transcripts, tmp_path: Path, more: str, exit_code: int
) -> None:
    folder = tmp_path / "workers" / "leaves"
    folder.mkdir(parents=True)
    (folder / "worker.yaml").write_text(WORKER.format(line=f"sleep 304 {QUIET} & echo $!{more}"))
    done = shopfloor("run", "leaves", "--workers", str(folder.parent))
    assert (done.returncode == 0) is (exit_code == 0)
    (step,) = steps_of(events_of(only_path(transcripts())))
    assert step["result"]["exit_code"] == exit_code
    (ended,) = step["ended_processes"]
    assert (ended["command"], ended["args"], ended["signal"]) == ("sleep", ["304"], "SIGTERM")
    assert is_gone(ended["pid"])
    assert (
        f"! process {ended['pid']} (sleep 304) outlived the step and was ended by SIGTERM"
        in shopfloor("show", "last").stdout
    )


@pytest.mark.req("TR-69")
@pytest.mark.parametrize(
    ("provider", "program"),
    [
        ("claude-code", "claude"),
        ("codex", "codex"),
        ("gemini", "gemini"),
        ("copilot", "copilot"),
        ("opencode", "opencode"),
    ],
)
def test_a_process_that_outlived_an_agent_is_on_record(
    shopfloor: Cli, env: dict[str, str], transcripts: Transcripts, tmp_path: Path, provider: str, program: str
) -> None:
    left = f"sh -c 'sleep 305; :' watcher --api-key=abc {QUIET} &"
    # The agent ends only once its child runs `sleep`: a shell that has not started it yet leaves one process, not two.
    is_sleeping = "inner=$(cat /proc/$!/task/$!/children) && grep -q sleep /proc/${inner% }/comm"
    waits = f"until {is_sleeping}; do sleep 0.01; done 2>/dev/null"
    fake(tmp_path, program, f"cat >/dev/null; {left}\n{waits}\ncat {FIXTURES / provider / 'text.jsonl'}")
    path = f"{tmp_path}:{os.environ['PATH']}"
    done = shopfloor("run", "--provider", provider, "hello", env={**env, "PATH": path})
    assert done.returncode == 0, done.stderr
    (step,) = steps_of(events_of(only_path(transcripts())))
    ended = {one["command"]: one for one in step["ended_processes"]}
    assert set(ended) == {"sh", "sleep"}
    assert ended["sleep"]["args"] == ["305"]
    assert ended["sh"]["args"] == ["-c", "sleep 305; :", "watcher", "--api-key=…"]
    assert all(is_gone(one["pid"]) for one in ended.values())
    assert f"! process {ended['sleep']['pid']} (sleep 305" in shopfloor("show", "last").stdout
