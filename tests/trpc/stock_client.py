"""The stock client of tRPC in a Node process, driven by lines of JSON."""

from __future__ import annotations

import fcntl
import json
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.timeouts import TIMEOUT_SECONDS
from tools.page import find_node, install_packages

FOLDER = Path(__file__).parent
Line = dict[str, Any]


def install_client() -> None:
    """Install the packages of the client, once for all test processes."""
    with (FOLDER / "package.json").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        install_packages(FOLDER, "installing the client of tRPC")


class StockClient:
    """A process with any number of connections and subscriptions."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.lines: list[Line] = []
        """All lines that were printed so far."""
        self._new: queue.SimpleQueue[Line | None] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()
        self.wait(lambda line: line["event"] == "ready")

    def _read(self) -> None:
        assert self.process.stdout is not None
        # The pipe is closed when the test ends, perhaps while this thread reads it.
        with suppress(ValueError):
            for line in self.process.stdout:
                self._new.put(json.loads(line))
        self._new.put(None)

    def _send(self, command: str, **fields: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"command": command, **fields}).encode() + b"\n")
        self.process.stdin.flush()

    def connect(self, url: str, token: str | None = None, name: str = "main", **more: Any) -> None:
        """Open a connection to the server at this URL."""
        address = f"{url.replace('http://', 'ws://')}/trpc"
        self._send("connect", name=name, url=address, **({} if token is None else {"token": token}), **more)

    def subscribe(self, name: str, procedure: str = "agentEvents", *, wait: bool = True, **more: Any) -> None:
        """Subscribe, and wait until the subscription has started."""
        self._send("subscribe", name=name, procedure=procedure, **more)
        if wait:
            self.wait(lambda line: line.get("name") == name and line["event"] in ("started", "error"))

    def unsubscribe(self, name: str) -> None:
        self._send("unsubscribe", name=name)
        self.wait(lambda line: line.get("name") == name and line["event"] == "unsubscribed")

    def query(self, name: str, path: str, connection: str = "main") -> Line:
        self._send("query", name=name, path=path, connection=connection)
        return self.wait(lambda line: line.get("name") == name)

    def close(self, name: str = "main") -> None:
        self._send("close", name=name)
        self.wait(lambda line: line.get("connection") == name and line["event"] == "closed")

    def wait(self, condition: Callable[[Line], bool], seconds: float = TIMEOUT_SECONDS) -> Line:
        """Return the first line, old or new, that meets a condition. Fails the test after `seconds`."""
        for line in self.lines:
            if condition(line):
                return line
        deadline = time.monotonic() + seconds
        while True:
            if condition(line := self._next(deadline)):
                return line

    def collect(self, name: str, count: int, seconds: float = TIMEOUT_SECONDS) -> list[Line]:
        """Return the events of a subscription once there are at least `count`."""
        deadline = time.monotonic() + seconds
        while len(found := self.events(name)) < count:
            self._next(deadline)
        return found

    def events(self, name: str) -> list[Line]:
        """Return the events of a subscription so far."""
        return [line["data"] for line in self.lines if line.get("name") == name and line["event"] == "data"]

    def error(self, name: str) -> Line:
        """Return the error of a subscription."""
        return self.wait(lambda line: line.get("name") == name and line["event"] == "error")

    def drain(self, seconds: float = 0.3) -> None:
        """Read what is printed within this time."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            try:
                line = self._new.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                return
            if line is not None:
                self.lines.append(line)

    def _next(self, deadline: float) -> Line:
        try:
            line = self._new.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            line = None
        assert line is not None, f"the client printed nothing more after {self.lines[-3:]}"[:2_000]
        self.lines.append(line)
        return line

    def pause(self) -> None:
        """Stop reading, as a client that hangs."""
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.process.send_signal(signal.SIGCONT)


@contextmanager
def stock_client() -> Generator[StockClient]:
    """Start a client process, which ends with the context."""
    install_client()
    command = [str(find_node()), "client.mjs"]
    with subprocess.Popen(command, cwd=FOLDER, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            yield StockClient(process)
        finally:
            process.kill()
