"""Plugins: the time to dispatch and to list jobs of the researcher, and the memory of the runs whose jobs it has.

The agents of the researcher are not started: its copy allows none at a time, so every job waits for its turn, as it
does while others work. `python -m benchmarks.plugins echo <port>` is the peer, `… host <folder>` a host in a separate
process.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from time import monotonic, perf_counter, sleep
from typing import Any

import anyio
import httpx

from benchmarks.harness import Result, interleave, log_progress, scratch, seconds_of
from benchmarks.running_engine import (
    NOTHING,
    HostCommand,
    execute_commands,
    host_process,
    running_engine,
    write_workers,
)
from benchmarks.server_process import terminate_on_exit
from shopfloor.adapters.limits import PLUGIN_READY_SECONDS
from shopfloor.record import Storage
from shopfloor.wiring import plugin_templates

_RESEARCHER = "researcher"
_SECRET = "benchmark"
_TIMEOUT_SECONDS = 120.0
_LIST_LIMIT_SECONDS = 0.2
_RUN_LIMIT_BYTES = 100 * 1024
_SLOTS = 2
_SETTLE_SECONDS = 5.0


def _copy_researcher(folder: Path, jobs: int) -> Path:
    """Copy the researcher without turns for agents, and with this many jobs that have ended."""
    plugin = folder / _RESEARCHER
    shutil.copytree(plugin_templates()[_RESEARCHER], plugin, ignore=shutil.ignore_patterns("jobs", "memory"))
    settings = plugin / "plugin" / "settings.py"
    text = settings.read_text()
    if "CONCURRENT_JOBS = 4" not in text:
        raise RuntimeError("the researcher has no CONCURRENT_JOBS to change")
    settings.write_text(text.replace("CONCURRENT_JOBS = 4", "CONCURRENT_JOBS = 0"))
    for number in range(jobs):
        _write_job(plugin / "jobs" / str(uuid.UUID(int=number)), number)
    return plugin


def _write_job(folder: Path, number: int) -> None:
    (folder / "artifacts").mkdir(parents=True)
    time = "2026-01-01T00:00:00.000Z"
    meta = {"id": folder.name, "status": "completed", "description": f"Question {number}", "startedAt": time}
    (folder / "meta.json").write_text(json.dumps({**meta, "completedAt": time, "error": None, "costUsd": 0.01}))
    (folder / "status.md").write_text(f"I have read {number} sources and compare them now.")
    (folder / "result.md").write_text("# Report")


class _Plugin:
    """A JSON-RPC client of a process that serves POST /mcp."""

    def __init__(self, port: int) -> None:
        headers = {"Authorization": f"Bearer {_SECRET}", "MCP-Protocol-Version": "2025-06-18"}
        self._http = httpx.Client(headers=headers, timeout=_TIMEOUT_SECONDS, trust_env=False)
        self._url = f"http://127.0.0.1:{port}/mcp"

    def call(self, method: str, **params: Any) -> Any:
        response = self._http.post(self._url, json={"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
        return response.json()["result"]

    def dispatch(self) -> None:
        self.call("worker/dispatch", description="A question", task="What is it? " * 50, config={"max_turns": 10})

    def wait_until_ready(self, process: subprocess.Popen[bytes]) -> None:
        deadline = monotonic() + _TIMEOUT_SECONDS
        while True:
            try:
                self.call("initialize")
            except httpx.TransportError as error:
                if process.poll() is not None or monotonic() > deadline:
                    raise RuntimeError(f"the plugin did not start: exit code {process.poll()}") from error
                sleep(0.01)
            else:
                return


@contextmanager
def _process(cwd: Path, *words: str) -> Iterator[tuple[_Plugin, float]]:
    """Run a Python process that serves POST /mcp on a free port; yield its client and the seconds until it answered."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    command = [sys.executable, *words, str(port)]
    env = {**os.environ, "SHOPFLOOR_PLUGIN_SECRET": _SECRET}
    started_at = perf_counter()
    with terminate_on_exit(subprocess.Popen(command, cwd=cwd, env=env)) as process:
        plugin = _Plugin(port)
        plugin.wait_until_ready(process)
        yield plugin, perf_counter() - started_at


def _researcher(folder: Path, jobs: int) -> AbstractContextManager[tuple[_Plugin, float]]:
    return _process(_copy_researcher(folder, jobs), "-m", "plugin", "--port")


def _percentiles(call: Callable[[], None], count: int) -> tuple[float, float]:
    """Return p50 and p99 of the seconds of a call."""
    found = sorted(seconds_of(call) for _ in range(count))
    return found[count // 2], found[count * 99 // 100]


def _dispatch(folder: Path, *, jobs: int, rounds: int, calls: int) -> list[Result]:
    with (
        _researcher(folder / "many", jobs) as (many, _),
        _researcher(folder / "none", 0) as (none, _),
        _process(Path(__file__).parents[1], "-m", "benchmarks.plugins", "echo") as (echo, _),
    ):
        # The warm-up of `interleave` is the first measurement of each.
        found: dict[str, list[float]] = {"p50": [], "p99": []}

        def ours() -> float:
            p50, p99 = _percentiles(many.dispatch, calls)
            found["p50"].append(p50)
            found["p99"].append(p99)
            return p50

        against_echo = interleave(ours, lambda: _percentiles(echo.dispatch, calls)[0], rounds)
        against_empty = interleave(ours, lambda: _percentiles(none.dispatch, calls)[0], rounds)
    p50, p99 = statistics.median(found["p50"]), statistics.median(found["p99"])
    measure = f"`worker/dispatch` with {jobs:,} jobs in the folder, p50 (p99 {p99 * 1000:.1f} ms)"
    return [
        Result(
            measure=measure,
            ours=f"{p50 * 1000:.2f} ms",
            against=f"an echo of the same stack: {against_echo.theirs * 1000:.2f} ms",
            ratio=against_echo.ratio,
        ),
        Result(
            measure="the same",
            ours=f"{against_empty.ours * 1000:.2f} ms",
            against=f"the same without jobs: {against_empty.theirs * 1000:.2f} ms",
            ratio=against_empty.ratio,
        ),
    ]


def _list(folder: Path, jobs: int) -> list[Result]:
    with _researcher(folder, jobs) as (plugin, start):
        if len(plugin.call("worker/list", detail="detailed")["jobs"]) != jobs:
            raise RuntimeError("the plugin does not list all jobs")
        p50, p99 = _percentiles(lambda: plugin.call("worker/list", detail="detailed"), 50)
    return [
        Result(
            measure=f"`worker/list` detailed over {jobs:,} jobs, p50 (p99 {p99 * 1000:.0f} ms)",
            ours=f"{p50 * 1000:.0f} ms",
            against=f"{_LIST_LIMIT_SECONDS * 1000:.0f} ms",
            ratio=_LIST_LIMIT_SECONDS / p50,
            floor=1.0,
        ),
        Result(
            measure=f"from the start of the plugin to its first answer, {jobs:,} jobs in the folder",
            ours=f"{start:.2f} s",
            against=f"the limit of the handshake: {PLUGIN_READY_SECONDS:g} s",
            ratio=PLUGIN_READY_SECONDS / start,
            floor=1.0,
        ),
    ]


def _runs(folder: Path, count: int) -> list[Result]:
    with host_process("benchmarks.plugins", "host", str(folder)) as execute:
        execute("work", 20)
        alone = statistics.median(execute("nothing", 20) for _ in range(5))
        before = execute("rss", 0)
        execute("work", count)
        per_run = (execute("rss", 0) - before) / count
        beside = statistics.median(execute("nothing", 20) for _ in range(5))
    return [
        Result(
            measure=f"memory of the host for a run whose plugin works, {count} of them",
            ours=f"{per_run / 1024:.1f} KB",
            against=f"{_RUN_LIMIT_BYTES / 1024:.0f} KB",
            ratio=_RUN_LIMIT_BYTES / max(per_run, 1.0),
            floor=1.0,
        ),
        Result(
            measure=f"20 runs that do nothing, {_SLOTS} slots, beside these {count}",
            ours=f"{beside * 1000:.0f} ms",
            against=f"the same beside 20 of them: {alone * 1000:.0f} ms",
            ratio=alone / beside,
        ),
    ]


async def _host(folder: Path) -> None:
    plugins = folder / "plugins"
    plugins.mkdir(parents=True, mode=0o755)
    jobs = _copy_researcher(plugins, 0) / "jobs"
    storage, workers = Storage(folder / "storage"), write_workers(folder / "workers")
    async with running_engine(storage, workers, plugins=plugins, slots=_SLOTS) as engine:

        async def work(count: int) -> float:
            wanted = len(list(jobs.glob("*"))) + count
            seconds = await engine.add(_RESEARCHER, count, "running", task="What is it?")
            with anyio.fail_after(_TIMEOUT_SECONDS):
                while len(list(jobs.glob("*"))) < wanted:  # noqa: ASYNC110 - another process creates the folders
                    await anyio.sleep(0.1)
            # Until the polls of the new jobs are as rare as they become.
            await anyio.sleep(_SETTLE_SECONDS)
            return seconds

        commands: dict[str, HostCommand] = {
            "work": work,
            "nothing": lambda count: engine.add(NOTHING, count, "completed"),
        }
        await execute_commands(commands)


def _echo(port: int) -> None:
    """Serve POST /mcp with the stack of the researcher: decode the request, answer with a result."""
    import uvicorn
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import JSONResponse, Response
    from starlette.routing import Route

    async def answer(request: Request) -> Response:
        body = json.loads(await request.body())
        return JSONResponse({"jsonrpc": "2.0", "id": body["id"], "result": {"jobId": "echo"}})

    app = Starlette(routes=[Route("/mcp", answer, methods=["POST"])])
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="warning", access_log=False, lifespan="off")


def run(*, quick: bool) -> list[Result]:
    jobs, listed, runs = (20, 100, 20) if quick else (1_000, 10_000, 200)
    rounds, calls = (1, 5) if quick else (5, 100)
    with scratch() as folder:
        log_progress(f"dispatches with {jobs:,} jobs")
        dispatched = _dispatch(folder / "dispatch", jobs=jobs, rounds=rounds, calls=calls)
        log_progress(f"lists of {listed:,} jobs")
        lists = _list(folder / "list", listed)
        log_progress(f"{runs} runs whose plugin works")
        return [*dispatched, *lists, *_runs(folder / "runs", runs)]


if __name__ == "__main__":
    if sys.argv[1] == "echo":
        _echo(int(sys.argv[2]))
    else:
        anyio.run(_host, Path(sys.argv[2]), backend_options={"use_uvloop": True})
