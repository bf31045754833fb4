"""The cost of a separate process per run of a Python worker, beside the cost of a run today.

Run it with `python -m benchmarks.python_workers`.
"""

from __future__ import annotations

import multiprocessing
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

ROUNDS = 20
ROUND_TRIPS = 2_000


def main() -> None:
    plain = _median(lambda: _start("pass"))
    loaded = _median(lambda: _start("import shopfloor.engine.run"))
    forked = _median(_fork)
    print(f"a new interpreter:                       {plain * 1000:8.1f} ms")
    print(f"a new interpreter with the engine in it: {loaded * 1000:8.1f} ms")
    print(f"a fork of a process that is ready:       {forked * 1000:8.1f} ms")
    print(f"a request and its answer over a pipe:    {_round_trip() * 1_000_000:8.1f} µs")
    print(f"memory of a worker's process:            {_memory_bytes() / 1e6:8.1f} MB")


def _median(work: Callable[[], None]) -> float:
    """Return the median processor time of this process and its children, which other load affects little."""
    times: list[float] = []
    for _ in range(ROUNDS):
        started_at = _processor_seconds()
        work()
        times.append(_processor_seconds() - started_at)
    return statistics.median(times)


def _processor_seconds() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def _start(code: str) -> None:
    subprocess.run([sys.executable, "-c", code], check=True)


def _fork() -> None:
    process = multiprocessing.get_context("fork").Process(target=int)
    process.start()
    process.join()


def _answer(connection: Connection) -> None:
    while (request := connection.recv_bytes()) != b"end":
        connection.send_bytes(request)


def _round_trip() -> float:
    """Return the additional cost of each call of `run`: the host would still write the log."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("fork").Process(target=_answer, args=(theirs,))
    process.start()
    started_at = time.perf_counter()
    for _ in range(ROUND_TRIPS):
        ours.send_bytes(b"x" * 200)
        ours.recv_bytes()
    seconds = time.perf_counter() - started_at
    ours.send_bytes(b"end")
    process.join()
    return seconds / ROUND_TRIPS


def _memory_bytes() -> int:
    code = "import shopfloor.engine.run, re; print(open('/proc/self/status').read().split('VmRSS:')[1].split()[0])"
    if not Path("/proc/self/status").exists():
        return 0
    return int(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True).stdout) * 1024


if __name__ == "__main__":
    main()
