"""The installed server with plugins, and the installed command beside it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from tests.cli.test_run import processes_with
from tests.login import token_of, url_of
from tests.plugins.plugin_process import PLUGINS
from tests.shorter_limits import shopfloor_with
from tests.timeouts import TIMEOUT_SECONDS, wait_until

from shopfloor.log import Event, RunCompleted, StepCompleted, ToolCall, Verifier, decode
from shopfloor.record import Storage, read

SHOPFLOOR = str(Path(sys.executable).parent / "shopfloor")
MISBEHAVING = "misbehaving"
ENDED = ("done", "failed", "cancelled")


class Site:
    """A project folder with plugins, and a storage, for one server after another.

    `limits` replace named limits of the server.
    """

    def __init__(self, folder: Path, env: dict[str, str] | None = None, **limits: float) -> None:
        self.folder = folder
        self.project = folder / "project"
        self.project.mkdir(parents=True)
        self.plugins = folder / "plugins"
        self.plugins.mkdir(mode=0o755)
        self.storage = Storage(folder / "storage")
        self.limits = limits
        self.mark = f"site-{os.getpid()}-{folder.name}"
        home = str(folder / "home")
        defaults = {**os.environ, "HOME": home, "XDG_DATA_HOME": home} if env is None else env
        self.env = {**defaults, "SHOPFLOOR_STORAGE": str(self.storage.root), "NO_COLOR": "1", "SF_TEST": self.mark}

    # Plugins.

    def add_template(self, name: str, copy_name: str | None = None) -> Path:
        """Copy one of the plugins that come with Shopfloor."""
        folder = self.plugins / (copy_name or name)
        shutil.copytree(PLUGINS / name, folder, ignore=shutil.ignore_patterns("jobs", "memory", "__pycache__"))
        return folder

    def add_misbehaving(self, name: str = MISBEHAVING, capabilities: tuple[str, ...] = ("worker",), **env: str) -> Path:
        folder = self.plugins / name
        folder.mkdir(mode=0o755)
        shutil.copy(Path(__file__).with_name("misbehaving.py"), folder)
        write_manifest(folder, name=name, capabilities=list(capabilities), env=env)
        return folder

    # Commands and servers.

    def run(self, *words: str, **options: Any) -> subprocess.CompletedProcess[str]:
        """Run the command to its end, in the project folder."""
        settings: dict[str, Any] = {"cwd": self.project, "env": self.env, "timeout": 2 * TIMEOUT_SECONDS, **options}
        return subprocess.run(self.command(*words), text=True, capture_output=True, check=False, **settings)

    def command(self, *words: str) -> list[str]:
        return [*shopfloor_with(self.limits), *words]

    @contextmanager
    def up(self, *words: str) -> Iterator[Server]:
        server = Server(self, *words)
        try:
            yield server
        finally:
            server.close()

    # The record.

    def events(self, run_id: str) -> list[Event]:
        path = self.storage.log_path(run_id)
        return [decode(entry.raw) for entry in read(path, on_problem=lambda _: None)] if path.exists() else []

    def payloads(self, run_id: str, kind: type[Any]) -> list[Any]:
        return [event.payload for event in self.events(run_id) if isinstance(event.payload, kind)]

    def outcome(self, run_id: str) -> RunCompleted:
        """Return the only outcome of a run whose log is valid."""
        verifier = Verifier(run_id)
        lines = self.storage.log_path(run_id).read_bytes().splitlines(keepends=True)
        assert [problem for line in lines for problem in verifier.line(line)] == []
        (outcome,) = self.payloads(run_id, RunCompleted)
        return outcome

    def notes(self, run_id: str, tool: str) -> list[dict[str, Any]]:
        """Return what the job of a run reported by one of its internal tools."""
        return [call.input for call in self.payloads(run_id, ToolCall) if call.name == tool]

    def job_id(self, run_id: str) -> str:
        """Return the id of the job, as the record has it."""
        sessions = [step.session for step in self.payloads(run_id, StepCompleted) if step.session is not None]
        return sessions[-1].session_id

    def processes(self) -> list[str]:
        """Return the command lines of all processes that belong to this site."""
        return [line for line in processes_with(self.mark) if "reaper.py" not in line]

    def wait_until_gone(self) -> None:
        """Wait until no process of this site is left, nor a lock on a plugin."""
        wait_until(lambda: self.processes() == [], f"the end of {self.processes()}")


class Server:
    """`shopfloor up` with the plugins of a site, in its project folder."""

    def __init__(self, site: Site, *words: str) -> None:
        self.site = site
        command = site.command("up", "--port", "0", "--plugins", str(site.plugins), *words)
        self.log = site.folder / "server.log"
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command, cwd=site.project, env=site.env, stdout=subprocess.PIPE, stderr=log, start_new_session=True
            )
        assert self.process.stdout is not None
        line = self.process.stdout.readline().decode()
        assert line.startswith("Shopfloor is up: "), line + self.log.read_text()
        self.url = url_of(line)
        self.token = token_of(site.storage)
        headers = {"Authorization": f"Bearer {self.token}"}
        self.http = httpx.Client(base_url=self.url, headers=headers, timeout=TIMEOUT_SECONDS, trust_env=False)

    def post(self, path: str, **body: Any) -> dict[str, Any]:
        answer = self.http.post(path, json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def dispatch(self, worker: str, task: str = "Find out.", **values: Any) -> str:
        return self.post("/api/runs", worker=worker, input={"task": task, **values})["run_id"]

    def misbehave(self, behavior: str, description: str | None = None, **config: Any) -> str:
        """Dispatch a job that behaves like this."""
        values = {"description": description or behavior, "config": {"behavior": behavior, **config}}
        return self.dispatch(MISBEHAVING, **values)

    def detail(self, run_id: str) -> dict[str, Any]:
        return self.http.get("/api/agents/workers/detail", params={"worker_id": run_id}).json()

    def wait_for(self, run_id: str, *statuses: str, seconds: float = TIMEOUT_SECONDS) -> dict[str, Any]:
        """Wait until the run has one of these statuses, by default until it has ended, and return it."""
        found: dict[str, Any] = {}

        def has_status() -> bool:
            found.update(self.detail(run_id))
            return found.get("status") in (statuses or ENDED)

        wait_until(has_status, f"{statuses or ENDED} of {run_id}", seconds)
        return found

    def plugin(self, name: str) -> dict[str, Any]:
        listed = self.http.get("/api/plugins").json()["plugins"]
        return next(each for each in listed if each["name"] == name)

    def wait_for_plugin(self, name: str, status: str = "ready") -> dict[str, Any]:
        wait_until(lambda: self.plugin(name)["status"] == status, f"{name} to be {status}: {self.plugin(name)}")
        return self.plugin(name)

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        self.process.communicate(timeout=TIMEOUT_SECONDS)
        return self.process.returncode

    def close(self) -> None:
        self.http.close()
        if self.process.poll() is None:
            self.stop()


def write_manifest(folder: Path, *, name: str, env: dict[str, str] | None = None, **changes: Any) -> Path:
    """Write the manifest of a plugin that `misbehaving.py` serves."""
    manifest = {
        "name": name,
        "displayName": name.title(),
        "description": "A plugin of the tests.",
        "version": "1.0.0",
        "transport": "http",
        "mcp": {"command": "${PYTHON}", "args": ["misbehaving.py", "${PORT}"], "env": env or {}},
        **changes,
    }
    path = folder / "guild-member.json"
    path.write_text(json.dumps(manifest))
    return path


def pids_in(folder: Path) -> list[int]:
    """Return the processes whose working folder is this one."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                state = (entry / "stat").read_bytes().rpartition(b")")[2].split()[0]
                if state != b"Z" and (entry / "cwd").readlink() == folder:
                    found.append(int(entry.name))
            except OSError:
                continue
    return found
