"""A plugin as a host starts it, and a plain JSON-RPC client."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx
from tests.agents.agent_environment import agent_environment
from tests.model_server.server import ModelServer
from tests.timeouts import TIMEOUT_SECONDS, wait_until

PLUGINS = Path(__file__).parents[2] / "plugins"
SECRET = "a-secret-of-the-tests"


class RpcFailure(Exception):
    """An error that the plugin answered."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class PluginProcess:
    """A plugin in a folder of its own, started and stopped as often as a test wants."""

    def __init__(self, folder: Path, env: dict[str, str]) -> None:
        self.folder = folder
        self.env = env
        self.process: subprocess.Popen[bytes] | None = None
        self.url = ""

    @classmethod
    def copy_of(cls, name: str, tmp_path: Path, model: ModelServer, *, copy_name: str | None = None) -> PluginProcess:
        folder = tmp_path / "plugins" / (copy_name or name)
        ignored = shutil.ignore_patterns("jobs", "memory", "__pycache__", "tests")
        shutil.copytree(PLUGINS / name, folder, ignore=ignored)
        env = agent_environment("claude-code", model.url, tmp_path / "home")
        return cls(folder, {**env, "SHOPFLOOR_PLUGIN_SECRET": SECRET})

    def start(self) -> PluginProcess:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        manifest = json.loads((self.folder / "guild-member.json").read_text())["mcp"]
        known: dict[str, str] = {"${PYTHON}": sys.executable, "${PORT}": str(port)}
        words: list[str] = [manifest["command"], *manifest["args"]]
        command = [known.get(word, word) for word in words]
        self.process = subprocess.Popen(command, cwd=self.folder, env=self.env)
        self.url = f"http://127.0.0.1:{port}/mcp"
        wait_until(self._answers, "the plugin")
        return self

    def _answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, f"the plugin ended with {self.process.returncode}"
        try:
            return "serverInfo" in self.call("initialize")
        except httpx.TransportError:
            return False

    def call(self, method: str, **params: Any) -> Any:
        """Call a method and return its result. Raises `RpcFailure` for an error."""
        answer = self.post({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).json()
        assert (answer["jsonrpc"], answer["id"]) == ("2.0", 1)
        if "error" in answer:
            raise RpcFailure(answer["error"]["code"], answer["error"]["message"])
        return answer["result"]

    def post(self, body: Any, secret: str | None = SECRET) -> httpx.Response:
        headers = {"MCP-Protocol-Version": "2025-06-18", **({"Authorization": f"Bearer {secret}"} if secret else {})}
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return httpx.post(self.url, content=content, headers=headers, timeout=TIMEOUT_SECONDS)

    def dispatch(self, task: str = "Find out.", description: str = "A question", **config: Any) -> str:
        return self.call("worker/dispatch", description=description, task=task, config=config)["jobId"]

    def wait_for(self, job_id: str) -> dict[str, Any]:
        """Wait until a job has ended, and return its status."""
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while (status := self.call("worker/status", jobId=job_id))["status"] == "running":
            assert time.monotonic() < deadline, status
            time.sleep(0.05)
        return status

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            self.process.wait(TIMEOUT_SECONDS)

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait(TIMEOUT_SECONDS)
