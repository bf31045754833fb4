"""A command in a pseudo-terminal, as a user sees it."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import time

from tests.cli.conftest import SHOPFLOOR
from tests.timeouts import TIMEOUT_SECONDS


class Terminal:
    def __init__(
        self, *words: str, env: dict[str, str], stdout: int | None = None, cwd: os.PathLike[str] | None = None
    ) -> None:
        self._side, inside = pty.openpty()
        self.process = subprocess.Popen(
            [SHOPFLOOR, *words],
            stdin=inside,
            stdout=inside if stdout is None else stdout,
            stderr=inside,
            env={**env, "TERM": "xterm"},
            start_new_session=True,
            cwd=cwd,
        )
        os.close(inside)
        self.shown = ""

    def wait_for(self, text: str, seconds: float = TIMEOUT_SECONDS) -> None:
        deadline = time.monotonic() + seconds
        while text not in self.shown:
            assert time.monotonic() < deadline, f"waited {seconds} s for {text!r} in {self.shown!r}"
            self._read()

    def type(self, text: str) -> None:
        os.write(self._side, text.encode())

    def end(self, seconds: float = TIMEOUT_SECONDS) -> int:
        deadline = time.monotonic() + seconds
        while self._read() and time.monotonic() < deadline:
            pass
        return self.process.wait(seconds)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._side)

    def _read(self) -> bool:
        """Whether the terminal still has a writer."""
        ready, _, _ = select.select([self._side], [], [], 0.1)
        if not ready:
            return self.process.poll() is None
        try:
            data = os.read(self._side, 65536)
        except OSError:
            return False
        self.shown += data.decode("utf-8", "replace")
        return bool(data)
