"""How late an event arrives: from append to client over HTTP, in the server's own process and from another one."""

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
from benchmarks.sse import END, ClientTask, Report, clients, line_of, report_of
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
    """What a process is to serve or to write."""

    storage: str
    run_id: str
    events: int


class Latency(msgspec.Struct, frozen=True):
    """In seconds."""

    p50: float
    p99: float


# The writers: each waits for a line of its standard input first.


def _stamped() -> str:
    return f"This was written at {time.time_ns()}."


async def _go() -> None:
    print("begun", flush=True)
    await anyio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True)


async def _due(begin: float, number: int) -> None:
    await anyio.sleep(max(0.0, begin + number / EVENTS_PER_SECOND - time.monotonic()))


async def _write(task: Task, bus: Bus | None = None) -> None:
    storage = Storage(Path(task.storage))
    async with LocalLogs(storage, bus=bus).open(task.run_id) as log:
        await log.append(started())
        await _go()
        begin = time.monotonic()
        for number in range(task.events):
            await _due(begin, number)
            await log.append(message(_stamped()), path=STEP)
        await log.append(RunCompleted(name="bench", kind="agent", status="completed"))


# Ours: the server of a storage, whose process writes the log, too.


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


# The peer: the same server software, and an app that gives each client a queue of bytes.


class _Pushed:
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


async def _push(app: _Pushed, task: Task) -> None:
    await _go()
    begin = time.monotonic()
    for number in range(task.events):
        await _due(begin, number)
        app.push(log_frame(number, line(task.run_id, message(_stamped()), number).rstrip()))
    app.push(None)


async def _serve_pushed(task: Task) -> None:
    app = _Pushed()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_push, app, task)

        def ready(url: str) -> None:
            print(url.rpartition(":")[2], "none", flush=True)

        await serve(cast("Any", app), "127.0.0.1", 0, ready)
        tasks.cancel_scope.cancel()


# What is measured.


def _start(what: str, task: Task) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "benchmarks.live", what, msgspec.json.encode(task).decode()]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def _address(lines: list[bytes]) -> tuple[int, str]:
    (port, token) = next(one for one in lines if one != b"begun\n").split()
    return int(port), token.decode()


def _latency(server: str, folder: Path, watchers: int, events: int, *, writer: bool = False) -> Latency:
    """How late events came to so many clients of that server; with `writer` from a process of its own."""
    task = Task(str(folder), new_run_id(), events)
    with terminate_on_exit(_start(server, msgspec.structs.replace(task, events=0) if writer else task)) as process:
        lines = [line_of(process)] if writer else [line_of(process), line_of(process)]
        port, token = _address(lines)
        with terminate_on_exit(_start("write", task) if writer else process) as writing:
            if writer:
                line_of(writing)
            asking = clients(ClientTask(port, f"/api/runs/{task.run_id}/stream", token, watchers, stamps=True))
            line_of(asking)
            # The last that was answered reads the log up to here.
            time.sleep(_SETTLE_SECONDS)
            if writing.stdin:
                writing.stdin.write(b"go\n")
                writing.stdin.flush()
            found = _found(report_of(asking), watchers * events)
    return found


def _found(report: Report, expected: int) -> Latency:
    if len(report.late) != expected:
        raise RuntimeError(f"{len(report.late):,} of {expected:,} events came")
    return Latency(statistics.median(report.late), statistics.quantiles(report.late, n=100)[98])


def _middle(rounds: list[Latency]) -> Latency:
    return Latency(statistics.median(one.p50 for one in rounds), statistics.median(one.p99 for one in rounds))


def _results(what: str, ours: Latency, theirs: Latency | None, p50: float, p99: float | None) -> list[Result]:
    def row(name: str, seconds: float, limit: float) -> Result:
        measure, against = f"{what}: {name}", f"{limit * 1e3:.0f} ms"
        return Result(
            measure=measure, ours=f"{seconds * 1e3:.2f} ms", against=against, ratio=limit / seconds, floor=1.0
        )

    results = [row("p50", ours.p50, p50)]
    if p99 is not None:
        results.append(row("p99", ours.p99, p99))
    if theirs is not None:
        bare = f"bare ASGI, the same bytes: {theirs.p50 * 1e3:.2f} ms (p99 {theirs.p99 * 1e3:.2f} ms)"
        results.append(
            Result(measure=f"{what}: p50", ours=f"{ours.p50 * 1e3:.2f} ms", against=bare, ratio=theirs.p50 / ours.p50)
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
            ours, theirs = _middle([one for one, _ in pairs]), _middle([other for _, other in pairs])
            what = f"append to client, {watchers} client{'s' * (watchers > 1)}"
            results += _results(what, ours, theirs, _P50_SECONDS, _P99_SECONDS)
        log_progress(f"from another process, load {os.getloadavg()[0]:.1f}")
        others = [_latency("serve", folder / f"other-{n}", 1, events, writer=True) for n in range(rounds)]
        results += _results("from another process's log, 1 client", _middle(others), None, _OTHER_P50_SECONDS, None)
    return results


def main(what: str, words: str) -> None:
    task = msgspec.json.decode(words, type=Task)
    action: Any = {"serve": _serve, "push": _serve_pushed, "write": _write}[what]
    anyio.run(action, task, backend_options={"use_uvloop": True})


if __name__ == "__main__":
    main(*sys.argv[1:])
