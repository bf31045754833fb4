"""The driver: dispatches, answers and cancels runs, and records what the server has acknowledged."""

from __future__ import annotations

import contextlib
import itertools
import random
import subprocess
import threading
import time
from collections.abc import Callable
from typing import Any

import httpx
from tests.faults.harness.load import ANSWER, KINDS, pick
from tests.faults.harness.records import EndedRuns
from tests.faults.harness.server import SHOPFLOOR, Deployment, Server, Violation

PAUSE_SECONDS = 0.05
MAX_OPEN_RUNS = 60
"""The number of open runs above which no run is dispatched, because the queue would only grow."""
PLAIN_COMMANDS = 2
_NO_CONNECTION = (httpx.TransportError, httpx.TimeoutException)


class Ledger:
    """The requests, and those that were acknowledged with a 2xx."""

    def __init__(self) -> None:
        self.runs: dict[str, str] = {}
        """The runs of acknowledged dispatches, by key."""
        self.kinds: dict[str, str] = {}
        """The worker of every requested key, acknowledged or not."""
        self.answers: set[tuple[str, str]] = set()
        self.cancels: set[str] = set()
        self.refusals: dict[str, int] = {}
        """The number of other responses, by status and code."""
        self.violations: list[str] = []

    def acknowledge(self, key: str, run_id: str) -> None:
        if self.runs.setdefault(key, run_id) != run_id:
            self.violations.append(f"the idempotency key {key} gave the run {self.runs[key]}, then {run_id}")


DISPATCHERS = 2
"""How many threads dispatch runs."""


class Driver:
    """Threads that use the server like clients; they retry when the server is down or rejects a request."""

    def __init__(self, deployment: Deployment, server: Server, rng: random.Random, workers: list[str]) -> None:
        self.ledger = Ledger()
        self._site = deployment
        self._server = server
        self._rng = rng
        self._numbers = itertools.count()
        self._workers = workers
        self._dispatching = threading.Event()
        self._dispatching.set()
        self._dispatches = threading.Semaphore(DISPATCHERS)
        self._over = threading.Event()
        self._to_cancel: list[tuple[float, str]] = []
        self._cancelling = threading.Lock()
        self._plain_commands: list[subprocess.Popen[bytes]] = []
        self._failures: list[str] = []
        self._ended = EndedRuns(deployment.storage)
        loops = (
            *[self._dispatch] * DISPATCHERS,
            self._answer,
            self._cancel,
            self._watch_memory,
            self._run_plain_commands,
        )
        self._threads = [threading.Thread(target=self._loop, args=(loop,), daemon=True) for loop in loops]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop_dispatching(self) -> None:
        """Dispatch no more runs, and wait for dispatches that are under way: one may be repeated a second later."""
        self._dispatching.clear()
        for _ in range(DISPATCHERS):
            self._dispatches.acquire(timeout=60)
        self._dispatches.release(DISPATCHERS)

    def close(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(60)
        for process in self._plain_commands:
            process.wait(120)
        if self._failures:
            raise Violation("the driver failed: " + "; ".join(self._failures))

    def kill_plain_command(self) -> None:
        """Kill a process that executes a plain command."""
        for process in self._plain_commands:
            if process.poll() is None:
                process.kill()
                return

    def _loop(self, once: Callable[[httpx.Client], None]) -> None:
        client: httpx.Client | None = None
        address = None
        while not self._over.is_set():
            if client is None or address != self._server.address:
                address = self._server.address
                client = self._server.client()
            if client is None:
                time.sleep(PAUSE_SECONDS)
                continue
            try:
                once(client)
            except _NO_CONNECTION:
                time.sleep(PAUSE_SECONDS)
            except Exception as error:
                self._failures.append(f"{once.__name__}: {error!r}")
                raise
            time.sleep(PAUSE_SECONDS)

    def _post(self, client: httpx.Client, path: str, **body: Any) -> dict[str, Any] | None:
        answer = client.post(path, json=body)
        if answer.is_success:
            return answer.json()
        with contextlib.suppress(ValueError, KeyError, TypeError):
            code = f"{answer.status_code} {answer.json()['error']['code']}"
            self.ledger.refusals[code] = self.ledger.refusals.get(code, 0) + 1
        return None

    def _dispatch(self, client: httpx.Client) -> None:
        with self._dispatches:
            self._dispatch_one(client)

    def _dispatch_one(self, client: httpx.Client) -> None:
        if not self._dispatching.is_set() or self._open_runs() > MAX_OPEN_RUNS:
            return
        kind, arguments = pick(self._rng, self._workers)
        key = f"{kind.slug}-{next(self._numbers)}"
        self.ledger.kinds[key] = kind.slug
        body = {"worker": kind.slug, "input": {"KEY": key, **arguments}, "idempotency_key": key}
        made = None
        with contextlib.suppress(*_NO_CONNECTION):
            made = self._post(client, "/api/runs", **body)
        if self._rng.random() < (0.1 if made else 0.5):
            # A client without a response retries with the same key or gives up: at most one run either way.
            time.sleep(self._rng.random())
            again = self._server.client()
            if again is not None:
                with contextlib.suppress(*_NO_CONNECTION):
                    self._note(key, self._post(again, "/api/runs", **body))
        self._note(key, made)
        if made and kind.act == "cancel":
            with self._cancelling:
                self._to_cancel.append((time.monotonic() + self._rng.random() * 4, made["run_id"]))

    def _note(self, key: str, made: dict[str, Any] | None) -> None:
        if made:
            self.ledger.acknowledge(key, made["run_id"])

    def _open_runs(self) -> int:
        return len(set(self.ledger.runs.values()) - self._ended.ids())

    def _answer(self, client: httpx.Client) -> None:
        listed = client.get("/api/agents/workers", params={"status": "waiting", "limit": 100})
        if not listed.is_success:
            return
        for run in listed.json()["workers"]:
            if KINDS[run["name"]].act == "cancel" or run["name"] == "unheard":
                continue
            detail = client.get(
                "/api/agents/workers/detail", params={"agent_id": run["agent_id"], "worker_id": run["id"]}
            )
            if not detail.is_success:
                continue
            for call in detail.json()["awaits"]:
                if call["answered"] or call["run_id"] != run["id"]:
                    continue
                path = f"/api/runs/{run['id']}/answer"
                if self._post(client, path, call_id=call["call_id"], answer=ANSWER) is not None:
                    self.ledger.answers.add((run["id"], call["call_id"]))
        time.sleep(0.2)

    def _cancel(self, client: httpx.Client) -> None:
        with self._cancelling:
            due = [run_id for at, run_id in self._to_cancel if at < time.monotonic()]
        for run_id in due if self._dispatching.is_set() else [*due, *self._endless(client)]:
            answer = client.post(f"/api/runs/{run_id}/cancel", json={"reason": "as planned"})
            if answer.is_success:
                self.ledger.cancels.add(run_id)
            # A run that a fault has ended in the meantime cannot be cancelled.
            if answer.is_success or answer.status_code == 409:
                with self._cancelling:
                    self._to_cancel = [one for one in self._to_cancel if one[1] != run_id]

    def _endless(self, client: httpx.Client) -> list[str]:
        """Return the open runs that have to be cancelled, including those whose dispatch was never acknowledged."""
        found: list[str] = []
        for slug in (kind.slug for kind in KINDS.values() if kind.act == "cancel"):
            for status in ("queued", "running", "waiting"):
                listed = client.get("/api/agents/workers", params={"status": status, "worker": slug, "limit": 100})
                if listed.is_success:
                    found += [run["id"] for run in listed.json()["workers"] if run["parent_run_id"] is None]
        time.sleep(0.5)
        return found

    def _watch_memory(self, client: httpx.Client) -> None:
        self._server.record_peak_memory()
        time.sleep(0.2)

    def _run_plain_commands(self, client: httpx.Client) -> None:
        self._plain_commands = [process for process in self._plain_commands if process.poll() is None]
        if self._dispatching.is_set() and len(self._plain_commands) < PLAIN_COMMANDS:
            words = [SHOPFLOOR, "run", "-q", "--command", "seq 1 2000; sleep 0.5; (setsid sleep 300 &); echo end"]
            quiet = subprocess.DEVNULL
            self._plain_commands.append(
                subprocess.Popen(words, env=self._site.env, stdin=quiet, stdout=quiet, stderr=quiet)
            )
        time.sleep(2)
