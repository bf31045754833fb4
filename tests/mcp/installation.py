"""An installed Shopfloor in a folder of its own, its server as a process, and the official MCP client of both transports."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import uuid
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple

import httpx2
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.types import CallToolResult, TextContent
from tests.cli.conftest import SHOPFLOOR
from tests.timeouts import TIMEOUT_SECONDS, wait_until

from shopfloor.client import Address, find_storage_server
from shopfloor.record import Storage

_IMPORTS = "import asyncio\n\nfrom shopfloor import worker\n\n\n@worker\n"
WORKERS = '''
@worker
async def greet(run, NAME: str, GREETING: str = "Hello") -> str:
    """Greets somebody by name."""
    return f"{GREETING}, {NAME}!"


@worker
async def form(run, FROM: str, TO: str, COUNT: int = 1) -> dict:
    """Needs two texts."""
    return {"from": FROM, "to": TO, "count": COUNT}


@worker
async def asks(run, TOPIC: str) -> str:
    """Asks for a color before it answers."""
    await run.summary(f"thinking about {TOPIC}")
    return f"{TOPIC} is " + await run.ask("Which color?", options=["red", "green"])


@worker
async def confirms(run, TOPIC: str) -> str:
    """Runs a command once it is approved."""
    return (await run.command(["echo", "done:", TOPIC], approve=["command"])).stdout


@worker
async def pairs(run, TOPIC: str) -> str:
    """Asks two questions at once."""
    return " ".join(await asyncio.gather(run.ask("First?"), run.ask("Second?")))


@worker
async def sleeps(run, SECONDS: str = "60") -> str:
    """Works for a while."""
    await run.command(["sleep", SECONDS])
    return "slept"


@worker
async def fails(run, WHY: str) -> str:
    """Fails."""
    raise RuntimeError(WHY)


@worker
async def writes(run, LINES: str) -> str:
    """Writes many lines."""
    return "".join(f"line {number}\\n" for number in range(int(LINES)))


@worker
async def reviews(run, TASK: str) -> str:
    """Notes what it could not find out."""
    await run.log_question("Who owns the folder?")
    return "reviewed"
'''

Kind = Literal["stdio", "http"]


class Output(NamedTuple):
    """What a tool returned."""

    facts: dict[str, Any]
    text: str | None
    is_error: bool


class Installation:
    """A project folder with workers, a storage, and the environment of its commands."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.project = folder / "project"
        for code in WORKERS.split("@worker\n")[1:]:
            name = code.removeprefix("async def ").partition("(")[0]
            (self.project / "workers" / name).mkdir(parents=True)
            (self.project / "workers" / name / "worker.py").write_text(_IMPORTS + code)
        self.storage = Storage(folder / "storage")
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("SHOPFLOOR")}
        self.env = {
            **inherited,
            "HOME": str(folder),
            "SHOPFLOOR_STORAGE": str(self.storage.root),
            "SHOPFLOOR_PORT": "0",
            "NO_COLOR": "1",
        }
        self.process: subprocess.Popen[bytes] | None = None

    def shopfloor(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        return subprocess.run(
            [SHOPFLOOR, *words],
            env=self.env,
            cwd=self.project,
            capture_output=True,
            text=True,
            timeout=2 * TIMEOUT_SECONDS,
            stdin=subprocess.DEVNULL,
        )

    def up(self) -> Address:
        """Start the server and return its address."""
        with (self.folder / "server.err").open("ab") as errors:
            self.process = subprocess.Popen(
                [SHOPFLOOR, "up"], env=self.env, cwd=self.project, stdout=subprocess.DEVNULL, stderr=errors
            )
        wait_until(lambda: self._started() is not None, "the server")
        address = self._started()
        assert address is not None
        return address

    def _started(self) -> Address | None:
        assert self.process is not None
        assert self.process.poll() is None, (self.folder / "server.err").read_text()
        address = self.address
        return address if address is not None and address.pid == self.process.pid else None

    @property
    def address(self) -> Address | None:
        return find_storage_server(self.storage) if self.storage.root.exists() else None

    def down(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Stop the server that `up` started."""
        assert self.process is not None
        self.process.send_signal(number)
        self.process.wait(TIMEOUT_SECONDS)

    def close(self) -> None:
        """Stop every server, also a detached one."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        stopped = self.shopfloor("down")
        assert stopped.returncode == 0, stopped.stderr

    def token(self, role: str) -> str:
        created = self.shopfloor("tokens", "new", f"{role}-{uuid.uuid4().hex[:8]}", "--role", role)
        assert created.returncode == 0, created.stderr
        return created.stdout.strip().splitlines()[-1].strip()

    @asynccontextmanager
    async def client(
        self, kind: Kind, mode: str = "auto", *, token: str | None = None, **settings: Any
    ) -> AsyncGenerator[Client]:
        """Connect the official client: over stdio with `shopfloor mcp`, or over HTTP with the server that is up."""
        if kind == "stdio":
            parameters = StdioServerParameters(
                command=SHOPFLOOR, args=["mcp"], env=self.env | settings.pop("env", {}), cwd=self.project
            )
            async with Client(stdio_client(parameters), mode=mode, **settings) as client:
                yield client
            return
        address = self.address
        assert address is not None
        headers = {"Authorization": f"Bearer {token or address.token}"}
        async with (
            httpx2.AsyncClient(headers=headers, timeout=TIMEOUT_SECONDS) as http,
            Client(streamable_http_client(f"{address.url}/mcp", http_client=http), mode=mode, **settings) as client,
        ):
            yield client


def texts(result: CallToolResult) -> list[str]:
    """Return the texts of a result; everything we return is text."""
    return [block.text for block in result.content if isinstance(block, TextContent)]


async def call(client: Client, tool: str, arguments: dict[str, Any] | None = None, **settings: Any) -> Output:
    """Call a tool and return its output."""
    result = await client.call_tool(tool, arguments, **settings)
    facts, *rest = texts(result)
    assert len(rest) <= 1
    return Output(json.loads(facts), rest[0] if rest else None, bool(result.is_error))
