"""A real HTTP server on a loopback port that sends scripted responses, byte by byte."""

from __future__ import annotations

import socket
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
import msgspec
import uvicorn
from tests.sample_events import RUN_ID

from shopfloor.client import Client
from shopfloor.log import Event, Line, encode

Part = bytes | anyio.Event | str
"""Bytes to send, an event to wait for, or `cut` to break the connection."""


class Answer(msgspec.Struct, frozen=True):
    parts: Sequence[Part]
    status: int = 200
    kind: str = "text/event-stream"


class RecordedRequest(msgspec.Struct, frozen=True):
    method: str
    path: str
    query: str
    body: Any


class ScriptedServer:
    """Responds to executions with the items of `executions` in turn, and to streams of runs with those of `streams`."""

    def __init__(self) -> None:
        self.executions: list[Answer] = []
        self.streams: list[Answer] = []
        self.events: list[Event] = []
        self.row: dict[str, Any] = {}
        self.refusal: Answer | None = None
        """The response to all other requests, if set."""
        self.requests: list[RecordedRequest] = []
        self.cancelled = anyio.Event()
        self.client_gone = anyio.Event()

    def bodies(self, ending: str) -> list[Any]:
        return [item.body for item in self.requests if item.path.endswith(ending)]

    async def __call__(self, scope: Any, receive: Callable[[], Any], send: Callable[[Any], Any]) -> None:
        if scope["type"] != "http":
            return
        body = b""
        while True:
            got = await receive()
            body += got.get("body", b"")
            if not got.get("more_body"):
                break
        read = msgspec.json.decode(body) if body else None
        requests = RecordedRequest(scope["method"], scope["path"], scope["query_string"].decode(), read)
        self.requests.append(requests)
        answer = self._answer(requests)
        headers = [(b"content-type", answer.kind.encode())]
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        for part in answer.parts:
            if part == "cut":
                return
            if isinstance(part, anyio.Event):
                if not await self._wait(part, receive):
                    return
            else:
                await send({"type": "http.response.body", "body": part, "more_body": True})
                # Send each part as a separate packet.
                await anyio.sleep(0.002)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _wait(self, event: anyio.Event, receive: Callable[[], Any]) -> bool:
        """Wait for the event. Return False if the client disconnects first."""
        async with anyio.create_task_group() as tasks:

            async def watch() -> None:
                await receive()
                self.client_gone.set()
                tasks.cancel_scope.cancel()

            tasks.start_soon(watch)
            await event.wait()
            tasks.cancel_scope.cancel()
        return event.is_set()

    def _answer(self, requests: RecordedRequest) -> Answer:
        path = requests.path
        if path.endswith("/execute"):
            return self.executions.pop(0)
        if path.endswith(("/stream", "/attach")):
            return self.streams.pop(0)
        if self.refusal is not None:
            return self.refusal
        if path.endswith("/log"):
            after = int(dict(pair.split("=") for pair in requests.query.split("&"))["after"])
            raws = [msgspec.Raw(raw_of(event)) for event in self.events if event.seq > after]
            return as_json({"events": raws, "more": False})
        if path.endswith("/cancel"):
            self.cancelled.set()
            return as_json({})
        if path.endswith("/detail"):
            return as_json(self.row)
        return as_json({"run_id": RUN_ID})


def as_json(value: Any, status: int = 200) -> Answer:
    return Answer([msgspec.json.encode(value)], status, "application/json")


def raw_of(event: Event) -> bytes:
    return encode(Line(**{name: getattr(event, name) for name in Line.__struct_fields__}))


def sse(*events: dict[str, Any] | str, seq: int | None = None) -> bytes:
    """Encode events as the server does, with the `seq` up to which the stream is complete."""
    frames = b"".join(
        b"data: %b\n\n" % (item.encode() if isinstance(item, str) else msgspec.json.encode(item)) for item in events
    )
    return frames + (b"" if seq is None else b"id: %d\n\n" % seq)


def log_sse(*events: Event) -> bytes:
    return b"".join(b"id: %d\ndata: %b\n\n" % (event.seq, raw_of(event)) for event in events)


class _Server(uvicorn.Server):
    """uvicorn without its pauses of 0.1 s, which every test would wait for at its end."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.stop = anyio.Event()

    async def main_loop(self) -> None:
        await self.on_tick(0)
        await self.stop.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for listening in (*self.servers, *(sockets or ())):
            listening.close()
        state = self.server_state
        for connection in list(state.connections):
            connection.shutdown()
        with anyio.move_on_after(self.config.timeout_graceful_shutdown):
            while state.connections or state.tasks:
                await anyio.sleep(0.002)
        for task in state.tasks:
            task.cancel()


@asynccontextmanager
async def scripted_server() -> AsyncGenerator[tuple[ScriptedServer, Client]]:
    """Start the server and yield it with a client."""
    app = ScriptedServer()
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(app, log_config=None, log_level="critical", lifespan="off", timeout_graceful_shutdown=1)
    server = _Server(config)
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(server.serve, [listener])
        try:
            async with Client(url, "a-key") as client:
                yield app, client
        finally:
            server.stop.set()
