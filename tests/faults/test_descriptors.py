"""A server with limited open files and memory: clients cannot exhaust what runs need, low limits are reported."""

from __future__ import annotations

import contextlib
import os
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.cli.test_run import processes_with
from tests.login import token_of, url_of
from tests.timeouts import TIMEOUT_SECONDS, wait_until

from shopfloor.record import Storage

SHOPFLOOR = str(Path(sys.executable).parent / "shopfloor")
FILES = 1024
RUNS = 30
WORKER = """
input: {GO: {type: string}}
steps:
  Wait: {block: command, command: 'until [ -e {{GO}} ]; do sleep 0.2; done'}
  Say: {block: command, command: echo done}
"""


def limited(words: list[str], env: dict[str, str], **limits: int) -> subprocess.Popen[bytes]:
    """Return the installed command with hard limits: `n` open files, `v` kilobytes of address space."""
    set_limits = "; ".join(f"ulimit -{name} {value}" for name, value in limits.items())
    return subprocess.Popen(
        ["/bin/bash", "-c", f'{set_limits}; exec "$0" "$@"', SHOPFLOOR, *words],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


class Server:
    def __init__(self, folder: Path) -> None:
        self.storage = Storage(folder / "storage")
        self.mark = f"descriptors-{os.getpid()}"
        workers = folder / "workers" / "patient"
        workers.mkdir(parents=True)
        (workers / "worker.yaml").write_text(WORKER)
        self.env = {
            **os.environ,
            "SHOPFLOOR_STORAGE": str(self.storage.root),
            "SHOPFLOOR_HEADER_SECONDS": "3",
            "SF_TEST": self.mark,
        }
        for name in ("SHOPFLOOR_URL", "SHOPFLOOR_TOKEN"):
            self.env.pop(name, None)
        words = ["up", "--port", "0", "--slots", str(RUNS), "--workers", str(folder / "workers")]
        self.process = limited(words, self.env, n=FILES)
        assert self.process.stdout is not None
        line = self.process.stdout.readline().decode()
        assert line.startswith("Shopfloor is up: "), line + self.process.communicate()[1].decode()
        self.url = url_of(line)
        self.token = token_of(self.storage)
        self.http = httpx.Client(
            base_url=self.url, headers={"Authorization": f"Bearer {self.token}"}, timeout=TIMEOUT_SECONDS
        )

    def connect(self, data: bytes = b"") -> socket.socket:
        host, _, port = self.url.removeprefix("http://").partition(":")
        made = socket.create_connection((host, int(port)), timeout=TIMEOUT_SECONDS)
        if data:
            with contextlib.suppress(OSError):
                made.sendall(data)
        return made

    def dispatch(self, go: Path) -> str:
        return self.http.post("/api/runs", json={"worker": "patient", "input": {"GO": str(go)}}).json()["run_id"]

    def status(self, run_id: str) -> str:
        params = {"worker_id": run_id, "transcript": False}
        answer = self.http.get("/api/agents/workers/detail", params=params)
        assert answer.status_code == 200, answer.text
        return answer.json()["status"]

    def descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192) if hard > 0 else 8192, hard))
    server = Server(tmp_path_factory.mktemp("descriptors"))
    yield server
    server.http.close()
    server.process.terminate()
    server.process.communicate(timeout=TIMEOUT_SECONDS)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.req("SF-16")
def test_clients_that_take_every_connection_fail_no_run(up: Server, tmp_path: Path) -> None:
    go = tmp_path / "go"
    runs = [up.dispatch(go) for _ in range(RUNS)]
    wait_until(lambda: all(up.status(one) == "running" for one in runs), "all runs to run", TIMEOUT_SECONDS)
    head = f"Host: {up.url.removeprefix('http://')}\r\nAuthorization: Bearer {up.token}\r\n\r\n"
    streams = [up.connect(f"GET /api/runs/{runs[0]}/stream HTTP/1.1\r\n{head}".encode()) for _ in range(100)]
    for one in streams:
        assert one.recv(65536).startswith(b"HTTP/1.1 200 ")
    half_sent = [up.connect(b"GET / HTTP/1.1\r\nHost:") for _ in range(1100)]
    # The following steps start new processes while the server has its maximum of connections.
    go.touch()
    wait_until(lambda: all(up.status(one) == "done" for one in runs), "all runs to end well", TIMEOUT_SECONDS)
    for one in streams:
        data = b""
        while b"event: end" not in data:
            more = one.recv(65536)
            assert more, "a stream ended before its run did"
            data += more
        one.close()
    for one in half_sent:
        with contextlib.suppress(ConnectionError):
            while one.recv(65536):
                pass
        one.close()
    wait_until(lambda: up.descriptors() < 100, "the connections to be gone", TIMEOUT_SECONDS)


@pytest.mark.req("SF-16")
def test_a_process_without_free_descriptors_does_not_spin_and_recovers(up: Server) -> None:
    before = resource.prlimit(up.process.pid, resource.RLIMIT_NOFILE)
    waiting: list[socket.socket] = []
    try:
        resource.prlimit(up.process.pid, resource.RLIMIT_NOFILE, (up.descriptors(), before[1]))
        waiting += [up.connect(b"GET / HTTP/1.1\r\nHost:") for _ in range(20)]
        used = up.cpu_seconds()
        time.sleep(2)
        assert up.cpu_seconds() - used < 0.7
    finally:
        resource.prlimit(up.process.pid, resource.RLIMIT_NOFILE, before)
        for one in waiting:
            one.close()

    def answers() -> bool:
        with contextlib.suppress(httpx.HTTPError):
            return up.http.get("/api/health").status_code == 200
        return False

    wait_until(answers, "the server to answer again", TIMEOUT_SECONDS)


@pytest.mark.req("SF-16")
def test_the_soft_limit_is_raised_for_the_server_and_not_for_its_children(tmp_path: Path) -> None:
    env = {**os.environ, "SHOPFLOOR_STORAGE": str(tmp_path / "storage")}
    worker = tmp_path / "workers" / "limits" / "worker.yaml"
    worker.parent.mkdir(parents=True)
    worker.write_text(
        f"steps: {{Look: {{block: command, command: 'ulimit -Sn > {tmp_path}/limit; echo > {tmp_path}/done'}}}}"
    )
    server = limited(["up", "--port", "0", "--workers", str(worker.parents[1])], env, Sn=512)
    try:
        assert server.stdout is not None
        url = url_of(server.stdout.readline().decode())
        assert resource.prlimit(server.pid, resource.RLIMIT_NOFILE)[0] > 512
        headers = {"Authorization": f"Bearer {token_of(Storage(tmp_path / 'storage'))}"}
        answer = httpx.post(f"{url}/api/runs", headers=headers, json={"worker": "limits"}, timeout=TIMEOUT_SECONDS)
        assert answer.status_code == 200, answer.text
        wait_until((tmp_path / "done").exists, "the command to run", TIMEOUT_SECONDS)
        assert (tmp_path / "limit").read_text() == "512\n"
    finally:
        server.terminate()
        server.communicate(timeout=TIMEOUT_SECONDS)


@pytest.mark.req("SF-17")
@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        ({"n": 128}, "may open 128 files"),
        ({"v": 700_000}, "address space is limited to 716,800,000 bytes"),
        ({"v": 90_000}, "address space is limited to 92,160,000 bytes"),
    ],
    ids=str,
)
def test_a_limit_that_is_too_small_is_reported_and_nothing_starts(
    tmp_path: Path, limits: dict[str, int], reason: str
) -> None:
    env = {**os.environ, "SHOPFLOOR_STORAGE": str(tmp_path / "storage")}
    server = limited(["up", "--port", "0"], env, **limits)
    stdout, stderr = server.communicate(timeout=TIMEOUT_SECONDS)
    assert (server.returncode, stdout) == (8, b"")
    assert stderr.decode().startswith("error[resource_limit]: "), stderr.decode()
    assert reason in stderr.decode()
    assert "hint: " in stderr.decode()
    assert "Traceback" not in stderr.decode()


@pytest.mark.req("SF-18")
def test_a_cancelled_run_leaves_no_process_even_without_free_descriptors(up: Server, tmp_path: Path) -> None:
    mark = f"{up.mark}-left"
    # One process in another session, which only /proc can find, and one that ignores TERM.
    go = tmp_path / "go"
    script = tmp_path / "family.sh"
    script.write_text(
        f"export SF_TEST={mark}; trap '' TERM; setsid sleep 300 & (trap '' TERM; sleep 301) & touch {go}; wait"
    )
    worker = up.storage.root.parent / "workers" / "family" / "worker.yaml"
    worker.parent.mkdir()
    worker.write_text(f"steps: {{Leave: {{block: command, command: sh {script}}}}}\n")
    run_id = up.http.post("/api/runs", json={"worker": "family"}).json()["run_id"]
    wait_until(lambda: go.exists() and len(processes_with(mark)) >= 2, "the family to be there", TIMEOUT_SECONDS)
    before = resource.prlimit(up.process.pid, resource.RLIMIT_NOFILE)
    assert up.http.post(f"/api/runs/{run_id}/cancel").status_code == 200
    try:
        # They ignore TERM, so there is some time before they are killed.
        resource.prlimit(up.process.pid, resource.RLIMIT_NOFILE, (3, before[1]))
        wait_until(lambda: processes_with(mark) == [], "the family to be gone", TIMEOUT_SECONDS)
    finally:
        resource.prlimit(up.process.pid, resource.RLIMIT_NOFILE, before)
    wait_until(lambda: up.status(run_id) == "cancelled", "the run to be listed as cancelled", TIMEOUT_SECONDS)
