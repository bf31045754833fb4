"""Start-up time: of commands to their end, and of the server to its first response."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path
from socket import create_server
from time import monotonic, perf_counter, sleep

import anyio
import httpx

from benchmarks.harness import Comparison, Result, interleave, log_progress, scratch
from benchmarks.ingest import write_logs
from benchmarks.server_process import terminate_on_exit
from shopfloor.adapters.local import LocalBus, LocalLogFeed
from shopfloor.adapters.sqlite import SqliteStore
from shopfloor.engine import Ingest
from shopfloor.record import Storage
from shopfloor.wiring import access_control

_TIMEOUT_SECONDS = 60.0
_POLL_SECONDS = 0.005
_LIMIT_SECONDS = 0.5
"""The time limit for a short command on an idle machine."""
_SERVER_FLOOR = 0.5
"""The server has to respond within twice the time of the plain server."""
_PLAIN_SERVER = "uvicorn + Starlette"
_RUN_EVENTS = 20
_HEALTH = "/api/health"
_LIST = "/api/agents/workers?limit=50"
_PLAIN_APP = """
import sys
import uvicorn
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

app = Starlette(routes=[Route("/api/health", lambda request: Response(b"{}"))])
uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="error")
"""


def _with_bytecode(folder: Path) -> dict[str, str]:
    """Return our environment, with bytecode cached in `folder`, as in an installation."""
    env = {**os.environ, "PYTHONPYCACHEPREFIX": str(folder)}
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    env.pop("SHOPFLOOR_URL", None)
    return env


def _command(*arguments: str, env: dict[str, str]) -> Callable[[], float]:
    """Return a side that measures a command from its start to its end."""

    def once() -> float:
        started_at = perf_counter()
        subprocess.run([sys.executable, *arguments], env=env, stdout=subprocess.DEVNULL, check=True)
        return perf_counter() - started_at

    return once


def _free_port() -> int:
    with create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


def first_answer(
    command: Callable[[int], list[str]],
    *,
    env: dict[str, str] | None = None,
    path: str = _HEALTH,
    token: str | None = None,
) -> float:
    """Return the seconds from the start of a server to its first response.

    Without a token any status counts; with a token the status has to be 200.
    """
    port = _free_port()
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    started_at = perf_counter()
    with terminate_on_exit(
        subprocess.Popen([sys.executable, *command(port)], env=env, stdout=subprocess.DEVNULL)
    ) as process:
        deadline = monotonic() + _TIMEOUT_SECONDS
        with httpx.Client(headers=headers) as client:
            while True:
                try:
                    answer = client.get(f"http://127.0.0.1:{port}{path}")
                except httpx.TransportError:
                    if process.poll() is not None or monotonic() > deadline:
                        raise RuntimeError(f"the server did not start: exit code {process.poll()}") from None
                    sleep(_POLL_SECONDS)
                else:
                    seconds = perf_counter() - started_at
                    if token is not None:
                        answer.raise_for_status()
                    return seconds


def up(storage: Path) -> Callable[[int], list[str]]:
    return lambda port: ["-m", "shopfloor", "up", "--port", str(port), "--storage", str(storage)]


async def _fill(storage: Storage, runs: int) -> None:
    """Fill a storage with ended runs that its lists show."""
    write_logs(storage, runs, _RUN_EVENTS)
    store = await SqliteStore.open(storage.database)
    try:
        await Ingest(LocalLogFeed(storage), store, LocalBus()).catch_up(everything=True)
    finally:
        await store.close()


def run(*, quick: bool) -> list[Result]:
    short, long, runs = (2, 1, 20) if quick else (21, 15, 500)
    with scratch() as folder:
        numbers = count()
        env = _with_bytecode(folder / "bytecode")

        def command(*arguments: str) -> Comparison:
            return interleave(_command("-m", "shopfloor", *arguments, env=env), _command("-c", "pass", env=env), short)

        log_progress("the command line")
        storage_option = ("--storage", str(folder / "commands"))
        helped = command("--help")
        hello = command("run", "hello", "-q", "-i", "NAME=Ada", *storage_option)
        listed = command("list", *storage_option)

        filled_storage = Storage(folder / "storage")
        anyio.run(_fill, filled_storage, runs)
        token = anyio.run(access_control(filled_storage).admin_token)

        def plain_server() -> float:
            return first_answer(lambda port: ["-c", _PLAIN_APP, str(port)], env=env)

        def existing_storage() -> float:
            return first_answer(up(filled_storage.root), env=env, token=token)

        def listing() -> float:
            return first_answer(up(filled_storage.root), env=env, path=_LIST, token=token)

        def new() -> float:
            return first_answer(up(folder / f"storage-{next(numbers)}"), env=env)

        log_progress(f"the server, on a storage with {runs} runs")
        known = interleave(existing_storage, plain_server, long)
        first_list = interleave(listing, plain_server, long)
        log_progress("the server, on a new storage")
        first = interleave(new, plain_server, max(1, long // 2))
    return [
        _result("`shopfloor --help`", "`python -c pass`", helped),
        _result("`shopfloor run hello`, without a server", "`python -c pass`", hello),
        _against_limit("`shopfloor run hello`, without a server", hello.ours),
        _result("`shopfloor list`, without a server", "`python -c pass`", listed),
        _against_limit("`shopfloor list`, without a server", listed.ours),
        _result(f"`shopfloor up` to its first answer, {runs} runs", _PLAIN_SERVER, known, floor=_SERVER_FLOOR),
        _result("the same, to its first list of 50 runs", _PLAIN_SERVER, first_list),
        _result("the same, to its first answer on a new storage", _PLAIN_SERVER, first),
    ]


def _result(measure: str, peer: str, found: Comparison, floor: float | None = None) -> Result:
    return Result(
        measure=f"{measure}, p50",
        ours=f"{found.ours * 1000:.0f} ms",
        against=f"{peer}: {found.theirs * 1000:.0f} ms",
        ratio=found.ratio,
        floor=floor,
    )


def _against_limit(measure: str, ours: float) -> Result:
    return Result(
        measure=f"{measure}, p50",
        ours=f"{ours * 1000:.0f} ms",
        against=f"{_LIMIT_SECONDS * 1000:.0f} ms",
        ratio=_LIMIT_SECONDS / ours,
        floor=1.0,
    )
