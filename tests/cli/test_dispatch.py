"""`shopfloor dispatch`, and the commands for dispatched runs: result, answer, cancel, delete."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.test_run import events_of, only_path
from tests.cli.test_server import Server
from tests.timeouts import TIMEOUT_SECONDS, wait_until

TWO_QUESTIONS = """
description: Waits for two tools at once.
tools:
  first: {description: One., parameters: {}}
  second: {description: Another., parameters: {}}
steps:
  Both:
    block: parallel
    branches:
      A:
        Ask the first: {block: tool-call, tool: first, input: {n: 1}, output: ONE}
      B:
        Ask the second: {block: tool-call, tool: second, input: {n: 2}, output: TWO}
output: {one: "{{ONE}}", two: "{{TWO}}"}
"""


@pytest.fixture(autouse=True)
def _fast(env: dict[str, str]) -> None:
    env["SHOPFLOOR_SCRIPT_DELAY_MS"] = "0"


@pytest.fixture
def server(start, env) -> Iterator:
    servers: list[Server] = []

    def up(*words: str) -> Server:
        servers.append(Server(start("up", "--port", "0", *words), env))
        return servers[-1]

    yield up
    for one in servers:
        one.http.close()


def test_without_a_server_a_run_is_queued_until_there_is_one(shopfloor, server, transcripts):
    done = shopfloor("dispatch", "hello", "-i", "NAME=Ada")
    run_id = done.stdout.strip()
    assert done.stderr.startswith("shopfloor: queued, but no server is running; `shopfloor up --detach` starts one · ")
    assert transcripts() == []
    assert "queued" in shopfloor("status", run_id[:8]).stdout
    asked = shopfloor("result", "last")
    assert (asked.returncode, asked.stderr) == (75, f"shopfloor: run {run_id[:8]} is queued\n")
    server()
    result = shopfloor("result", run_id[:8], "--wait")
    assert result.stdout.startswith("Hello, Ada! "), result.stderr
    assert result.returncode == 0
    assert json.loads(shopfloor("result", "last", "--json").stdout) == result.stdout.removesuffix("\n")


def test_without_a_server_a_host_takes_the_run(shopfloor, start, tmp_path):
    start("host", "--workers", str(tmp_path))
    wait_until(lambda: " idle " in shopfloor("hosts").stdout, "the host to register")
    done = shopfloor("dispatch", "hello", "-i", "NAME=Ada")
    assert done.stderr.startswith("shopfloor: dispatched · ")
    assert shopfloor("result", done.stdout.strip(), "--wait").stdout.startswith("Hello, Ada! ")
    again = shopfloor("rerun", "last", "--detach")
    assert again.stderr.startswith("shopfloor: dispatched · ")
    needy = shopfloor("dispatch", "hello", "-i", "NAME=Ada", "--label", "gpu=yes")
    assert needy.stderr.startswith("shopfloor: queued: no host has the label gpu=yes · ")


def test_waiting_for_a_run_is_refused_without_a_server(shopfloor):
    done = shopfloor("dispatch", "hello", "-i", "NAME=Ada", "--wait")
    assert done.stderr.startswith("error[usage]: --wait needs a server, and no server is running")
    assert done.returncode == 2


def test_dispatch_and_wait_follows_the_run_to_its_end(shopfloor, server):
    server()
    done = shopfloor("dispatch", "hello", "-i", "NAME=Ada", "--wait")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Hello, Ada! ")
    assert "shopfloor: completed in " in done.stderr


def test_detaching_from_a_dispatched_run_does_not_affect_it(shopfloor, server, start, transcripts):
    up = server()
    process = start("dispatch", "research-assistant", "-i", "TOPIC=tea", "--wait")
    while b"shopfloor answer" not in process.stderr.readline():
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=TIMEOUT_SECONDS)
    assert process.returncode == 130
    wait_until(lambda: [one["status"] for one in up.runs()] == ["waiting"], "the row")
    follower = start("result", "last", "--wait")
    assert shopfloor("answer", "last", "tea is a drink").returncode == 0
    output, _ = follower.communicate(timeout=60)
    assert (follower.returncode, b"tea is a drink" in output) == (0, True)


def test_the_same_key_again_is_the_same_run(shopfloor):
    words = ("dispatch", "-q", "hello", "-i", "NAME=Ada", "--idempotency-key", "greet-ada")
    first, second = shopfloor(*words), shopfloor(*words)
    assert first.stdout == second.stdout != ""
    assert (first.stderr, second.stderr) == ("", "")


def test_one_of_several_calls_is_answered_by_its_name(shopfloor, server, tmp_path, transcripts):
    folder = tmp_path / "workers" / "two"
    folder.mkdir(parents=True)
    (folder / "worker.yaml").write_text(TWO_QUESTIONS)
    up = server("--workers", str(folder.parent))
    run_id = shopfloor("dispatch", "-q", "two").stdout.strip()
    wait_until(lambda: [one["status"] for one in up.runs()] == ["waiting"], "the row")
    listed = shopfloor("answer", run_id, "--list").stdout.splitlines()
    # Branches begin in no order.
    waits = dict(zip(listed[0::2], [line.split()[3] for line in listed[1::2]], strict=True))
    calls = [waits['waits for first {"n": 1}'], waits['waits for second {"n": 2}']]
    unclear = shopfloor("answer", run_id, "yes")
    assert (unclear.returncode, calls[0] in unclear.stderr) == (2, True)
    assert shopfloor("answer", run_id, calls[1], '["two"]').returncode == 0
    wait_until(lambda: len(shopfloor("answer", run_id, "--list").stdout.splitlines()) == 2, "one call less")
    assert shopfloor("answer", run_id, "-", input='{"one": 1}\n').returncode == 0
    result = shopfloor("result", run_id, "--wait")
    assert json.loads(result.stdout) == {"one": {"one": 1}, "two": ["two"]}
    late = shopfloor("answer", run_id, "too late")
    assert late.stderr.startswith("error[run_ended]: ")
    assert late.returncode == 5


def test_a_call_may_be_answered_with_an_error(shopfloor, server, transcripts):
    server()
    shopfloor("run", "-q", "research-assistant", "-i", "TOPIC=tea")
    assert shopfloor("answer", "last", "--error", "no network").returncode == 0
    assert "no network" in shopfloor("result", "last", "--wait").stdout
    results = [event["payload"] for event in events_of(only_path(transcripts())) if event["type"] == "tool.result"]
    assert results[0]["error"] == "no network"


def test_cancel_waits_until_the_run_has_ended(shopfloor, transcripts):
    shopfloor("run", "-q", "research-assistant", "-i", "TOPIC=tea")
    done = shopfloor("cancel", "last", "--reason", "wrong topic")
    assert done.stdout.startswith("shopfloor: cancelled"), done.stderr
    assert events_of(only_path(transcripts()))[-1]["payload"]["error"]["message"] == "wrong topic"
    result = shopfloor("result", "last")
    assert (result.stderr, result.returncode) == ("error[cancelled]: wrong topic\n", 1)
    again = shopfloor("cancel", "last")
    assert (again.stderr.startswith("error[run_ended]: "), again.returncode) == (True, 5)


def test_a_queued_run_can_be_cancelled_before_it_is_claimed(shopfloor):
    run_id = shopfloor("dispatch", "-q", "hello", "-i", "NAME=Ada").stdout.strip()
    assert shopfloor("cancel", run_id).stdout.startswith("shopfloor: cancelled")
    assert "cancelled" in shopfloor("status", run_id).stdout


def test_delete_reports_what_is_deleted_and_what_is_kept(shopfloor, transcripts, tmp_path):
    shopfloor("run", "-q", "repo-report", "--input-json", '{"FILES": ["a", "b"]}', cwd=tmp_path)
    assert len(transcripts()) == 3
    assert shopfloor("delete", "last").stdout.endswith(", with 2 sub-runs\n")
    assert transcripts() == []
    shopfloor("run", "-q", "--command", "exit 3")
    kept = shopfloor("delete", "last", "nothing-like-it")
    assert kept.stderr.startswith("error[needs_force]: ")
    assert "error[run_not_found]: " in kept.stderr
    assert (kept.returncode, len(transcripts())) == (4, 1)
    assert shopfloor("delete", "last", "--force").returncode == 0
    assert transcripts() == []


def test_a_failed_runs_result_is_its_error(shopfloor):
    shopfloor("run", "-q", "--command", "echo before; exit 3")
    done = shopfloor("result", "last")
    assert (done.stdout, done.stderr, done.returncode) == ("", "error[command_failed]: exit code 3\n", 1)
    shopfloor("run", "-q", "--command", "printf 'no newline'")
    assert shopfloor("result", "last").stdout == "no newline\n"


def test_up_reports_how_many_workers_it_found_and_accepts_a_number_of_slots(shopfloor, server, env, tmp_path):
    folder = tmp_path / "own"
    for slug, text in (("sound", "steps: {A: {block: command, command: 'true'}}"), ("broken", "steps: 3")):
        (folder / slug).mkdir(parents=True)
        (folder / slug / "worker.yaml").write_text(text)
    packaged = len(json.loads(shopfloor("workers", "list", "--json").stdout))
    up = server("--slots", "1", "--workers", str(folder))
    for _ in range(2):
        up.process.stdout.readline()
    line = up.process.stdout.readline().decode().strip()
    assert line == f"{packaged + 1} workers found; 1 with errors: `shopfloor workers check` lists them"
    env["SHOPFLOOR_SLOTS"] = "many"
    wrong = shopfloor("up", "--port", "0", "--storage", str(tmp_path / "other"))
    assert wrong.stderr.startswith("error[usage]: SHOPFLOOR_SLOTS must be an integer of at least 1, got 'many'")
    assert os.fspath(Path(env["SHOPFLOOR_STORAGE"])) not in wrong.stderr


def test_up_executes_the_code_of_a_worker_once_and_in_the_thread_of_its_runs(shopfloor, server, tmp_path):
    folder = tmp_path / "own" / "thread-name"
    folder.mkdir(parents=True)
    (folder / "worker.py").write_text(
        "import pathlib, threading\n\nfrom shopfloor import Run, worker\n\n"
        f"with pathlib.Path({str(tmp_path / 'loaded')!r}).open('a') as file:\n"
        "    print(threading.current_thread().name, file=file)\n\n\n"
        "@worker\nasync def thread_name(run: Run):\n    return threading.current_thread().name\n"
    )
    up = server("--workers", str(folder.parent))
    # The last line is printed when all workers were counted.
    while b"the API is described" not in (line := up.process.stdout.readline()):
        assert line, up.process.stderr.read().decode()
    dispatched = shopfloor("dispatch", "thread-name", "--wait")
    assert (dispatched.stdout.strip(), dispatched.returncode) == ("MainThread", 0), dispatched.stderr
    assert (tmp_path / "loaded").read_text() == "MainThread\n"


def test_examples_are_runs_of_the_example_workers(server, env):
    up = server("--examples")
    wanted = {"hello": "done", "repo-report": "done", "research-assistant": "waiting"}

    def made() -> dict[str, str]:
        return {one["name"]: one["status"] for one in up.runs() if one["parent_run_id"] is None}

    wait_until(lambda: made().items() >= wanted.items(), "the examples")
    assert sorted(one["status"] for one in up.runs(worker_type="command")) == ["done", "failed"]
