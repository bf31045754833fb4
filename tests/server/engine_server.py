"""A real server with a real engine, which executes runs."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Generator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx
import msgspec
from anyio.abc import TaskStatus
from anyio.from_thread import start_blocking_portal
from starlette.applications import Starlette
from tests.login import StorageAccess
from tests.server.server import RunningServer
from tests.timeouts import TIMEOUT_SECONDS

from shopfloor.record import Storage
from shopfloor.server import create_app, serve
from shopfloor.wiring import WorkerSettings, local_backend, local_engine

WORKERS = {
    "echo": """
description: Says what it is told.
input:
  TEXT: {type: string}
steps:
  Say it: {block: terminal, output: "{{TEXT}}"}
""",
    "sleeper": """
steps:
  Sleep: {block: command, command: "sleep 60"}
""",
    "breaker": """
steps:
  Break: {block: command, command: "exit 3"}
""",
    "asker": """
tools:
  look-up:
    description: Looks a word up.
    parameters: {word: {type: string}}
steps:
  Look up: {block: tool-call, tool: look-up, input: {word: moon}, output: FOUND}
  Look up more: {block: tool-call, tool: look-up, input: {word: "{{FOUND}}"}, output: MORE}
output: {first: "{{FOUND}}", second: "{{MORE}}"}
""",
    "asks-twice": """
tools:
  look-up:
    description: Looks a word up.
    parameters: {word: {type: string}}
steps:
  Both:
    block: parallel
    branches:
      Sun:
        Look up: {block: tool-call, tool: look-up, input: {word: sun}, output: SUN}
      Moon:
        Look up: {block: tool-call, tool: look-up, input: {word: moon}, output: MOON}
""",
    "asks-below": """
steps:
  Call: {block: run-worker, worker: asker, output: FOUND}
output: FOUND
""",
    "asks-far-below": """
steps:
  Call: {block: run-worker, worker: asks-below, output: FOUND}
output: FOUND
""",
    "asks-everywhere": """
tools:
  look-up:
    description: Looks a word up.
    parameters: {word: {type: string}}
steps:
  All:
    block: parallel
    branches:
      Here:
        Look up: {block: tool-call, tool: look-up, input: {word: here}, output: HERE}
      Below:
        Call: {block: run-worker, worker: asker, output: BELOW}
      Beside:
        Call: {block: run-worker, worker: asker, output: BESIDE}
output: {here: "{{HERE}}", below: "{{BELOW.second}}", beside: "{{BESIDE.second}}"}
""",
    "looks-up-then-sleeps": """
tools:
  look-up:
    description: Looks a word up.
    parameters: {word: {type: string}}
steps:
  Look up: {block: tool-call, tool: look-up, input: {word: moon}, output: FOUND}
  Sleep: {block: command, command: "sleep 60"}
""",
    "asks-a-person": """
steps:
  Ask: {block: tool-call, tool: ask, input: {question: "Shall I?", options: ["yes", "no"]}, output: SAID}
output: SAID
""",
    "asks-a-person-below": """
steps:
  Call: {block: run-worker, worker: asks-a-person, output: SAID}
output: SAID
""",
    "unreadable": """
steps: 7
""",
    "talker": """
steps:
  Begin: {block: start-thread, model: script/hello}
  Ask: {block: add-message, text: Say hello to Ada.}
  Answer: {block: next-message, output: SAID}
output: SAID
""",
}


def write_workers(folder: Path) -> Path:
    """Write these workers into a folder and return the folder."""
    for slug, text in WORKERS.items():
        (folder / slug).mkdir(parents=True)
        (folder / slug / "worker.yaml").write_text(text)
    return folder


@asynccontextmanager
async def _run_engine_server(storage: Storage, workers: Path, changes: dict[str, Any]) -> AsyncGenerator[RunningServer]:
    expected = WorkerSettings(folders=(workers,))
    async with local_backend(storage) as backend, local_engine(backend, expected) as engine:
        services = msgspec.structs.replace(backend.services(engine), **changes)
        app = create_app(services)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(backend.ingest.run)
            tasks.start_soon(engine.scheduler.run)
            url = await tasks.start(_serve_app, app)
            yield RunningServer(url=url, app=app, storage=storage, tokens=StorageAccess(storage.tokens))
            tasks.cancel_scope.cancel()


async def _serve_app(app: Starlette, *, task_status: TaskStatus[str]) -> None:
    await serve(app, "127.0.0.1", 0, task_status.started)


@contextmanager
def engine_server(storage: Storage, workers: Path, **changes: Any) -> Generator[RunningServer]:
    """Start a server. `changes` replace fields of its services."""
    with (
        start_blocking_portal(backend_options={"use_uvloop": True}) as portal,
        portal.wrap_async_context_manager(_run_engine_server(storage, workers, changes)) as server,
    ):
        yield server


class ExecutionEvent(msgspec.Struct, frozen=True):
    """An event of an execution, with the id of its frame."""

    data: dict[str, Any]
    id: int | None

    @property
    def type(self) -> str:
        return self.data["type"]


@contextmanager
def stream_execution(client: httpx.Client, slug: str, body: Any) -> Iterator[Iterator[ExecutionEvent | str]]:
    """Stream the events of an execution, with `[DONE]` and comments as text. Leaving the context disconnects."""
    with client.stream("POST", f"/api/agents/{slug}/execute", json=body) as got:
        assert got.status_code == 200, got.read()
        assert got.headers["content-type"] == "text/event-stream"
        assert got.headers["x-accel-buffering"] == "no"
        yield parse_execution_events(got.iter_lines())


def execute(client: httpx.Client, slug: str, body: Any) -> list[ExecutionEvent]:
    """Execute a worker and return all events. The stream must end with `[DONE]`."""
    with stream_execution(client, slug, body) as events:
        *executed, done = [item for item in events if not isinstance(item, str) or not item.startswith(":")]
    assert done == "[DONE]"
    assert not any(isinstance(item, str) for item in executed)
    return [item for item in executed if isinstance(item, ExecutionEvent)]


def parse_execution_events(lines: Iterator[str]) -> Iterator[ExecutionEvent | str]:
    event_id: int | None = None
    for line in lines:
        if line.startswith(":"):
            yield line
        elif line.startswith("id: "):
            event_id = int(line[4:])
        elif line == "data: [DONE]":
            yield "[DONE]"
        elif line:
            assert line.startswith("data: "), line
            yield ExecutionEvent(msgspec.json.decode(line[6:]), event_id)
            event_id = None


def start(input: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:  # noqa: A002 - the name on the wire
    return {"type": "start", "input": input or {}, **more}


def continue_request(run_id: str, *results: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "continue", "executionId": run_id, "toolResults": list(results), **more}


def status(client: httpx.Client, run_id: str) -> str:
    got = client.get("/api/agents/workers/detail", params={"worker_id": run_id})
    return got.json().get("status", "unknown")


def wait_for_status(client: httpx.Client, run_id: str, expected: str) -> None:
    """Wait until the run has this status."""
    until = time.monotonic() + TIMEOUT_SECONDS
    while (current := status(client, run_id)) != expected:
        assert time.monotonic() < until, f"{run_id} is {current}, not {expected}"
        time.sleep(0.02)
