"""Time limits of commands, models and agents, as a user sets them."""

from __future__ import annotations

import json
import os
import re
import signal
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.agent_event_schema import checked_events, payloads, types
from tests.cli.conftest import Cli
from tests.cli.test_server import Server
from tests.model_server.fixtures import model_server, model_server_thread
from tests.model_server.script import Text, Turn
from tests.model_server.server import ModelServer
from tests.timeouts import wait_until

__all__ = ["model_server", "model_server_thread"]

IN_PYTHON = """
from shopfloor import worker
from shopfloor.errors import StepTimeout


@worker(slug="limited")
async def limited(run):
    try:
        await run.command("exec sleep 60", timeout_seconds=0.2)
    except StepTimeout as error:
        return f"caught {error.code}"
"""
SLOW_SCRIPT = "turns: [{wait_ms: 600000, text: Too late.}]"
SLOW_MODEL = """
steps:
  Start: {{block: start-thread, model: script/slow.yaml}}
  Ask: {{block: next-message, timeout: {timeout}, retry: {{limit: 1, delay: 0}}}}
"""


def add_worker(folder: Path, slug: str, **files: str) -> str:
    home = folder / "workers" / slug
    home.mkdir(parents=True)
    for name, text in files.items():
        (home / f"{name}.yaml").write_text(text)
    return str(home.parent)


def ends_of_steps(path: Path) -> list[dict[str, Any]]:
    events = [json.loads(line) for line in path.read_text().split("\n")[:-1]]
    return [event["payload"] for event in events if event["type"] == "step.completed"]


@pytest.mark.req("SF-48")
def test_a_command_is_stopped_at_its_time_limit(shopfloor: Cli, transcripts) -> None:
    done = shopfloor("run", "--command", "exec sleep 60", "--timeout", "300ms")
    assert done.returncode == 124
    assert "took longer than its time limit of 0.3 s" in done.stderr
    (step,) = ends_of_steps(*transcripts())
    assert (step["error_code"], step["result"]["signal"]) == ("step_timeout", "SIGTERM")


@pytest.mark.req("SF-48")
def test_each_try_of_a_command_has_the_time_limit(shopfloor: Cli, transcripts, tmp_path: Path) -> None:
    step = "{block: command, command: exec sleep 60, timeout: 0.2s, retry: {limit: 1, delay: 0}}"
    workers = add_worker(tmp_path, "slow", worker=f"steps: {{Sleep: {step}}}")
    assert shopfloor("run", "slow", "--workers", workers, "--quiet").returncode == 124
    ends = ends_of_steps(*transcripts())
    assert [end["error_code"] for end in ends] == ["step_timeout", "step_timeout"]
    assert [end["decision"]["action"] for end in ends] == ["retry", "abort"]


@pytest.mark.req("SF-48", "FE-23")
def test_a_model_is_stopped_at_its_time_limit(shopfloor: Cli, tmp_path: Path) -> None:
    workers = add_worker(tmp_path, "slow", worker=SLOW_MODEL.format(timeout="0.2"), slow=SLOW_SCRIPT)
    assert shopfloor("run", "slow", "--workers", workers, "--quiet").returncode == 124
    events = checked_events(shopfloor("events", "last", "--json").stdout)
    assert types(events) == ["spawned", "error", "terminated"]
    (error,), (terminated,) = payloads(events, "agent.error"), payloads(events, "agent.terminated")
    assert (error["error"]["code"], error["action"]) == ("step_timeout", {"type": "retry", "retryCount": 1})
    assert terminated["reason"] == "timeout"


@pytest.mark.req("SF-48")
def test_a_worker_in_python_gets_the_error_of_a_time_limit(shopfloor: Cli, tmp_path: Path) -> None:
    folder = tmp_path / "workers" / "limited"
    folder.mkdir(parents=True)
    (folder / "worker.py").write_text(IN_PYTHON)
    done = shopfloor("run", "limited", "--workers", str(folder.parent), "--quiet")
    assert (done.returncode, done.stdout) == (0, "caught step_timeout\n"), done.stderr


@pytest.mark.req("SF-48", "FE-2")
def test_a_dispatched_model_is_stopped_at_its_time_limit_and_a_subscriber_of_its_provider_hears_of_it(
    shopfloor: Cli, start, env: dict[str, str], model_server: ModelServer
) -> None:
    env.update(model_server.env)
    model_server.say(Turn(say=[Text(text="Never.")], wait=600, times=0))
    server = Server(start("up", "--port", "0"), env)
    follower = start("events", "--follow", "--provider", "anthropic", "--json")
    dispatched = shopfloor("dispatch", "anthropic", "Hello?", "--timeout", "200ms", "--wait", "--quiet")
    assert dispatched.returncode == 124, dispatched.stderr
    lines: list[str] = []
    while not lines or '"agent.terminated"' not in lines[-1]:
        lines.append(follower.stdout.readline().decode())
        assert lines[-1], follower.stderr.read()
    # Hosts report the same runs; their events are not part of this promise.
    events = checked_events("".join(line for line in lines if '"type":"agent.' in line))
    assert types(events)[0] == "spawned"
    assert payloads(events, "agent.terminated")[0]["reason"] == "timeout"
    server.http.close()


@pytest.mark.req("SF-49")
def test_a_time_limit_counts_from_the_start_of_the_step_also_after_a_crash(
    shopfloor: Cli, start, transcripts, tmp_path: Path
) -> None:
    """The timestamps of the log are set back, as if the crash had been two hours ago."""
    script = SLOW_MODEL.format(timeout="1h").replace("limit: 1", "limit: 0")
    workers = add_worker(tmp_path, "slow", worker=script, slow=SLOW_SCRIPT)
    process = start("run", "slow", "--workers", workers, "--quiet")
    wait_until(lambda: transcripts() and '"kind":"next-message"' in transcripts()[0].read_text(), "the step")
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    (log,) = transcripts()

    def set_back(found: re.Match[str]) -> str:
        earlier = datetime.fromisoformat(found[1]) - timedelta(hours=2)
        return f'"timestamp":"{earlier.isoformat(timespec="milliseconds").replace("+00:00", "Z")}"'

    text, count = re.subn(r'"timestamp": ?"([^"]+)"', set_back, log.read_text())
    assert count
    log.write_text(text)
    done = shopfloor("resume", "last", "--workers", workers)
    ends = ends_of_steps(log)
    assert ends[-1]["error_code"] == "step_timeout", done.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("run", "--command", "true", "--timeout", "soon"), "must be a time limit such as 90, 45s, 10m or 2h"),
        (("run", "--command", "true", "--timeout", "0"), "must be a time limit such as 90, 45s, 10m or 2h"),
        (("run", "hello", "--timeout", "5"), "--timeout can only be used with --provider and --command"),
        (("dispatch", "hello", "--timeout", "5"), "--timeout can only be used with the worker of a provider"),
    ],
)
def test_a_time_limit_that_has_no_effect_is_refused(shopfloor: Cli, words: tuple[str, ...], message: str) -> None:
    done = shopfloor(*words)
    assert (done.returncode, message in done.stderr) == (2, True), done.stderr
