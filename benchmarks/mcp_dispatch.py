"""`worker_dispatch` over MCP, by stdio and by HTTP, against an echo tool of the bare SDK on the same transport."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from time import perf_counter
from typing import Any

import anyio
import httpx2
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.types import TextContent

from benchmarks.harness import Result, scratch
from benchmarks.running_engine import NOTHING, write_workers
from benchmarks.server_process import running_server, terminate_on_exit
from shopfloor.client import Address
from shopfloor.record import Storage

_ECHO = Path(__file__).parent / "_mcp_echo.py"
_BATCH = 20
"""Calls of one side in a row, before the other side has its turn."""
_PAUSE_SECONDS = 0.05
"""The pause after each echo: about as long as a run that does nothing takes."""
_TEXT = "a task of a usual length, such as a person would write to a colleague " * 4


@asynccontextmanager
async def _stdio(*words: str, env: dict[str, str] | None = None) -> AsyncIterator[Client]:
    parameters = StdioServerParameters(command=sys.executable, args=list(words), env=env)
    async with Client(stdio_client(parameters)) as client:
        yield client


@asynccontextmanager
async def _http(url: str, token: str = "none") -> AsyncIterator[Client]:
    async with (
        httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}, timeout=60) as http,
        Client(streamable_http_client(url, http_client=http)) as client,
    ):
        yield client


Settle = Callable[[str], Awaitable[None]]


async def _calls(client: Client, tool: str, arguments: dict[str, Any], settle: Settle) -> list[float]:
    """Return the seconds of each call. `settle` waits, outside of the measurement, for what a call has started."""
    seconds: list[float] = []
    for _ in range(_BATCH):
        started_at = perf_counter()
        result = await client.call_tool(tool, arguments)
        seconds.append(perf_counter() - started_at)
        if result.is_error or not isinstance(result.content[0], TextContent):
            raise RuntimeError(f"{tool} failed: {result.content}")
        await settle(result.content[0].text)
    return seconds


async def _compare(ours: Client, theirs: Client, rounds: int) -> tuple[float, float]:
    """Return the p50 of both sides in seconds, measured in turns after a warm-up."""
    dispatch = ("worker_dispatch", {"worker": NOTHING, "input": {}, "description": _TEXT})
    echo = ("echo", {"text": _TEXT})

    async def until_ended(output: str) -> None:
        # A main agent dispatches one run at a time; the next call must not compete with the execution of this one.
        run_id, status = json.loads(output)["run_id"], ""
        while status != "completed":
            result = await ours.call_tool("worker_wait", {"run_ids": [run_id]})
            status = json.loads(result.content[0].text)["runs"][0]["status"]  # pyright: ignore[reportAttributeAccessIssue]

    async def pause(_: str) -> None:
        await anyio.sleep(_PAUSE_SECONDS)

    own: list[float] = []
    peer: list[float] = []
    for number in range(rounds + 1):
        own_batch, peer_batch = await _calls(ours, *dispatch, until_ended), await _calls(theirs, *echo, pause)
        if number:
            own += own_batch
            peer += peer_batch
    return statistics.median(own), statistics.median(peer)


async def _measure(storage: Storage, address: Address, echo_url: str, rounds: int) -> list[Result]:
    results: list[Result] = []
    env = {"SHOPFLOOR_STORAGE": str(storage.root)}
    for name in ("stdio", "HTTP"):
        async with AsyncExitStack() as stack:
            if name == "stdio":
                ours = await stack.enter_async_context(_stdio("-m", "shopfloor", "mcp", env=env))
                theirs = await stack.enter_async_context(_stdio(str(_ECHO)))
            else:
                ours = await stack.enter_async_context(_http(f"{address.url}/mcp", address.token))
                theirs = await stack.enter_async_context(_http(echo_url))
            own, peer = await _compare(ours, theirs, rounds)
        results.append(
            Result(
                measure=f"worker_dispatch over {name}, p50",
                ours=f"{own * 1000:.2f} ms",
                against=f"echo of the bare SDK {peer * 1000:.2f} ms",
                ratio=peer / own,
                floor=0.5,
            )
        )
    return results


def run(*, quick: bool) -> list[Result]:
    rounds = 3 if quick else 30
    with scratch() as folder:
        storage = Storage(folder / "storage")
        workers = write_workers(folder / "workers")
        echo = subprocess.Popen([sys.executable, str(_ECHO), "http"], stdout=subprocess.PIPE)
        with terminate_on_exit(echo), running_server(storage, "--workers", str(workers)) as address:
            assert echo.stdout is not None
            port = int(echo.stdout.readline())
            return anyio.run(_measure, storage, address, f"http://127.0.0.1:{port}/mcp", rounds)
