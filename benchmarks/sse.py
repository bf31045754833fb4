"""Streams over the network: one run's log to 100 clients, against a bare ASGI app."""

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
    """What a process of clients is to do."""

    port: int
    path: str
    token: str
    clients: int
    stamps: bool = False
    """Whether to say how late each event came, and before that, by a line, that every client is being answered."""


class Report(msgspec.Struct, frozen=True):
    seconds: float
    """From the first request until the last client had the end of its stream."""
    events: list[int]
    """How many each client got, the end included."""
    late: list[float]
    """In seconds; of each event and client."""


# The clients: a process of their own, which does nothing with what comes but to count it.


class _Client(asyncio.Protocol):
    def __init__(self, client_task: ClientTask) -> None:
        self._order = client_task
        self._tail = b""
        self.events = 0
        self.late: list[float] = []
        self.begun = asyncio.Event()
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def data_received(self, data: bytes) -> None:
        self.begun.set()
        # A frame's end never falls between two chunks of HTTP, but it may fall between two packets.
        self.events += data.count(b"\n\n") + (self._tail[-1:] == b"\n" and data[:1] == b"\n")
        if self._order.stamps:
            now = time.time_ns()
            self.late += [(now - int(stamp)) / 1e9 for stamp in _STAMP.findall(data)]
        self._tail = (self._tail + data[-64:])[-64:]
        if _LAST in self._tail and self._tail.endswith(b"0\r\n\r\n") and not self.done.done():
            self.done.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(RuntimeError(f"the stream broke off: {self._tail!r}"))


async def _ask(client_task: ClientTask) -> Report:
    loop = asyncio.get_running_loop()
    made = [
        await loop.create_connection(lambda: _Client(client_task), "127.0.0.1", client_task.port)
        for _ in range(client_task.clients)
    ]
    asked = (
        f"GET {client_task.path} HTTP/1.1\r\nHost: 127.0.0.1:{client_task.port}\r\n"
        f"Authorization: Bearer {client_task.token}\r\n\r\n"
    ).encode()
    begin = time.perf_counter()
    for transport, _ in made:
        transport.write(asked)
    if client_task.stamps:
        await asyncio.gather(*(client.begun.wait() for _, client in made))
        print("begun", flush=True)
    await asyncio.gather(*(client.done for _, client in made))
    seconds = time.perf_counter() - begin
    for transport, _ in made:
        transport.close()
    return Report(seconds, [client.events for _, client in made], [one for _, client in made for one in client.late])


def _start(what: str, *words: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "benchmarks.sse", what, *words]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def line_of(process: subprocess.Popen[bytes]) -> bytes:
    """What a process says once it is ready."""
    said = process.stdout.readline() if process.stdout else b""
    if not said:
        raise RuntimeError("a process ended before it was ready")
    return said


def clients(client_task: ClientTask) -> subprocess.Popen[bytes]:
    return _start("clients", msgspec.json.encode(client_task).decode())


def report_of(process: subprocess.Popen[bytes]) -> Report:
    # By the same buffer that lines were read from.
    said = process.stdout.read() if process.stdout else b""
    if process.wait(120):
        raise RuntimeError(f"the clients ended with exit code {process.returncode}")
    return msgspec.json.decode(said, type=Report)


# The peer: the same server, and an app that has every byte ready.


class _Ready:
    """Sends what a log gives, in the pieces in which it is read. What it does besides is what ASGI asks for."""

    def __init__(self, log: Path) -> None:
        self.state = SimpleNamespace(shutdown_event=anyio.Event())
        self._pieces: list[bytes] = []
        with Cursor(log) as cursor:
            while entries := cursor.poll():
                self._pieces.append(b"".join(log_frame(one.seq, one.raw) for one in entries if isinstance(one, Entry)))
        self._pieces.append(END)

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            # It has nothing to start and nothing to end, and says so.
            for _ in ("startup", "shutdown"):
                await send({"type": f"{(await receive())['type']}.complete"})
            return
        headers = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-cache, no-transform")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for piece in self._pieces:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _serve_ready(log: Path) -> None:
    await serve(cast("Any", _Ready(log)), "127.0.0.1", 0, lambda url: print(url.rpartition(":")[2], flush=True))


# What is measured.


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
        theirs_port = int(line_of(ready))

        def round_of(port: int) -> float:
            report = report_of(clients(ClientTask(port, path, address.token, CLIENTS)))
            if set(report.events) != {events + 1}:
                raise RuntimeError(f"{min(report.events)} to {max(report.events)} events came, not {events + 1}")
            return report.seconds

        found = interleave(lambda: round_of(port_of(address)), lambda: round_of(theirs_port), rounds)
    deliveries = (events + 1) * CLIENTS
    return Result(
        measure=f"a log of {events:,} events to {CLIENTS} clients",
        ours=rate(deliveries, found.ours, "events"),
        against=f"bare ASGI, the same bytes: {rate(deliveries, found.theirs, 'events')}",
        ratio=found.ratio,
        floor=0.5,
    )


def run(*, quick: bool) -> list[Result]:
    events, rounds = (500, 2) if quick else (3_000, 7)
    with scratch() as folder:
        log_progress(f"a log to {CLIENTS} clients")
        return [replay(Storage(folder / "replay"), events, rounds)]


def main(what: str, *words: str) -> None:
    match what:
        case "clients":
            report = uvloop.run(_ask(msgspec.json.decode(words[0], type=ClientTask)))
            sys.stdout.buffer.write(msgspec.json.encode(report))
        case "ready":
            anyio.run(_serve_ready, Path(words[0]), backend_options={"use_uvloop": True})
        case _:
            raise SystemExit(f"there is no {what}")


if __name__ == "__main__":
    main(*sys.argv[1:])
