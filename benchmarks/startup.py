"""How long the first sign of life takes: of the command line, and of the server."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path
from socket import create_server
from time import monotonic, perf_counter, sleep

import httpx

from benchmarks.harness import Comparison, Result, interleave, say, scratch
from benchmarks.serving import ended

_PATIENCE_SECONDS = 60.0
_LOOK_SECONDS = 0.005
_LIMIT_SECONDS = 0.5
"""What a short command may take on a machine that does nothing else."""
_BARE_APP = """
import sys
import uvicorn
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

app = Starlette(routes=[Route("/api/health", lambda request: Response(b"{}"))])
uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="error")
"""


def _command(*words: str, folder: Path) -> Callable[[], float]:
    """One round: from the start of a command to its end. Bytecode is kept in `folder`, as an installation keeps it."""
    env = {**os.environ, "PYTHONPYCACHEPREFIX": str(folder)}
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    env.pop("SHOPFLOOR_URL", None)

    def once() -> float:
        begin = perf_counter()
        subprocess.run([sys.executable, *words], env=env, stdout=subprocess.DEVNULL, check=True)
        return perf_counter() - begin

    return once


def _free_port() -> int:
    with create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


def first_answer(command: Callable[[int], list[str]]) -> float:
    """From the start of a server to the end of its first answer, whatever that says."""
    port = _free_port()
    begin = perf_counter()
    with ended(subprocess.Popen([sys.executable, *command(port)], stdout=subprocess.DEVNULL)) as process:
        deadline = monotonic() + _PATIENCE_SECONDS
        with httpx.Client() as client:
            while True:
                try:
                    client.get(f"http://127.0.0.1:{port}/api/health")
                except httpx.TransportError:
                    if process.poll() is not None or monotonic() > deadline:
                        raise RuntimeError(f"the server did not start: exit code {process.poll()}") from None
                    sleep(_LOOK_SECONDS)
                else:
                    return perf_counter() - begin


def up(storage: Path) -> Callable[[int], list[str]]:
    return lambda port: ["-m", "shopfloor", "up", "--port", str(port), "--storage", str(storage)]


def run(*, quick: bool) -> list[Result]:
    short, long = (2, 1) if quick else (21, 9)
    with scratch() as folder:
        numbers = count()

        def command(*words: str) -> Comparison:
            bytecode = folder / "bytecode"
            ours = _command("-m", "shopfloor", *words, folder=bytecode)
            return interleave(ours, _command("-c", "pass", folder=bytecode), short)

        say("the command line")
        kept = ("--storage", str(folder / "commands"))
        helped = command("--help")
        hello = command("run", "hello", "-q", "-i", "NAME=Ada", *kept)
        listed = command("list", *kept)

        def bare() -> float:
            return first_answer(lambda port: ["-c", _BARE_APP, str(port)])

        def again() -> float:
            return first_answer(up(folder / "storage"))

        def new() -> float:
            return first_answer(up(folder / f"storage-{next(numbers)}"))

        say("the server, on a storage that there is")
        known = interleave(again, bare, long)
        say("the server, on a new storage")
        first = interleave(new, bare, max(1, long // 2))
    return [
        _result("`shopfloor --help`", "`python -c pass`", helped.ours, helped.theirs, helped.ratio),
        _result("`shopfloor run hello`, without a server", "`python -c pass`", hello.ours, hello.theirs, hello.ratio),
        _limited("`shopfloor run hello`, without a server", hello.ours),
        _result("`shopfloor list`, without a server", "`python -c pass`", listed.ours, listed.theirs, listed.ratio),
        _limited("`shopfloor list`, without a server", listed.ours),
        _result("`shopfloor up` to its first answer", "uvicorn + Starlette", known.ours, known.theirs, known.ratio),
        _result("the same, on a new storage", "uvicorn + Starlette", first.ours, first.theirs, first.ratio),
    ]


def _result(measure: str, peer: str, ours: float, theirs: float, ratio: float) -> Result:
    return Result(
        measure=f"{measure}, p50", ours=f"{ours * 1000:.0f} ms", against=f"{peer}: {theirs * 1000:.0f} ms", ratio=ratio
    )


def _limited(measure: str, ours: float) -> Result:
    return Result(
        measure=f"{measure}, p50",
        ours=f"{ours * 1000:.0f} ms",
        against=f"{_LIMIT_SECONDS * 1000:.0f} ms",
        ratio=_LIMIT_SECONDS / ours,
        floor=1.0,
    )
