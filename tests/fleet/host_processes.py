"""Hosts as processes: `shopfloor host` and `shopfloor up` on one storage, and what their runs have done."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
from tests.cli.test_run import processes_with
from tests.timeouts import TIMEOUT_SECONDS, wait_until

from shopfloor.log import Event, RunCompleted, RunStarted, Verifier, decode
from shopfloor.record import Storage, read
from shopfloor.wiring import WorkerSettings, open_client

SHOPFLOOR = str(Path(sys.executable).parent / "shopfloor")
TOOLS = """
import asyncio
from pathlib import Path

def note(given):
    with open(given["notes"], "a") as file:
        file.write(given["what"] + "\\n")

async def hold(given):
    note(given)
    while not Path(given["go"]).exists():
        await asyncio.sleep(0.02)
    return "held"

async def nap(given):
    await asyncio.sleep(0.05)
"""
_NOTE = "{block: tool-call, tool: note, input: {notes: '%(notes)s', what: '%(what)s {{NAME}}'}}"
_HOLD = "{block: tool-call, tool: hold, input: {notes: '%(notes)s', what: 'held {{NAME}}', go: '{{GO}}'}, output: OUT}"
WORKERS = {
    # Effects that must happen once, with pauses that may be repeated in between.
    "chain": ["one", "nap", "two", "nap", "three"],
    "note": ["noted"],
    "holding": ["before", "hold", "after"],
}


class Fleet:
    """A storage with workers, and the processes that a test starts on it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.storage = Storage(folder / "storage")
        self.notes = folder / "notes"
        self.mark = f"fleet-{uuid.uuid4().hex}"
        self.env = {**os.environ, "SHOPFLOOR_STORAGE": str(self.storage.root), "SF_TEST": self.mark}
        self.processes: list[subprocess.Popen[bytes]] = []
        (folder / "tools.py").write_text(TOOLS)
        for slug, steps in WORKERS.items():
            self._add_worker(slug, steps)
        self.add_worker(
            "command", "  Before: " + self._step("before") + "\n  Sleep: {block: command, command: 'sleep 600'}\n"
        )
        call = "{block: run-worker, worker: holding, input: {NAME: '{{NAME}}', GO: '{{GO}}'}, output: OUT}"
        self.add_worker("parent", f"  Before: {self._step('parent')}\n  Call: {call}\n  After: {self._step('end')}\n")

    def _step(self, what: str) -> str:
        if what == "nap":
            return "{block: tool-call, tool: nap}"
        return (_HOLD if what == "hold" else _NOTE) % {"notes": self.notes, "what": what}

    def _add_worker(self, slug: str, steps: list[str]) -> None:
        lines = [f"  Step{number}: {self._step(step)}\n" for number, step in enumerate(steps)]
        self.add_worker(slug, "".join(lines))

    def add_worker(self, slug: str, steps: str) -> None:
        home = self.folder / "workers" / slug
        home.mkdir(parents=True)
        tools = self.folder / "tools.py"
        (home / "worker.yaml").write_text(
            "input: {NAME: {default: x}, GO: {default: /}}\n"
            "tools:\n"
            f"  note: {{description: '', handler: '{tools}:note'}}\n"
            f"  hold: {{description: '', handler: '{tools}:hold', readOnly: true}}\n"
            f"  nap: {{description: '', handler: '{tools}:nap', readOnly: true}}\n"
            f"steps:\n{steps}"
        )

    # Processes.

    def _start(self, *words: str, **env: str) -> subprocess.Popen[bytes]:
        command = [SHOPFLOOR, *words, "--workers", str(self.folder / "workers")]
        with (self.folder / "hosts.err").open("ab") as errors:
            process = subprocess.Popen(
                command, env={**self.env, **env}, stdout=subprocess.PIPE, stderr=errors, cwd=self.folder
            )
        self.processes.append(process)
        return process

    def host(self, *words: str, **env: str) -> HostProcess:
        """Start a host, and return it when it is registered."""
        host = HostProcess(self._start("host", "--heartbeat", "0.5", *words, **env))
        wait_until(lambda: self.events("worker.registered", host.id), f"{host.id} to register")
        return host

    def up(self, *words: str) -> str:
        """Start a server, and return its URL when it is registered as a host."""
        process = self._start("up", "--port", "0", *words)
        assert process.stdout is not None
        line = process.stdout.readline().decode()
        assert line.startswith("Shopfloor is up: "), line
        before = len(self.events("worker.registered"))
        wait_until(lambda: before or self.events("worker.registered"), "the server to register")
        return line.split()[3].partition("/login")[0]

    def cli(self, *words: str) -> str:
        """Run a command to its end, and return its output."""
        ended = subprocess.run([SHOPFLOOR, *words], env=self.env, capture_output=True, text=True, cwd=self.folder)
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    def dispatch(self, worker: str, *names: str, labels: dict[str, str] | None = None, **given: str) -> list[str]:
        """Queue a run for each name, as `shopfloor dispatch` does, and return their ids."""

        async def dispatch() -> list[str]:
            workers = WorkerSettings.from_names([str(self.folder / "workers")])
            async with open_client(self.storage, workers=workers) as client:
                fields = {"worker": worker, "labels": labels or {}}
                bodies = [{**fields, "input": {"NAME": name, **given}} for name in names]
                return [(await client.api.post("/api/runs", body))["run_id"] for body in bodies]

        return anyio.run(dispatch, backend_options={"use_uvloop": True})

    def close(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.communicate()

    # What happened.

    def events(self, event_type: str | None = None, host: str | None = None) -> list[dict[str, Any]]:
        """Return the stored events of hosts, oldest first."""
        if not self.storage.database.exists():
            return []
        database = sqlite3.connect(self.storage.database, timeout=30)
        try:
            rows = database.execute("SELECT events FROM fleet_events WHERE stream = 'worker' ORDER BY last").fetchall()
        except sqlite3.OperationalError:
            # The first process creates the tables just now.
            return []
        finally:
            database.close()
        found = [json.loads(line) for (lines,) in rows for line in lines.split(b"\n")]
        return [
            event
            for event in found
            if event_type in (None, event["type"]) and host in (None, event["payload"]["workerId"])
        ]

    def log(self, run_id: str) -> list[Event]:
        path = self.storage.log_path(run_id)
        return [decode(entry.raw) for entry in read(path, on_problem=lambda problem: None)] if path.exists() else []

    def outcome(self, run_id: str) -> RunCompleted | None:
        last = [event.payload for event in self.log(run_id)[-1:]]
        return last[0] if last and isinstance(last[0], RunCompleted) else None

    def hosts_of(self, run_id: str) -> list[str]:
        """Return the hosts of the attempts of a run."""
        return [event.payload.host for event in self.log(run_id) if isinstance(event.payload, RunStarted)]

    def counts(self) -> Counter[str]:
        return Counter(self.notes.read_text().splitlines()) if self.notes.exists() else Counter()

    def wait_for_note(self, note: str) -> None:
        wait_until(lambda: self.counts()[note], f"{note!r} to be noted")

    def wait_for_outcome(self, run_id: str) -> RunCompleted:
        wait_until(lambda: self.outcome(run_id), f"the end of {run_id}")
        for problem in self.problems(run_id):
            raise AssertionError(problem)
        outcome = self.outcome(run_id)
        assert outcome is not None
        return outcome

    def problems(self, run_id: str) -> list[Any]:
        """Return what is wrong with a log. A log with two outcomes has a problem."""
        verifier = Verifier(run_id)
        lines = self.storage.log_path(run_id).read_bytes().splitlines(keepends=True)
        return [problem for line in lines for problem in verifier.line(line)]

    def children(self) -> list[str]:
        """Return the processes that runs have started and that still exist."""
        return [line for line in processes_with(self.mark) if SHOPFLOOR not in line and "reaper.py" not in line]


class HostProcess:
    """A process of `shopfloor host`."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        line = process.stdout.readline().decode()
        assert line.startswith("host "), line
        self.id = line.split()[1]
        self.process = process

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def wait(self) -> int:
        return self.process.wait(TIMEOUT_SECONDS)

    def output(self) -> list[str]:
        """Return the lines that an ended host printed after its start."""
        assert self.process.stdout is not None
        return self.process.stdout.read().decode().splitlines()[1:]


@contextmanager
def fleet(folder: Path) -> Iterator[Fleet]:
    """Yield a fleet whose processes end with the context."""
    fleet = Fleet(folder)
    try:
        yield fleet
    finally:
        fleet.close()
