"""Runs that their caller executes: beside a server, after a kill, and continued by `shopfloor resume`."""

from __future__ import annotations

import os
import re
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import anyio
import httpx
import pytest
from tests.cli.conftest import SHOPFLOOR
from tests.cli.terminal import Terminal
from tests.cli.test_run import events_of
from tests.cli.test_server import Server
from tests.timeouts import TIMEOUT_SECONDS, wait_until

from shopfloor.engine import WorkerCatalog
from shopfloor.limits import HOST_CHECK_SECONDS
from shopfloor.log import RunStarted, new_run_id, now
from shopfloor.ports import QueuedRun
from shopfloor.record import Storage
from shopfloor.wiring import local_backend

GATE = """
description: A command that waits for a file.
input: {MARK: , GO: }
steps:
  Wait:
    block: command
    command: [sh, -c, 'echo "$WHO in $PWD"; touch "$0"; while [ ! -e "$1" ]; do sleep 0.05; done', "{{MARK}}", "{{GO}}"]
    output: TEXT
    retry: {always: true}
output: TEXT
"""
CALLS = """
description: Has another worker do it.
input: {MARK: , GO: }
steps:
  Call:
    block: run-worker
    worker: gate
    input: {MARK: "{{MARK}}", GO: "{{GO}}"}
    output: TEXT
output: TEXT
"""
PYTHON = '''
import os
from pathlib import Path

import anyio

from shopfloor import worker


@worker(slug="{slug}")
async def {slug}(run, MARK: str, GO: str) -> str:
    """Waits."""
    {body}
    return f"{{os.environ.get('WHO')}} in {{Path.cwd()}}"
'''
BEFORE = """Path(MARK).touch()
    while not Path(GO).exists():
        await anyio.sleep(0.05)"""
ASKS = 'await run.ask("Go on?", options=["yes", "no"])'
PHASES = ("before", "gate", "calls", "asks")
"""Workers that are killed before their first step, in a command, in a sub-run, and while they wait for an answer."""


def make_project(folder: Path) -> Path:
    files = {
        "gate/worker.yaml": GATE,
        "calls/worker.yaml": CALLS,
        "before/worker.py": PYTHON.format(slug="before", body=BEFORE),
        "asks/worker.py": PYTHON.format(slug="asks", body=ASKS),
    }
    for name, text in files.items():
        file = folder / "workers" / name
        file.parent.mkdir(parents=True)
        file.write_text(text)
    return folder


class Shell:
    """A folder with an environment, in which commands are called."""

    def __init__(self, folder: Path, storage: Path, who: str) -> None:
        self.folder = folder
        self.storage = Storage(storage)
        self.env = {**os.environ, "SHOPFLOOR_STORAGE": str(storage), "NO_COLOR": "1", "WHO": who}
        self.started: list[subprocess.Popen[bytes]] = []

    def __call__(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [SHOPFLOOR, *words],
            cwd=self.folder,
            env=self.env,
            text=True,
            capture_output=True,
            timeout=120,
            stdin=subprocess.DEVNULL,
        )

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        pipe = subprocess.PIPE
        process = subprocess.Popen([SHOPFLOOR, *words], cwd=self.folder, env=self.env, stdout=pipe, stderr=pipe)
        self.started.append(process)
        return process

    def close(self) -> None:
        for process in self.started:
            process.kill()
            process.communicate()

    def attempts(self, run_id: str) -> list[dict]:
        events = events_of(self.storage.log_path(run_id))
        return [event["payload"] for event in events if event["type"] == "run.started"]

    def outcome(self, run_id: str) -> dict | None:
        last = events_of(self.storage.log_path(run_id))[-1]
        return last["payload"] if last["type"] == "run.completed" else None

    def root(self, known: Collection[str] = ()) -> str:
        """The newest run of no other, apart from those that are known."""
        found = [
            path.stem
            for path in self.storage.transcripts.glob("*.jsonl")
            if path.stem not in known and path.stat().st_size and "parent_run_id" not in events_of(path)[0]
        ]
        return found[0] if found else ""

    def killed(self, worker: str, *words: str) -> tuple[str, Path]:
        """A run that was killed in the middle; its id, and the file that lets it go on."""
        known = set(self.storage.run_ids()) if self.storage.transcripts.is_dir() else set()
        mark, go = self.folder / f"mark-{new_run_id()}", self.folder / f"go-{new_run_id()}"
        # A terminal for the question: without a terminal the process exits and the run waits.
        inputs = ("-i", f"MARK={mark}", "-i", f"GO={go}")
        if worker == "asks":
            terminal = Terminal("run", worker, *inputs, *words, env=self.env, cwd=self.folder)
            terminal.wait_for("(empty: leave it waiting): ")
            terminal.close()
        else:
            process = self.start("run", worker, *inputs, *words)
            wait_until(lambda: mark.exists() or process.poll() is not None, "the run to begin")
            assert process.poll() is None, process.communicate()
            process.kill()
            process.communicate()
        return self.root(known), go


class ServerShell(Shell):
    """The same with a server."""

    def __init__(self, folder: Path, storage: Path, who: str) -> None:
        super().__init__(folder, storage, who)
        self.server = Server(self.start("up", "--port", "0"), self.env)

    def detail(self, run_id: str) -> dict:
        return self.server.get("/api/agents/workers/detail", worker_id=run_id, transcript="false")

    def post(self, path: str, **body: object) -> httpx.Response:
        return self.server.http.post(path, json=body)

    def ended(self, run_id: str) -> dict:
        wait_until(lambda: self.detail(run_id)["completed_at"] is not None, "the outcome")
        return self.detail(run_id)

    def close(self) -> None:
        self.server.http.close()
        super().close()


@pytest.fixture(scope="module")
def server_shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerShell]:
    """A server in the project `alpha`, shared by the tests that do not change it."""
    root = tmp_path_factory.mktemp("server_shell")
    server_shell = ServerShell(make_project(root / "alpha"), root / "storage", "the server")
    yield server_shell
    server_shell.close()


@pytest.fixture
def shell_in(server_shell: ServerShell) -> Iterator[Callable[..., Shell]]:
    """A shell in a folder, on the storage of the server."""
    shells: list[Shell] = []

    def make(folder: Path, who: str) -> Shell:
        shells.append(Shell(folder, server_shell.storage.root, who))
        return shells[-1]

    yield make
    for shell in shells:
        shell.close()


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[Shell]:
    """A shell on a storage with no server."""
    shell = Shell(make_project(tmp_path / "project"), tmp_path / "storage", "somebody")
    yield shell
    shell.close()


def executors(attempts: list[dict]) -> list[str | None]:
    return [one.get("executor") for one in attempts]


# Beside a server


@pytest.mark.req("SF-30")
def test_two_runs_in_two_shells_are_executed_by_their_callers_and_obey_the_server(server_shell, shell_in, tmp_path):
    """A shell in another project of the server, and a shell in a folder that the server does not know."""
    beta, other = make_project(tmp_path / "beta"), make_project(tmp_path / "other")
    assert server_shell("projects", "add", str(beta)).returncode == 0
    shells = [shell_in(beta, "beta's caller"), shell_in(other, "another caller")]
    marks = [shell.folder / "mark" for shell in shells]
    go = tmp_path / "go"
    runs = []
    for shell, mark in zip(shells, marks, strict=True):
        known = set(server_shell.storage.run_ids())
        runs.append((shell.start("run", "-q", "calls", "-i", f"MARK={mark}", "-i", f"GO={go}"), shell))
        wait_until(mark.exists, "the command in the sub-run")
        runs[-1] = (*runs[-1], shell.root(known))
    (first, _, first_id), (second, _, second_id) = runs
    wait_until(
        lambda: {one["parent_run_id"] for one in server_shell.server.runs(status="running")} >= {first_id, second_id},
        "rows",
    )
    with server_shell.server.http.stream("GET", f"/api/runs/{first_id}/stream") as stream:
        assert any("run.started" in line for line in stream.iter_lines())
    refused = server_shell.post(f"/api/runs/{first_id}/resume")
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "run_running")
    # Long enough for the server to look after runs that it should not touch.
    time.sleep(2.5 * HOST_CHECK_SECONDS)
    assert server_shell.post(f"/api/runs/{second_id}/cancel", reason="not needed").status_code == 200
    second.communicate(timeout=60)
    assert server_shell.ended(second_id)["status"] == "cancelled"
    go.touch()
    output, _ = first.communicate(timeout=60)
    assert (first.returncode, output.decode()) == (0, f"beta's caller in {beta}\n")
    assert server_shell.ended(first_id)["status"] == "done"
    for run_id in server_shell.storage.run_ids():
        assert executors(server_shell.attempts(run_id)) == ["caller"]


@pytest.mark.req("SF-30")
def test_an_answer_sent_to_the_server_reaches_the_process_of_the_caller(server_shell, shell_in):
    shell = shell_in(server_shell.folder, "the caller")
    known = set(server_shell.storage.run_ids())
    terminal = Terminal(
        "run", "asks", "-i", "MARK=x", "-i", "GO=x", env=shell.env, cwd=shell.folder, stdout=subprocess.DEVNULL
    )
    try:
        terminal.wait_for("(empty: leave it waiting): ")
        run_id = shell.root(known)
        wait_until(lambda: server_shell.detail(run_id)["awaits"], "the question")
        call_id = server_shell.detail(run_id)["awaits"][0]["call_id"]
        assert server_shell.post(f"/api/runs/{run_id}/answer", call_id=call_id, answer="yes").status_code == 200
        assert server_shell.ended(run_id)["result"] == f"the caller in {server_shell.folder}"
        assert executors(server_shell.attempts(run_id)) == ["caller"]
    finally:
        terminal.close()


# After a kill


@pytest.mark.req("SF-31")
@pytest.mark.parametrize("worker", PHASES)
def test_a_server_resumes_a_killed_run_of_one_of_its_projects(server_shell, shell_in, worker):
    shell = shell_in(server_shell.folder, "the caller")
    run_id, go = shell.killed(worker)
    go.touch()
    if worker == "asks":
        wait_until(lambda: server_shell.detail(run_id)["awaits"], "the question")
        call_id = server_shell.detail(run_id)["awaits"][0]["call_id"]
        assert server_shell.post(f"/api/runs/{run_id}/answer", call_id=call_id, answer="yes").status_code == 200
    ended = server_shell.ended(run_id)
    assert (ended["status"], ended["result"].strip()) == ("done", f"the server in {server_shell.folder}")
    assert executors(server_shell.attempts(run_id)) == ["caller", None]


@pytest.mark.req("SF-32")
@pytest.mark.parametrize("worker", PHASES)
def test_without_a_server_a_killed_run_is_resumed_in_a_shell(alone, worker):
    run_id, go = alone.killed(worker)
    shown = alone("status", run_id).stdout
    # One that waits needs no process; the sub-run that it waits for does.
    assert ("waiting" if worker in ("asks", "calls") else "interrupted") in shown
    go.touch()
    alone.env["WHO"] = "who resumes"
    if worker == "asks":
        answered = alone("answer", run_id, "yes")
        assert "shopfloor resume" in answered.stderr
    resumed = alone("resume", run_id[:8])
    assert (resumed.returncode, resumed.stdout) == (0, f"who resumes in {alone.folder}\n"), resumed.stderr
    assert "shopfloor: completed in " in resumed.stderr
    assert executors(alone.attempts(run_id)) == ["caller", "caller"]
    for path in alone.storage.transcripts.glob("*.jsonl"):
        assert alone.outcome(path.stem)["status"] == "completed"


@pytest.mark.req("SF-31")
def test_a_run_of_a_folder_that_the_server_does_not_serve_waits_for_a_shell(server_shell, shell_in, tmp_path):
    shell = shell_in(make_project(tmp_path / "elsewhere"), "the caller")
    first, go = shell.killed("calls")
    second, _ = shell.killed("gate")
    child = next(one["id"] for one in server_shell.server.runs() if one["parent_run_id"] == first)
    wait_until(lambda: all(server_shell.detail(one)["interrupted"] for one in (child, second)), "both to be shown so")
    refused = server_shell.post(f"/api/runs/{first}/resume")
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "conflict")
    assert str(shell.folder) in refused.json()["error"]["message"]
    assert f"shopfloor resume {first}" in refused.json()["error"]["hint"]
    time.sleep(2.5 * HOST_CHECK_SECONDS)
    assert [executors(server_shell.attempts(one)) for one in (first, child, second)] == [["caller"]] * 3
    assert server_shell.post(f"/api/runs/{second}/cancel", reason="not needed").status_code == 200
    assert server_shell.ended(second)["status"] == "cancelled"
    go.touch()
    resumed = shell("resume", first)
    assert (resumed.returncode, resumed.stdout) == (0, f"the caller in {shell.folder}\n"), resumed.stderr
    assert server_shell.ended(first)["status"] == "done"
    again = shell("resume", first)
    assert (again.returncode, again.stderr.startswith("error[run_ended]: ")) == (5, True)


@pytest.mark.req("SF-31", "SF-67")
def test_a_run_whose_worker_has_changed_waits_until_the_worker_is_restored(server_shell, shell_in):
    shell = shell_in(server_shell.folder, "the caller")
    file = server_shell.folder / "workers" / "gate" / "worker.yaml"
    # Stopped, the server cannot be quicker than the change.
    os.kill(server_shell.server.process.pid, signal.SIGSTOP)
    try:
        run_id, go = shell.killed("gate")
        file.write_text(GATE + "name: Another\n")
    finally:
        os.kill(server_shell.server.process.pid, signal.SIGCONT)
    go.touch()
    wait_until(lambda: server_shell.detail(run_id)["interrupted"], "it to be shown so")
    refused = server_shell.post(f"/api/runs/{run_id}/resume")
    assert "does not have the worker as it was" in refused.json()["error"]["message"]
    assert executors(server_shell.attempts(run_id)) == ["caller"]
    (item,) = [one for one in server_shell.server.get("/api/waiting")["items"] if one["run_id"] == run_id]
    assert (item["kind"], item["call_id"], item["actions"]) == ("interrupted", None, ["cancel"])
    assert "does not have the worker as it was" in item["text"]
    assert f"shopfloor resume {run_id[:8]}" in item["hint"]
    file.write_text(GATE)
    assert server_shell.ended(run_id)["status"] == "done"
    assert run_id not in [one["run_id"] for one in server_shell.server.get("/api/waiting")["items"]]


@pytest.mark.req("SF-31")
def test_a_masked_run_is_not_resumed_by_a_server_and_stays_masked_in_a_shell(server_shell, shell_in):
    shell = shell_in(server_shell.folder, "correct-horse-battery")
    run_id, go = shell.killed("gate", "--mask-env", "WHO")
    go.touch()
    wait_until(lambda: server_shell.detail(run_id)["interrupted"], "it to be shown so")
    assert "its record is masked" in server_shell.post(f"/api/runs/{run_id}/resume").json()["error"]["message"]
    unmasked = shell("resume", run_id)
    assert (unmasked.returncode, "set what to mask" in unmasked.stderr) == (5, True)
    time.sleep(2.5 * HOST_CHECK_SECONDS)
    resumed = shell("resume", run_id, "--mask-env", "WHO")
    assert resumed.returncode == 0, resumed.stderr
    attempts = shell.attempts(run_id)
    assert [(one["executor"], one["masked"]) for one in attempts] == [("caller", True)] * 2
    log = server_shell.storage.log_path(run_id).read_text()
    assert ("correct-horse" in log, log.count(f"[masked] in {server_shell.folder}") >= 2) == (False, True)


@pytest.mark.req("SF-31")
def test_a_claimed_run_that_never_started_is_resumed_by_the_same_rules(server_shell, shell_in, tmp_path):
    elsewhere = shell_in(make_project(tmp_path / "elsewhere"), "the caller")
    go = tmp_path / "go"
    go.touch()

    def order(folder: Path) -> QueuedRun:
        worker = WorkerCatalog([folder / "workers"]).get("gate")
        run_id = new_run_id()
        started = RunStarted(
            name="gate",
            kind="worker",
            attempt=0,
            host="",
            root_run_id=run_id,
            worker_type="builtin",
            input={"MARK": str(tmp_path / "mark"), "GO": str(go)},
            task="wait",
            agent_id="gate",
            channel_id="cli",
            queued_at=now(),
            definition=worker.as_data,
            definition_hash=worker.hash,
            cwd=str(folder),
            executor="caller",
        )
        return QueuedRun(run_id=run_id, started=started)

    ours, others, cancelled = order(server_shell.folder), order(elsewhere.folder), order(elsewhere.folder)

    async def keep() -> None:
        async with local_backend(server_shell.storage) as backend:
            for one in (ours, others, cancelled):
                await backend.queue.dispatch(one, host="local-00000000")

    anyio.run(keep)
    assert server_shell.ended(ours.run_id)["status"] == "done"
    assert server_shell.post(f"/api/runs/{cancelled.run_id}/cancel").status_code == 200
    assert server_shell.ended(cancelled.run_id)["status"] == "cancelled"
    assert server_shell.detail(others.run_id)["status"] == "queued"
    resumed = elsewhere("resume", others.run_id)
    assert (resumed.returncode, resumed.stdout) == (0, f"the caller in {elsewhere.folder}\n"), resumed.stderr


@pytest.mark.req("SF-32")
def test_a_run_that_cannot_be_resumed_is_a_clear_error(alone):
    unknown = alone("resume", "0b7e55d2")
    assert (unknown.returncode, unknown.stderr.startswith("error[run_not_found]: ")) == (4, True)
    alone("run", "-q", "--command", "true")
    bare = alone("resume", "last")
    assert (bare.returncode, bare.stderr.startswith("error[run_ended]: ")) == (5, True)

    run_id, go = alone.killed("calls")
    child = next(
        path.stem for path in alone.storage.transcripts.glob("*.jsonl") if "parent_run_id" in events_of(path)[0]
    )
    below = alone("resume", child)
    assert (below.returncode, f"shopfloor resume {run_id}" in below.stderr) == (5, True)
    process = alone.start("resume", run_id)
    wait_until(lambda: len(alone.attempts(child)) == 2, "the sub-run to be resumed")
    busy = alone("resume", run_id)
    assert (busy.returncode, busy.stderr.startswith("error[run_running]: another process executes")) == (5, True)
    go.touch()
    process.communicate(timeout=60)
    assert process.returncode == 0

    run_id, go = alone.killed("before")
    go.touch()
    file = alone.folder / "workers" / "before" / "worker.py"
    text = file.read_text()
    file.write_text(text.replace("0.05", "0.06"))
    changed = alone("resume", run_id)
    assert (changed.returncode, changed.stderr.partition(":")[0]) == (1, "error[definition_changed]"), changed.stderr
    assert len(alone.attempts(run_id)) == 1
    file.write_text(text)
    assert alone("resume", run_id).returncode == 0


@pytest.mark.req("SF-32")
def test_a_question_of_a_resumed_run_is_asked_at_the_terminal_again(alone):
    run_id, _ = alone.killed("asks")
    terminal = Terminal("resume", run_id, env=alone.env, cwd=alone.folder)
    try:
        terminal.wait_for("Go on?\r\n  1. yes\r\n  2. no\r\n")
        terminal.type("1\n")
        assert terminal.end() == 0, terminal.shown
        assert f"somebody in {alone.folder}" in terminal.shown
    finally:
        terminal.close()


@pytest.mark.req("SF-32")
def test_the_summary_of_a_resumed_run_counts_what_it_used_before(alone):
    steps = "Begin: {block: start-thread, model: script/hello}\n  Say: {block: add-message, text: 'Say hello to Ada.'}"
    reply = "{block: next-message, output: TEXT}"
    question = "{block: tool-call, tool: ask, input: {question: 'Go on?'}, output: ANSWER}"
    (alone.folder / "workers" / "pauses").mkdir()
    (alone.folder / "workers" / "pauses" / "worker.yaml").write_text(
        f"steps:\n  {steps}\n  First: {reply}\n  Ask: {question}\n  More: {{block: add-message, text: Again.}}\n"
        f"  Second: {reply}\noutput: TEXT\n"
    )

    def tokens(summary: str) -> list[int]:
        found = re.search(r"([0-9,]+) tokens in, ([0-9,]+) out", summary)
        assert found is not None, summary
        return [int(number.replace(",", "")) for number in found.groups()]

    paused = alone("run", "pauses")
    run_id = alone.root()
    assert alone("answer", run_id, "yes").returncode == 0
    resumed = alone("resume", run_id)
    assert resumed.returncode == 0, resumed.stderr
    usage = alone.outcome(run_id)["usage"]
    assert tokens(paused.stderr) < tokens(resumed.stderr) == [usage["input"], usage["output"]]


# What the server sees


@pytest.mark.req("SF-30")
def test_providers_and_doctor_report_differences_between_server_and_shell(server_shell, shell_in, tmp_path):
    program = tmp_path / "codex"
    program.write_text("#!/bin/sh\necho 'codex-cli 0.166.0'\n")
    program.chmod(0o755)
    shell = shell_in(server_shell.folder, "the caller")
    title = f"Different on the server at {server_shell.server.url}, which executes dispatched runs:"
    assert title not in shell("providers").stdout
    shell.env["PATH"] = f"{tmp_path}:{shell.env['PATH']}"
    for command in ("providers", "doctor"):
        here, _, there = shell(command).stdout.partition(title)
        assert "0.166.0" in here
        assert [line.split()[1] for line in there.splitlines() if line.startswith(("✓", "·"))] == ["codex"]


# A server in the background


@pytest.mark.req("SF-33")
def test_a_server_is_started_in_the_background_and_stopped(alone):
    alone.env["SHOPFLOOR_PORT"] = "0"
    nothing = alone("down")
    assert (nothing.returncode, nothing.stdout.startswith("shopfloor: no server is running")) == (0, True)
    up = alone("up", "--detach")
    try:
        assert (up.returncode, up.stderr) == (0, "")
        link = up.stdout.split()[3]
        assert httpx.get(link, timeout=TIMEOUT_SECONDS).status_code == 303
        assert stat.S_IMODE(alone.storage.server_log.stat().st_mode) == 0o600
        twice = alone("up", "--detach")
        assert (twice.returncode, twice.stderr.startswith("error[server_running]: ")) == (5, True)
        run_id = alone("dispatch", "-q", "hello", "-i", "NAME=Ada").stdout.strip()
        assert alone("result", run_id, "--wait").stdout.startswith("Hello, Ada! ")
    finally:
        down = alone("down")
    assert (down.returncode, down.stdout.startswith("shopfloor: stopped the server at ")) == (0, True)
    with pytest.raises(httpx.ConnectError):
        httpx.get(link, timeout=TIMEOUT_SECONDS)
    failed = alone("up", "--detach", "--host", "203.0.113.1")
    assert (failed.returncode, failed.stdout) == (7, "")
    assert failed.stderr.startswith("error[server_unreachable]: the server did not start: cannot listen on 203.0.113.1")


@pytest.mark.req("SF-33")
def test_dispatch_offers_to_start_a_server_at_a_terminal(alone):
    alone.env["SHOPFLOOR_PORT"] = "0"
    for answer, message in (("n\n", "queued, but no server is running"), ("\n", "dispatched")):
        terminal = Terminal("dispatch", "hello", "-i", "NAME=Ada", env=alone.env, cwd=alone.folder)
        try:
            terminal.wait_for("no server is running; start one now? [Y/n] ")
            terminal.type(answer)
            assert terminal.end() == 0, terminal.shown
            assert f"shopfloor: {message}" in terminal.shown
        finally:
            terminal.close()
            stopped = alone("down").stdout
        assert stopped.startswith("shopfloor: stopped" if answer == "\n" else "shopfloor: no server")


@pytest.mark.req("SF-33")
def test_down_does_not_stop_a_server_inside_another_program(alone):
    program = "import shopfloor, sys\nclient = shopfloor.Shopfloor()\nprint('up', flush=True)\nsys.stdin.read()\n"
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", program], env=alone.env, stdin=pipe, stdout=pipe) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        refused = alone("down")
        assert (refused.returncode, "is part of another program" in refused.stderr) == (5, True)
        assert process.poll() is None
        process.communicate(timeout=60)
