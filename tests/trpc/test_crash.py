"""A server that is killed in a stream of runs: a subscriber that resumes gets every event of every log once."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.timeouts import TIMEOUT_SECONDS, wait_until
from tests.trpc.stock_client import stock_client

from shopfloor.client import Address, find_storage_server
from shopfloor.log import decode
from shopfloor.record import Storage, read
from shopfloor.views import FleetEventState, encode_fleet_event, fleet_event_step

RECORDING = Path(__file__).parents[1] / "providers" / "fixtures" / "claude-code" / "bash.jsonl"
AGENT = f"""#!/bin/sh
case "$1" in --version) echo '2.1.325 (Claude Code)'; exit 0;; esac
while read -r line; do echo "$line"; sleep 0.02; done < {RECORDING}
"""
RUNS = 40
KILLS = 3


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """An environment in which a program that prints a recording replaces Claude Code."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "claude").write_text(AGENT)
    (folder / "claude").chmod(0o755)
    return {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "SHOPFLOOR_STORAGE": str(tmp_path / "storage")}


@contextmanager
def running_server(env: dict[str, str], port: int) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "shopfloor", "up", "--port", str(port), "--slots", "8"]
    process = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(TIMEOUT_SECONDS)


def wait_for_server(storage: Storage, process: subprocess.Popen[bytes]) -> Address:
    def address() -> Address | None:
        assert process.poll() is None, "the server did not start"
        found = find_storage_server(storage)
        return found if found is not None and found.pid == process.pid else None

    wait_until(address, "the server")
    found = address()
    assert found is not None
    return found


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def events_of_logs(storage: Storage) -> dict[str, list[str]]:
    """Return the events that each log gives, as JSON."""
    found: dict[str, list[str]] = {}
    for path in storage.transcripts.glob("*.jsonl"):
        state, bodies = FleetEventState(), list[str]()
        for entry in read(path):
            state, events = fleet_event_step(state, decode(entry.raw))
            bodies += [canonical(json.loads(encode_fleet_event(event))) for event in events]
        if bodies:
            found[path.stem] = bodies
    return found


def canonical(event: Any) -> str:
    return json.dumps(event, sort_keys=True)


def by_run(events: list[dict[str, Any]]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for event in events:
        found[event["payload"]["taskId"]].append(canonical(event))
    return dict(found)


def dispatch(address: Address, count: int) -> None:
    headers = {"Authorization": f"Bearer {address.token}"}
    with httpx.Client(base_url=address.url, headers=headers, timeout=TIMEOUT_SECONDS, trust_env=False) as http:
        for _ in range(count):
            http.post("/api/runs", json={"worker": "claude-code", "input": {"prompt": "say hello"}}).raise_for_status()


def open_runs(address: Address) -> int:
    headers = {"Authorization": f"Bearer {address.token}"}
    with httpx.Client(base_url=address.url, headers=headers, timeout=TIMEOUT_SECONDS, trust_env=False) as http:
        runs = http.get("/api/agents/workers", params={"limit": 500}).json()["workers"]
        return sum(run["completed_at"] is None for run in runs)


@pytest.mark.req("FE-42", "FE-50")
def test_after_kills_a_subscriber_has_every_event_once(env: dict[str, str], tmp_path: Path) -> None:
    storage, port, received = Storage(tmp_path / "storage"), free_port(), 0
    with stock_client() as client:
        for kill in range(KILLS):
            with running_server(env, port) as process:
                address = wait_for_server(storage, process)
                if not kill:
                    client.connect(address.url, address.token)
                    client.subscribe("all", input={"lastEventId": "0"})
                    dispatch(address, RUNS)
                received = len(client.collect("all", received + 20))
                process.kill()
        with running_server(env, port) as process:
            address = wait_for_server(storage, process)
            wait_until(lambda: not open_runs(address), "the runs to end", 4 * TIMEOUT_SECONDS)
            expected = events_of_logs(storage)
            client.collect("all", sum(map(len, expected.values())))
            client.drain(1.0)
    assert by_run(client.events("all")) == expected
    assert len(expected) == RUNS


@pytest.mark.req("FE-46")
def test_after_a_rebuild_a_subscriber_continues_without_repetition(env: dict[str, str], tmp_path: Path) -> None:
    storage, port = Storage(tmp_path / "storage"), free_port()
    with stock_client() as client:
        with running_server(env, port) as process:
            address = wait_for_server(storage, process)
            client.connect(address.url, address.token)
            client.subscribe("all", input={"lastEventId": "0"})
            dispatch(address, 3)
            wait_until(lambda: not open_runs(address), "the runs to end")
            before = sum(map(len, events_of_logs(storage).values()))
            client.collect("all", before)
        rebuilt = subprocess.run(
            [sys.executable, "-m", "shopfloor", "rebuild"], env=env, check=True, capture_output=True, text=True
        )
        assert rebuilt.stdout.startswith("3 runs from")
        with running_server(env, port) as process:
            address = wait_for_server(storage, process)
            dispatch(address, 1)
            wait_until(lambda: not open_runs(address), "the run to end")
            expected = events_of_logs(storage)
            client.collect("all", sum(map(len, expected.values())))
            client.drain(1.0)
    assert by_run(client.events("all")) == expected
    assert sum(map(len, expected.values())) > before
