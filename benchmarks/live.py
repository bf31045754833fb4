"""Latency of live events: from append to client over HTTP, from the server's process and from another process."""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import anyio
import anyio.to_thread
import msgspec

from benchmarks.harness import Result, log_progress, scratch
from benchmarks.sample import STEP, line, message, started
from benchmarks.server_process import terminate_on_exit
from benchmarks.sse import END, ClientTask, Report, read_line, read_report, start_clients
from shopfloor.adapters.local import LocalLogs
from shopfloor.log import RunCompleted, new_run_id
from shopfloor.ports import Bus
from shopfloor.record import Storage
from shopfloor.server import create_app, serve
from shopfloor.server.sse import log_frame
from shopfloor.wiring import access_control, local_backend

CLIENTS = 100
EVENTS_PER_SECOND = 20
_SETTLE_SECONDS = 0.5
_P50_SECONDS = 0.002
_P99_SECONDS = 0.010
_OTHER_P50_SECONDS = 0.010


class Task(msgspec.Struct, frozen=True):
    """What a child process serves or writes."""

    storage: str
    run_id: str
    events: int


class Latency(msgspec.Struct, frozen=True):
    """Latency in seconds."""

    p50: float
    p99: float


# The writers: each first waits for a line on its standard input.


def _timestamped_text() -> str:
    return f"This was written at {time.time_ns()}."


async def _wait_for_go() -> None:
    print("ready", flush=True)
    await anyio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True)


async def _sleep_until_due(started_at: float, number: int) -> None:
    await anyio.sleep(max(0.0, started_at + number / EVENTS_PER_SECOND - time.monotonic()))


async def _write(task: Task, bus: Bus | None = None) -> None:
    storage = Storage(Path(task.storage))
    async with LocalLogs(storage, bus=bus).open(task.run_id) as log:
        await log.append(started())
        await _wait_for_go()
        started_at = time.monotonic()
        for number in range(task.events):
            await _sleep_until_due(started_at, number)
            await log.append(message(_timestamped_text()), path=STEP)
        await log.append(RunCompleted(name="bench", kind="agent", status="completed"))


# Ours: the server of a storage. Its process also writes the log.


async def _serve(task: Task) -> None:
    storage = Storage(Path(task.storage))
    token = await access_control(storage).admin_token()
    async with local_backend(storage, is_server=True) as backend, anyio.create_task_group() as tasks:
        tasks.start_soon(backend.ingest.run)
        if task.events:
            tasks.start_soon(_write, task, backend.bus)

        def ready(url: str) -> None:
            print(url.rpartition(":")[2], token, flush=True)

        await serve(create_app(backend.services()), "127.0.0.1", 0, ready)
        tasks.cancel_scope.cancel()


# The peer: the same server software, with an app that has a queue of bytes for each client.


class _PushApp:
    def __init__(self) -> None:
        self.state = SimpleNamespace(shutdown_event=anyio.Event())
        self._queues: list[asyncio.Queue[bytes | None]] = []

    def push(self, data: bytes | None) -> None:
        for queue in self._queues:
            queue.put_nowait(data)

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            for _ in ("startup", "shutdown"):
                await send({"type": f"{(await receive())['type']}.complete"})
            return
        headers = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-cache, no-transform")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._queues.append(queue)
        while (data := await queue.get()) is not None:
            await send({"type": "http.response.body", "body": data, "more_body": True})
        await send({"type": "http.response.body", "body": END, "more_body": False})


async def _push(app: _PushApp, task: Task) -> None:
    await _wait_for_go()
    started_at = time.monotonic()
    for number in range(task.events):
        await _sleep_until_due(started_at, number)
        app.push(log_frame(number, line(task.run_id, message(_timestamped_text()), number).rstrip()))
    app.push(None)


async def _serve_push_app(task: Task) -> None:
    app = _PushApp()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_push, app, task)

        def ready(url: str) -> None:
            print(url.rpartition(":")[2], "none", flush=True)

        await serve(cast("Any", app), "127.0.0.1", 0, ready)
        tasks.cancel_scope.cancel()


# The measurements.


def _start(role: str, task: Task) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "benchmarks.live", role, msgspec.json.encode(task).decode()]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def _address(lines: list[bytes]) -> tuple[int, str]:
    (port, token) = next(line for line in lines if line != b"ready\n").split()
    return int(port), token.decode()


def _latency(server: str, folder: Path, watchers: int, events: int, *, writer: bool = False) -> Latency:
    """Return the latency for `watchers` clients of a server; with `writer`, another process writes the log."""
    task = Task(str(folder), new_run_id(), events)
    with terminate_on_exit(_start(server, msgspec.structs.replace(task, events=0) if writer else task)) as process:
        lines = [read_line(process)] if writer else [read_line(process), read_line(process)]
        port, token = _address(lines)
        with terminate_on_exit(_start("write", task) if writer else process) as writer_process:
            if writer:
                read_line(writer_process)
            client_process = start_clients(
                ClientTask(port, f"/api/runs/{task.run_id}/stream", token, watchers, stamps=True)
            )
            read_line(client_process)
            # Let the client that was answered last read the log up to here.
            time.sleep(_SETTLE_SECONDS)
            if writer_process.stdin:
                writer_process.stdin.write(b"go\n")
                writer_process.stdin.flush()
            found = _measure_latency(read_report(client_process), watchers * events)
    return found


def _measure_latency(report: Report, expected: int) -> Latency:
    if len(report.late) != expected:
        raise RuntimeError(f"{len(report.late):,} of {expected:,} events came")
    return Latency(statistics.median(report.late), statistics.quantiles(report.late, n=100)[98])


def _median(rounds: list[Latency]) -> Latency:
    return Latency(statistics.median(one.p50 for one in rounds), statistics.median(one.p99 for one in rounds))


def _results(role: str, ours: Latency, theirs: Latency | None, p50: float, p99: float | None) -> list[Result]:
    def row(name: str, seconds: float, limit: float) -> Result:
        measure, against = f"{role}: {name}", f"{limit * 1e3:.0f} ms"
        return Result(
            measure=measure, ours=f"{seconds * 1e3:.2f} ms", against=against, ratio=limit / seconds, floor=1.0
        )

    results = [row("p50", ours.p50, p50)]
    if p99 is not None:
        results.append(row("p99", ours.p99, p99))
    if theirs is not None:
        plain_asgi = f"plain ASGI, the same bytes: {theirs.p50 * 1e3:.2f} ms (p99 {theirs.p99 * 1e3:.2f} ms)"
        results.append(
            Result(
                measure=f"{role}: p50", ours=f"{ours.p50 * 1e3:.2f} ms", against=plain_asgi, ratio=theirs.p50 / ours.p50
            )
        )
    return results


def run(*, quick: bool) -> list[Result]:
    events, rounds = (20, 1) if quick else (100, 5)
    results: list[Result] = []
    with scratch() as folder:
        for watchers in (1, CLIENTS):
            log_progress(f"{watchers} clients, load {os.getloadavg()[0]:.1f}")
            pairs = [
                (
                    _latency("serve", folder / f"ours-{watchers}-{number}", watchers, events),
                    _latency("push", folder, watchers, events),
                )
                for number in range(rounds)
            ]
            ours, theirs = _median([one for one, _ in pairs]), _median([other for _, other in pairs])
            role = f"append to client, {watchers} client{'s' * (watchers > 1)}"
            results += _results(role, ours, theirs, _P50_SECONDS, _P99_SECONDS)
        log_progress(f"from another process, load {os.getloadavg()[0]:.1f}")
        others = [_latency("serve", folder / f"other-{n}", 1, events, writer=True) for n in range(rounds)]
        results += _results("from another process's log, 1 client", _median(others), None, _OTHER_P50_SECONDS, None)
    return results


def main(role: str, task_json: str) -> None:
    task = msgspec.json.decode(task_json, type=Task)
    action: Any = {"serve": _serve, "push": _serve_push_app, "write": _write}[role]
    anyio.run(action, task, backend_options={"use_uvloop": True})


if __name__ == "__main__":
    main(*sys.argv[1:])
