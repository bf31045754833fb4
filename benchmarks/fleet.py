"""Fleet events: from a tool call to the stock client of tRPC, and to 1,000 subscribers with filters."""

from __future__ import annotations

import asyncio
import contextlib
import json
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
import uvloop
from tests.trpc.stock_client import FOLDER, install_client
from tools.page import find_node

from benchmarks.harness import Result, interleave, log_progress, rate, scratch
from benchmarks.sample import STEP, started
from benchmarks.server_process import terminate_on_exit
from benchmarks.sse import read_line
from shopfloor.adapters.local import LocalLogs
from shopfloor.log import RunCompleted, Session, StepStarted, ToolCall, new_run_id
from shopfloor.ports import Bus
from shopfloor.record import Storage
from shopfloor.server import create_app, serve
from shopfloor.server.fleet_feed import FeedItem
from shopfloor.server.trpc_protocol import data_message
from shopfloor.views import FleetEvent, encode_fleet_event
from shopfloor.wiring import StorageBackend, access_control, local_backend

CALLS_PER_SECOND = 10
_P50_SECONDS = 0.010
SUBSCRIBERS = 1_000
PROVIDERS = 10
"""Each subscriber filters by one of so many providers."""
BATCH = 100
"""Events that are stored together."""


class Task(msgspec.Struct, frozen=True):
    """What a child process does."""

    storage: str
    events: int
    port: int = 0
    token: str = ""


async def _wait_for_go() -> None:
    await anyio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True)


# Latency: the server's process writes a log, and a Node process has the stock client.


async def _write_calls(task: Task, bus: Bus) -> None:
    async with LocalLogs(Storage(Path(task.storage)), bus=bus).open(new_run_id()) as log:
        await log.append(started())
        await log.append(
            StepStarted(name="s", kind="agent", try_=1, session=Session(provider="claude-code")), path=STEP
        )
        await _wait_for_go()
        began = time.monotonic()
        for number in range(task.events):
            await anyio.sleep(max(0.0, began + number / CALLS_PER_SECOND - time.monotonic()))
            name = str(time.time_ns())
            call = ToolCall(name=name, call_id=name, input={}, output=None, fidelity="agent_emitted")
            await log.append(call, path=STEP)
        await log.append(RunCompleted(name="bench", kind="agent", status="completed"))


async def _serve_calls(task: Task) -> None:
    await _serve_backend(task, lambda backend: _write_calls(task, backend.bus))


async def _serve_backend(task: Task, write: Any) -> None:
    storage = Storage(Path(task.storage))
    token = await access_control(storage).admin_token()
    async with local_backend(storage, is_server=True) as backend, anyio.create_task_group() as tasks:
        tasks.start_soon(backend.ingest.run)
        tasks.start_soon(write, backend)

        def ready(url: str) -> None:
            print(url.rpartition(":")[2], token, flush=True)

        await serve(create_app(backend.services()), "127.0.0.1", 0, ready)
        tasks.cancel_scope.cancel()


def _latency(folder: Path, events: int) -> list[float]:
    """Return the latency of each call, in seconds."""
    with terminate_on_exit(_start("calls", Task(str(folder), events))) as server:
        port, token = read_line(server).split()
        url = f"ws://127.0.0.1:{int(port)}/trpc"
        command = [str(find_node()), "latency.mjs", url, token.decode(), str(events)]
        with terminate_on_exit(subprocess.Popen(command, cwd=FOLDER, stdout=subprocess.PIPE)) as client:
            read_line(client)
            _go(server)
            return [ms / 1e3 for ms in json.loads(read_line(client))]


# Throughput: 1,000 subscribers of a server that stores events, against a bare WebSocket server with ready bytes.


def _event(number: int) -> FleetEvent:
    provider = f"provider-{number % PROVIDERS}"
    payload = {
        "agentId": f"3f0a3a52-7d0b-4d7c-9d5e-0c8f1a4f5b6c:build:0:{number}",
        "taskId": "3f0a3a52-7d0b-4d7c-9d5e-0c8f1a4f5b6c",
        "tool": {"name": "Bash", "input": {"command": "pytest -q tests"}, "startedAt": "2026-02-23T10:30:00.000Z"},
    }
    return FleetEvent(type="agent.tool_call", payload=payload, timestamp="2026-02-23T10:30:00.000Z", provider=provider)


async def _serve_events(task: Task) -> None:
    async def write(backend: StorageBackend) -> None:
        await _wait_for_go()
        for first in range(0, task.events, BATCH):
            await backend.fleet_events.append([_event(number) for number in range(first, first + BATCH)])
            backend.bus.notify_fleet()

    await _serve_backend(task, write)


class _BareApp:
    """An ASGI app with a queue of ready messages for each client."""

    def __init__(self) -> None:
        self.state = SimpleNamespace(shutdown_event=anyio.Event())
        self.queues: list[tuple[int, asyncio.Queue[str]]] = []

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            for _ in ("startup", "shutdown"):
                await send({"type": f"{(await receive())['type']}.complete"})
            return
        await receive()
        await send({"type": "websocket.accept"})
        request = json.loads((await receive())["text"])
        provider = int(request["params"]["input"]["providerId"].rpartition("-")[2])
        queue: asyncio.Queue[str] = asyncio.Queue()
        self.queues.append((provider, queue))
        await send({"type": "websocket.send", "text": '{"id":1,"result":{"type":"started"}}'})
        # Cancelled when the server stops.
        with contextlib.suppress(OSError, asyncio.CancelledError):
            while True:
                await send({"type": "websocket.send", "text": await queue.get()})


async def _serve_bare(task: Task) -> None:
    app = _BareApp()

    async def write() -> None:
        cursor = int(time.time()) * 1000
        texts = [
            data_message(1, FeedItem(cursor + number, encode_fleet_event(_event(number)))).decode()
            for number in range(task.events)
        ]
        await _wait_for_go()
        for first in range(0, task.events, BATCH):
            for number in range(first, first + BATCH):
                for provider, queue in app.queues:
                    if provider == number % PROVIDERS:
                        queue.put_nowait(texts[number])
            await asyncio.sleep(0)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(write)
        await serve(cast("Any", app), "127.0.0.1", 0, lambda url: print(url.rpartition(":")[2], "none", flush=True))
        tasks.cancel_scope.cancel()


class _Client(asyncio.Protocol):
    """A subscriber that counts frames."""

    def __init__(self, number: int, task: Task) -> None:
        self._number = number
        self._task = task
        self._buffer = b""
        self._in_handshake = True
        self._expected = task.events // PROVIDERS
        self.frames = -1
        self.started: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.write(
            f"GET /trpc HTTP/1.1\r\nHost: 127.0.0.1:{self._task.port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
            f"Authorization: Bearer {self._task.token}\r\n\r\n".encode()
        )

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if self._in_handshake:
            head, found, rest = self._buffer.partition(b"\r\n\r\n")
            if not found:
                return
            if b" 101 " not in head:
                raise RuntimeError(head.decode())
            self._in_handshake, self._buffer = False, rest
            self._subscribe()
        self._count_frames()

    def _subscribe(self) -> None:
        inputs = {"providerId": f"provider-{self._number % PROVIDERS}"}
        request = {"id": 1, "method": "subscription", "params": {"path": "stream.agentEvents", "input": inputs}}
        text = json.dumps(request).encode()
        # Masked with zeros, which leaves the text as it is.
        head = bytes([0x81, 0x80 | 126]) + len(text).to_bytes(2, "big")
        self._transport.write(head + bytes(4) + text)

    def _count_frames(self) -> None:
        buffer, position = self._buffer, 0
        while len(buffer) - position >= 4:
            head, size = 2, buffer[position + 1]
            if size == 126:
                head, size = 4, int.from_bytes(buffer[position + 2 : position + 4])
            end = position + head + size
            if end > len(buffer):
                break
            if buffer[position] == 0x81:
                self.frames += 1
            position = end
        self._buffer = buffer[position:]
        if self.frames == 0 and not self.started.done():
            self.started.set_result(None)
        if self.frames == self._expected and not self.done.done():
            self.done.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        for future in (self.started, self.done):
            if not future.done():
                future.set_exception(RuntimeError(f"a connection was closed after {self.frames} events"))


async def _subscribe_all(task: Task) -> None:
    loop = asyncio.get_running_loop()
    clients = [_Client(number, task) for number in range(SUBSCRIBERS)]
    for client in clients:
        await loop.create_connection(lambda client=client: client, "127.0.0.1", task.port)
    await asyncio.gather(*(client.started for client in clients))
    print("ready", flush=True)
    await asyncio.gather(*(client.done for client in clients))
    print(time.time(), flush=True)


def _seconds(role: str, folder: Path, events: int) -> float:
    """Return the time from the first event stored until the last subscriber has its last event."""
    with terminate_on_exit(_start(role, Task(str(folder), events))) as server:
        port, token = read_line(server).split()
        clients_task = Task(str(folder), events, int(port), token.decode())
        with terminate_on_exit(_start("clients", clients_task)) as clients:
            read_line(clients)
            began = time.time()
            _go(server)
            return float(read_line(clients)) - began


def _start(role: str, task: Task) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "benchmarks.fleet", role, msgspec.json.encode(task).decode()]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def _go(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    process.stdin.write(b"go\n")
    process.stdin.flush()


def run(*, quick: bool) -> list[Result]:
    calls, events, rounds = (20, 200, 1) if quick else (100, 2_000, 5)
    install_client()
    with scratch() as folder:
        log_progress(f"to the stock client, load {os.getloadavg()[0]:.1f}")
        late = [latency for number in range(rounds) for latency in _latency(folder / f"calls-{number}", calls)]
        p50 = statistics.median(late)
        log_progress(f"to {SUBSCRIBERS:,} subscribers")
        numbers = iter(range(10_000))
        found = interleave(
            lambda: _seconds("events", folder / f"events-{next(numbers)}", events),
            lambda: _seconds("bare", folder, events),
            rounds,
        )
    deliveries = events * SUBSCRIBERS // PROVIDERS
    return [
        Result(
            measure="from a tool call to the stock client of tRPC: p50",
            ours=f"{p50 * 1e3:.2f} ms",
            against=f"{_P50_SECONDS * 1e3:.0f} ms",
            ratio=_P50_SECONDS / p50,
            floor=1.0,
        ),
        Result(
            measure=f"{events:,} events to {SUBSCRIBERS:,} subscribers with filters",
            ours=rate(deliveries, found.ours, "events"),
            against=f"a bare WebSocket server, the same bytes: {rate(deliveries, found.theirs, 'events')}",
            ratio=found.ratio,
            floor=0.3,
        ),
    ]


def main(role: str, task_json: str) -> None:
    task = msgspec.json.decode(task_json, type=Task)
    if role == "clients":
        uvloop.run(_subscribe_all(task))
        return
    action: Any = {"calls": _serve_calls, "events": _serve_events, "bare": _serve_bare}[role]
    anyio.run(action, task, backend_options={"use_uvloop": True})


if __name__ == "__main__":
    main(*sys.argv[1:])
