"""The server as a process: it reports its address, stops on a signal, and fails if its port is taken."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from starlette.applications import Starlette
from tests.login import StorageAccess
from tests.sample_events import ROOT
from tests.timeouts import TIMEOUT_SECONDS

from shopfloor.adapters.memory import MemoryStore, MemoryTokens, MemoryWatchers
from shopfloor.errors import ConflictError
from shopfloor.server import AccessControl, MountedApp, Services, create_app, serve

NOTHING: Any = None
PROGRAM = """
import sys
from contextlib import asynccontextmanager
from pathlib import Path
import anyio
from shopfloor.adapters.local import LocalLogReader, LocalTokens
from shopfloor.adapters.memory import MemoryStore, MemoryWatchers
from shopfloor.record import Storage
from shopfloor.server import AccessControl, Services, create_app, serve

class Silence:
    @asynccontextmanager
    async def subscribe(self):
        async def nothing():
            await anyio.sleep_forever()
            yield []
        yield nothing()

async def main():
    storage = Storage(Path(sys.argv[1]))
    access = AccessControl(LocalTokens(storage.tokens))
    logs, watchers = LocalLogReader(storage), MemoryWatchers()
    app = create_app(Services(store=MemoryStore(), logs=logs, changes=Silence(), access=access, watchers=watchers, version="1"))
    await access.admin_token()
    await serve(app, "127.0.0.1", 0, lambda url: print(url, flush=True))
    print("closed in order", flush=True)

anyio.run(main, backend_options={"use_uvloop": True})
"""


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_open_streams_and_then_the_server(tmp_path: Path, sent: signal.Signals) -> None:
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    server = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT, env=dict(os.environ)
    )
    try:
        assert server.stdout is not None
        url = server.stdout.readline().strip()
        token = StorageAccess(tmp_path / "tokens.json").admin_token()
        headers = {"Authorization": f"Bearer {token}"}
        with httpx.stream("GET", f"{url}/api/stream", headers=headers, timeout=TIMEOUT_SECONDS, trust_env=False) as got:
            chunks = got.iter_bytes()
            assert next(chunks).startswith(b"event: ready")
            started_at = time.monotonic()
            server.send_signal(sent)
            assert b"".join(chunks) == b""
        stdout, stderr = server.communicate(timeout=TIMEOUT_SECONDS)
    finally:
        server.kill()
    assert time.monotonic() - started_at < 4
    assert (stdout, stderr, server.returncode) == ("closed in order\n", "", 0)


def _app(*mounted: MountedApp):
    access, watchers = AccessControl(MemoryTokens()), MemoryWatchers()
    return create_app(
        Services(store=MemoryStore(), logs=NOTHING, changes=NOTHING, access=access, watchers=watchers, version="1"),
        mounted=mounted,
    )


def test_a_part_of_the_app_that_fails_stops_the_server() -> None:
    @asynccontextmanager
    async def fail_later(_: Starlette) -> AsyncGenerator[None]:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(fail)
            yield

    async def fail() -> None:
        await started.wait()
        raise ValueError("a defect")

    async def serve_until_failed() -> None:
        await serve(_app(MountedApp("/part", NOTHING, fail_later)), "127.0.0.1", 0, lambda _: started.set())

    started = anyio.Event()
    with pytest.raises(ExceptionGroup) as raised:
        anyio.run(serve_until_failed)
    assert raised.group_contains(ValueError, match="a defect")


def test_a_taken_port_is_an_error(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConflictError, match=f"cannot listen on 127.0.0.1:{port}") as raised:
            anyio.run(serve, _app(), "127.0.0.1", port, print)
    assert "--port" in (raised.value.hint or "")


def test_an_address_of_another_machine_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConflictError, match="cannot listen on"):
        anyio.run(serve, _app(), "203.0.113.1", 0, print)


def test_the_address_has_the_chosen_port(tmp_path: Path) -> None:
    async def look(host: str) -> str:
        urls: list[str] = []
        async with anyio.create_task_group() as tasks:

            def started(url: str) -> None:
                urls.append(url)
                tasks.cancel_scope.cancel()

            await serve(_app(), host, 0, started)
        return urls[0]

    assert anyio.run(look, "127.0.0.1").startswith("http://127.0.0.1:")
    if socket.has_ipv6:
        assert anyio.run(look, "::1").startswith("http://[::1]:")
