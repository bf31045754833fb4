"""The installed server in a separate storage: started, signaled, monitored, restarted."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import httpx
from tests.cli.test_run import processes_with
from tests.faults.harness import load
from tests.login import token_of, url_of

from shopfloor.record import Storage

SHOPFLOOR = str(Path(sys.executable).parent / "shopfloor")
START_SECONDS = 120.0
STOP_SECONDS = 120.0
SLOTS = 8
LOW_WATER_BYTES = 4 * 2**20
OUT_OF_MEMORY_MESSAGE = "error[resource_limit]: the server ran out of memory while it started"
STDERR_TAIL_CHARS = 6_000


class Violation(Exception):
    """An invariant does not hold."""


def wait_for(true: Callable[[], object], what: str, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        if time.monotonic() > deadline:
            raise Violation(f"waited {seconds:g} s for {what}")
        time.sleep(0.05)


class Deployment:
    """A folder with workers, a storage on a small disk, and the token file on another disk."""

    def __init__(self, folder: Path, disk: Path, env: dict[str, str]) -> None:
        self.folder = folder
        self.disk = disk
        self.storage = Storage(disk / "storage")
        self.tokens = folder / "tokens"
        self.stderr = folder / "stderr"
        self.mark = f"harness-{os.getpid()}-{folder.name}"
        self.env = {
            **os.environ,
            **load.write_agent(folder / "bin"),
            **env,
            "SHOPFLOOR_STORAGE": str(self.storage.root),
            "SHOPFLOOR_DISK_LOW_WATER": str(LOW_WATER_BYTES),
            load.TOKENS: str(self.tokens),
            "SF_TEST": self.mark,
        }
        self.tokens.touch()
        load.write_workers(folder / "workers")

    def command(self, *words: str, seconds: float = 300) -> subprocess.CompletedProcess[str]:
        """Run the installed command to its end."""
        return subprocess.run(
            [SHOPFLOOR, *words], env=self.env, capture_output=True, text=True, timeout=seconds, cwd=self.folder
        )

    def children(self) -> list[str]:
        """Return the processes that the server or a plain command has started and that still exist."""
        return processes_with(self.mark)

    def stderr_tail(self) -> str:
        return self.stderr.read_text(errors="replace")[-STDERR_TAIL_CHARS:] if self.stderr.exists() else ""


class Server:
    """`shopfloor up`, in one process after another."""

    def __init__(self, deployment: Deployment) -> None:
        self._site = deployment
        self._process: subprocess.Popen[bytes] | None = None
        self.address: tuple[str, str] | None = None
        """The URL and the token while the server is up."""
        self.starts = 0
        self.peak_memory_bytes = 0

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def spawn(self) -> None:
        """Start the process without waiting until it serves requests."""
        words = ["up", "--port", "0", "--slots", str(SLOTS), "--workers", str(self._site.folder / "workers")]
        words += ["--workers", str(self._site.folder / "python_workers.py")]
        with self._site.stderr.open("ab") as stderr:
            stderr.write(f"--- start {self.starts}\n".encode())
            self._process = subprocess.Popen(
                [SHOPFLOOR, *words], env=self._site.env, stdout=subprocess.PIPE, stderr=stderr, cwd=self._site.folder
            )
        self.starts += 1

    def wait_until_up(self) -> bool:
        """Wait until the server serves requests; return False if it ended before."""
        assert self._process is not None
        assert self._process.stdout is not None
        stdout = self._process.stdout
        watchdog = threading.Timer(START_SECONDS, self._process.kill)
        watchdog.start()
        line = stdout.readline().decode()
        watchdog.cancel()
        if not line.startswith("Shopfloor is up: "):
            self._process.wait()
            return False
        self.address = url_of(line), token_of(self._site.storage)
        return True

    def start(self) -> None:
        """Start the server; raise an error if it does not come up."""
        self.spawn()
        if not self.wait_until_up():
            raise Violation("the server does not start")

    def has_run_out_of_memory(self) -> bool:
        """Return True if the server reported that it ran out of memory and exited, as its modules may be half loaded then."""
        return not self.is_alive() and OUT_OF_MEMORY_MESSAGE in self._site.stderr_tail()

    def ensure_up(self) -> None:
        if not self.is_alive():
            self.wait_for_exit()
            self.start()

    def signal(self, number: signal.Signals) -> None:
        self.record_peak_memory()
        with contextlib.suppress(ProcessLookupError):
            assert self._process is not None
            self._process.send_signal(number)

    def wait_for_exit(self, seconds: float = STOP_SECONDS) -> int:
        """Wait for the end of the process and return its exit code."""
        self.address = None
        assert self._process is not None
        try:
            code = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise Violation(f"the server did not end within {seconds:g} s") from None
        if self._process.stdout is not None:
            self._process.stdout.close()
        return code

    def record_peak_memory(self) -> None:
        """Record the peak memory of the process."""
        if self._process is None or self._process.poll() is not None:
            return
        with contextlib.suppress(OSError, ValueError):
            lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
            (peak,) = [line.split()[1] for line in lines if line.startswith("VmHWM")]
            self.peak_memory_bytes = max(self.peak_memory_bytes, int(peak) * 1024)

    def reaper_pids(self) -> list[int]:
        """Return the reapers, which end the children of a server that was killed."""
        with contextlib.suppress(OSError):
            children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
            return [int(pid) for pid in children if b"reaper.py" in Path(f"/proc/{pid}/cmdline").read_bytes()]
        return []

    def client(self) -> httpx.Client | None:
        """Return a client of the current server."""
        address = self.address
        if address is None:
            return None
        headers = {"Authorization": f"Bearer {address[1]}"}
        return httpx.Client(base_url=address[0], headers=headers, timeout=httpx.Timeout(20, connect=5))

    def close(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()
