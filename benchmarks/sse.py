"""Streams over the network: one run's log to 100 clients, against a plain ASGI app."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import anyio
import msgspec
import uvloop

from benchmarks.harness import Result, interleave, log_progress, rate, scratch
from benchmarks.sample import write_log
from benchmarks.server_process import port_of, running_server, terminate_on_exit
from shopfloor.log import Entry, RunCompleted, new_run_id
from shopfloor.record import Cursor, Durability, Recorder, Storage
from shopfloor.server.sse import frame, log_frame
from shopfloor.server.uvicorn_server import serve

CLIENTS = 100
_STAMP = re.compile(rb"written at (\d+)\.")
_LAST = b"event: end\n"
END = frame(b"end", b"{}")


class ClientTask(msgspec.Struct, frozen=True):
    """The task of a client process."""

    port: int
    path: str
    token: str
    clients: int
    stamps: bool = False
    """True to report the latency of each event, and to print a line once every client receives its stream."""


class Report(msgspec.Struct, frozen=True):
    """The result of a client process."""

    seconds: float
    """The time from the first request until the last client had the end of its stream."""
    events: list[int]
    """The number of events of each client, including the end."""
    late: list[float]
    """The latency of each event for each client, in seconds."""


# The clients: a separate process that only counts events.


class _Client(asyncio.Protocol):
    def __init__(self, client_task: ClientTask) -> None:
        self._task = client_task
        self._tail = b""
        self.events = 0
        self.late: list[float] = []
        self.started = asyncio.Event()
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def data_received(self, data: bytes) -> None:
        self.started.set()
        # The end of a frame is never split across HTTP chunks, but may be split across packets.
        self.events += data.count(b"\n\n") + (self._tail[-1:] == b"\n" and data[:1] == b"\n")
        if self._task.stamps:
            now = time.time_ns()
            self.late += [(now - int(stamp)) / 1e9 for stamp in _STAMP.findall(data)]
        self._tail = (self._tail + data[-64:])[-64:]
        if _LAST in self._tail and self._tail.endswith(b"0\r\n\r\n") and not self.done.done():
            self.done.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(RuntimeError(f"the stream was cut off after {self._tail!r}"))


async def _request_streams(client_task: ClientTask) -> Report:
    loop = asyncio.get_running_loop()
    connections = [
        await loop.create_connection(lambda: _Client(client_task), "127.0.0.1", client_task.port)
        for _ in range(client_task.clients)
    ]
    request = (
        f"GET {client_task.path} HTTP/1.1\r\nHost: 127.0.0.1:{client_task.port}\r\n"
        f"Authorization: Bearer {client_task.token}\r\n\r\n"
    ).encode()
    started_at = time.perf_counter()
    for transport, _ in connections:
        transport.write(request)
    if client_task.stamps:
        await asyncio.gather(*(client.started.wait() for _, client in connections))
        print("ready", flush=True)
    await asyncio.gather(*(client.done for _, client in connections))
    seconds = time.perf_counter() - started_at
    for transport, _ in connections:
        transport.close()
    return Report(
        seconds, [client.events for _, client in connections], [one for _, client in connections for one in client.late]
    )


def _start(role: str, *arguments: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "benchmarks.sse", role, *arguments]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def read_line(process: subprocess.Popen[bytes]) -> bytes:
    """Return the line that a process prints when it is ready."""
    output = process.stdout.readline() if process.stdout else b""
    if not output:
        raise RuntimeError("a process ended before it was ready")
    return output


def start_clients(client_task: ClientTask) -> subprocess.Popen[bytes]:
    return _start("clients", msgspec.json.encode(client_task).decode())


def read_report(process: subprocess.Popen[bytes]) -> Report:
    # Read from the same buffer as the lines before.
    output = process.stdout.read() if process.stdout else b""
    if process.wait(120):
        raise RuntimeError(f"the clients ended with exit code {process.returncode}")
    return msgspec.json.decode(output, type=Report)


# The peer: the same server software, with an app that has every byte ready.


class _ReadyApp:
    """An ASGI app that sends a prepared log in the chunks in which it was read."""

    def __init__(self, log: Path) -> None:
        self.state = SimpleNamespace(shutdown_event=anyio.Event())
        self._chunks: list[bytes] = []
        with Cursor(log) as cursor:
            while entries := cursor.poll():
                self._chunks.append(b"".join(log_frame(one.seq, one.raw) for one in entries if isinstance(one, Entry)))
        self._chunks.append(END)

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            # Nothing to start or to stop.
            for _ in ("startup", "shutdown"):
                await send({"type": f"{(await receive())['type']}.complete"})
            return
        headers = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-cache, no-transform")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for chunk in self._chunks:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _serve_ready(log: Path) -> None:
    await serve(cast("Any", _ReadyApp(log)), "127.0.0.1", 0, lambda url: print(url.rpartition(":")[2], flush=True))


# The measurements.


def _finished_log(storage: Storage, events: int) -> str:
    run_id = new_run_id()
    write_log(storage.log_path(run_id), run_id, events - 1)
    with Recorder(storage.log_path(run_id), run_id, durability=Durability.OS) as recorder:
        recorder.append(RunCompleted(name="bench", kind="agent", status="completed"))
    return run_id


def replay(storage: Storage, events: int, rounds: int) -> Result:
    run_id = _finished_log(storage, events)
    path = f"/api/runs/{run_id}/stream"
    with terminate_on_exit(_start("ready", str(storage.log_path(run_id)))) as ready, running_server(storage) as address:
        theirs_port = int(read_line(ready))

        def round_of(port: int) -> float:
            report = read_report(start_clients(ClientTask(port, path, address.token, CLIENTS)))
            if set(report.events) != {events + 1}:
                raise RuntimeError(f"{min(report.events)} to {max(report.events)} events came, not {events + 1}")
            return report.seconds

        found = interleave(lambda: round_of(port_of(address)), lambda: round_of(theirs_port), rounds)
    deliveries = (events + 1) * CLIENTS
    return Result(
        measure=f"a log of {events:,} events to {CLIENTS} clients",
        ours=rate(deliveries, found.ours, "events"),
        against=f"plain ASGI, the same bytes: {rate(deliveries, found.theirs, 'events')}",
        ratio=found.ratio,
        floor=0.5,
    )


def run(*, quick: bool) -> list[Result]:
    events, rounds = (500, 2) if quick else (3_000, 7)
    with scratch() as folder:
        log_progress(f"a log to {CLIENTS} clients")
        return [replay(Storage(folder / "replay"), events, rounds)]


def main(role: str, *arguments: str) -> None:
    match role:
        case "clients":
            report = uvloop.run(_request_streams(msgspec.json.decode(arguments[0], type=ClientTask)))
            sys.stdout.buffer.write(msgspec.json.encode(report))
        case "ready":
            anyio.run(_serve_ready, Path(arguments[0]), backend_options={"use_uvloop": True})
        case _:
            raise SystemExit(f"unknown role {role}")


if __name__ == "__main__":
    main(*sys.argv[1:])
