"""The installed `shopfloor up` over its own storage, with requests to it and commands beside it."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

import httpx
from tests.browser.workers import write_workers
from tests.login import token_of, url_of
from tests.timeouts import TIMEOUT_SECONDS, wait_until

from shopfloor.record import Storage

SHOPFLOOR = str(Path(sys.executable).parent / "shopfloor")
ENDED = {"done", "failed", "cancelled"}


class Server:
    """A server that tests start, kill, restart on the same port, and query over HTTP."""

    def __init__(self, folder: Path, **env: str) -> None:
        self.folder = folder
        self.storage = Storage(folder / "storage")
        self.env = {**os.environ, **env, "SHOPFLOOR_STORAGE": str(self.storage.root), "NO_COLOR": "1"}
        for name in ("SHOPFLOOR_URL", "SHOPFLOOR_TOKEN"):
            self.env.pop(name, None)
        write_workers(folder / "workers")
        self.port = 0
        self._http: httpx.Client | None = None
        self._commands: list[subprocess.Popen[bytes]] = []

    # The process

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Start the server; a restart uses the same port."""
        words = ["up", "--port", str(self.port), "--workers", str(self.folder / "workers")]
        self._errors = (self.folder / "server.err").open("ab")
        self.process = subprocess.Popen(
            [SHOPFLOOR, *words], env=self.env, cwd=self.folder, stdout=subprocess.PIPE, stderr=self._errors
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline().decode()
        assert line.startswith("Shopfloor is up: "), line + (self.folder / "server.err").read_text()
        self.url, token = url_of(line), token_of(self.storage)
        self.login = f"{self.url}/login?token={token}"
        self.port = int(self.url.rsplit(":", 1)[1])
        self._http = httpx.Client(
            base_url=self.url, headers={"Authorization": f"Bearer {token}"}, timeout=TIMEOUT_SECONDS
        )

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> None:
        if self._http is not None:
            self._http.close()
            self._http = None
            self.process.send_signal(number)
            self.process.communicate(timeout=TIMEOUT_SECONDS)
            self._errors.close()

    def close(self) -> None:
        for command in self._commands:
            command.kill()
            command.communicate()
        self.kill()

    # Requests

    @property
    def http(self) -> httpx.Client:
        assert self._http is not None, "the server does not run"
        return self._http

    def get(self, path: str, **params: Any) -> Any:
        answer = self.http.get(path, params=params)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def runs(self, **params: Any) -> list[dict[str, Any]]:
        return self.get("/api/agents/workers", **params)["workers"]

    def detail(self, run_id: str) -> dict[str, Any]:
        return self.get("/api/agents/workers/detail", worker_id=run_id, transcript=False)

    def dispatch(self, worker: str, *, owner: str | None = None, task: str | None = None, **arguments: Any) -> str:
        request = {"worker": worker, "input": arguments, "owner": owner, "task": task, "channel_id": "tests"}
        answer = self.http.post("/api/runs", json={name: value for name, value in request.items() if value is not None})
        assert answer.status_code == 200, answer.text
        return answer.json()["run_id"]

    def first_event(self, run_id: str) -> dict[str, Any]:
        return json.loads(self.log(run_id).split(b"\n")[0])

    def wait_for_status(self, run_id: str, *statuses: str, seconds: float = TIMEOUT_SECONDS) -> dict[str, Any]:
        """Wait until the run has one of these statuses, and return its details."""
        seen: list[dict[str, Any]] = []

        def condition() -> bool:
            answer = self.http.get("/api/agents/workers/detail", params={"worker_id": run_id, "transcript": False})
            if answer.status_code == 200:
                seen[:] = [answer.json()]
            return bool(seen) and seen[0]["status"] in statuses

        wait_until(condition, f"{run_id} to be {' or '.join(statuses)}", seconds)
        return seen[0]

    # Commands in other terminals

    def viewer_login(self, path: str = "/") -> str:
        """Return a link that logs in a new viewer."""
        words = (SHOPFLOOR, "tokens", "new", f"reader-{secrets.token_hex(4)}", "--role", "viewer")
        made = subprocess.run(words, env=self.env, check=True, capture_output=True, text=True, timeout=TIMEOUT_SECONDS)
        return f"{self.url}/login?token={made.stdout.strip().splitlines()[-1].split()[-1]}&next={quote(path)}"

    def command(self, line: str, *words: str) -> str:
        """Run `shopfloor run --command` to its end, and return the id of the run."""
        done = subprocess.run(
            [SHOPFLOOR, "run", "--command", line, *words],
            env=self.env,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
        run_id = self.storage.find(done.stderr.split()[-1].rsplit("/", 1)[-1])
        self.wait_for_status(run_id, *ENDED)
        return run_id

    def start_command(self, line: str, *words: str, owner: str) -> str:
        """Start a command in the background, and return the id of its run once the run is listed."""
        words = ("run", "-q", "--command", line, "--owner", owner, *words)
        before = {run["id"] for run in self.runs(agent_id=owner)}
        silent = subprocess.DEVNULL
        self._commands.append(subprocess.Popen([SHOPFLOOR, *words], env=self.env, cwd=self.folder, stdout=silent))
        found: list[str] = []

        def is_listed() -> bool:
            found[:] = [run["id"] for run in self.runs(agent_id=owner) if run["id"] not in before]
            return bool(found)

        wait_until(is_listed, f"the run of {line!r}")
        return found[0]

    def log(self, run_id: str) -> bytes:
        return self.storage.log_path(run_id).read_bytes()
