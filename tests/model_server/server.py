"""Run the model server in a thread of the tests, or in a process that can be killed; and a client of it."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import httpx
import msgspec
import uvicorn
from tests.model_server.app import ModelServerApp
from tests.model_server.script import RecordedRequest, Script, Turn
from tests.timeouts import TIMEOUT_SECONDS

KEY = "sk-scripted"
_OPEN_ENDS = ("not received", "open")


class ModelServer:
    """A running server: sets its script and reads its requests."""

    def __init__(self, url: str) -> None:
        self.url = url

    def say(self, *turns: Turn | dict[str, Any]) -> None:
        """Set the script. The server forgets all requests so far."""
        script = {"turns": [msgspec.to_builtins(turn) for turn in turns]}
        httpx.put(f"{self.url}/_script", content=json.dumps(script), timeout=TIMEOUT_SECONDS).raise_for_status()

    def requests(self) -> list[RecordedRequest]:
        response = httpx.get(f"{self.url}/_requests", timeout=TIMEOUT_SECONDS).raise_for_status()
        return msgspec.json.decode(response.content, type=list[RecordedRequest])

    def wait_for_end(self, n: int = 0, seconds: float = TIMEOUT_SECONDS) -> str:
        """Wait until the n-th request has arrived and ended, and return how it ended."""
        deadline = time.monotonic() + seconds
        while (
            end := next(islice((request.end for request in self.requests()), n, None), "not received")
        ) in _OPEN_ENDS:
            if time.monotonic() >= deadline:
                break
            time.sleep(0.02)
        return end

    def scenario(self, agent: str, name: str, key: str) -> ModelServer:
        """The same server for one run of an agent: `url` is its base URL, `requests` returns its requests."""
        return ModelServer(f"{self.url}/s/{agent}/{name}/{key}")

    @property
    def env(self) -> dict[str, str]:
        """The environment in which every provider is this server."""
        return {
            "ANTHROPIC_BASE_URL": self.url,
            "ANTHROPIC_API_KEY": KEY,
            "OPENAI_BASE_URL": f"{self.url}/v1",
            "OPENAI_API_KEY": KEY,
            "GOOGLE_GEMINI_BASE_URL": self.url,
            "GEMINI_API_KEY": KEY,
            "SHOPFLOOR_MODEL_LOCAL_URL": f"{self.url}/v1",
        }


@contextlib.contextmanager
def in_thread(turns: Sequence[Turn] = ()) -> Iterator[ModelServer]:
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    server = uvicorn.Server(configuration(Script(turns=list(turns))))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        while not server.started:
            time.sleep(0.005)
        yield ModelServer(f"http://127.0.0.1:{listener.getsockname()[1]}")
    finally:
        server.force_exit = server.should_exit = True
        thread.join(timeout=TIMEOUT_SECONDS)
        listener.close()


@contextlib.contextmanager
def in_process(folder: Path, turns: Sequence[Turn] = ()) -> Iterator[ModelServer]:
    """Run the server in a separate process, with its files in `folder`."""
    script, port_file = folder / "model-script.json", folder / "model-port"
    script.write_bytes(msgspec.json.encode(Script(turns=list(turns))))
    port_file.unlink(missing_ok=True)
    command = [sys.executable, "-m", "tests.model_server", "--script", str(script), "--port-file", str(port_file)]
    with subprocess.Popen(command, cwd=Path(__file__).parents[2]) as process:
        try:
            deadline = time.monotonic() + TIMEOUT_SECONDS
            while not port_file.exists() and time.monotonic() < deadline and process.poll() is None:
                time.sleep(0.02)
            yield ModelServer(f"http://127.0.0.1:{port_file.read_text()}")
        finally:
            process.kill()


def configuration(script: Script) -> uvicorn.Config:
    # Dropping a connection on purpose raises an exception inside the app; its traceback would only be noise.
    return uvicorn.Config(
        ModelServerApp(script), log_config=None, log_level="critical", access_log=False, lifespan="off", ws="none"
    )
