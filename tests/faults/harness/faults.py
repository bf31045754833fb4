"""The faults. Each leaves the server up, or dead and to be restarted."""

from __future__ import annotations

import contextlib
import os
import random
import resource
import signal
import socket
import sqlite3
import time
from collections.abc import Callable, Generator
from pathlib import Path

import msgspec
from tests.faults.harness.driver import Driver
from tests.faults.harness.server import Deployment, Server, Violation
from tests.timeouts import TIMEOUT_SECONDS

MIXED = ("STOP", "CONT", "TERM", "INT", "HUP")
SPARE_DESCRIPTORS = (0, 2, 5, 20)
SPARE_MEMORY_BYTES = (2 * 2**20, 8 * 2**20, 32 * 2**20)
HALF_SENT_CONNECTIONS = 300
JUMPS = (7_200, -7_200, 400 * 86_400, -30 * 86_400, 0)
"""The seconds by which the clock is wrong from then on."""
_INTERRUPTED = frozenset({"outcome_unknown", "host_lost"})
_STOPPED = _INTERRUPTED | {"host_stopped"}
_STORAGE = frozenset({"storage_full", "storage_error", "storage_failed", "storage_unwritable", "storage_unreadable"})
_STARVED = _STORAGE | {
    "process_error",
    "tool_error",
    "minder_lost",
    "provider_unreachable",
    "unexpected",
    "execution_error",
}


class FaultContext(msgspec.Struct, frozen=True):
    """The target of a fault."""

    deployment: Deployment
    server: Server
    driver: Driver
    clock: Path


Act = Callable[[FaultContext, random.Random], None]


class Fault(msgspec.Struct, frozen=True):
    act: Act
    weight: int = 2
    excuses: frozenset[str] = frozenset()
    """The codes that runs may fail with because of the fault."""
    noisy: bool = False
    """True if the server may print a traceback."""


def _restart(context: FaultContext, rng: random.Random) -> None:
    time.sleep(rng.choice([0, 0, 0.2, 1.0]))
    context.server.start()


def kill(context: FaultContext, rng: random.Random) -> None:
    context.server.signal(signal.SIGKILL)
    context.server.wait_for_exit()
    _restart(context, rng)


def kill_with_reaper(context: FaultContext, rng: random.Random) -> None:
    """Kill the server and its reaper: the next host has to end the processes of both."""
    context.server.signal(signal.SIGSTOP)
    for pid in context.server.reaper_pids():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    kill(context, rng)


def kill_reaper(context: FaultContext, rng: random.Random) -> None:
    for pid in context.server.reaper_pids():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def kill_at_start(context: FaultContext, rng: random.Random) -> None:
    """Kill the server several times while it starts."""
    for _ in range(3):
        context.server.signal(signal.SIGKILL)
        context.server.wait_for_exit()
        context.server.spawn()
        time.sleep(rng.random() * 1.5)
    kill(context, rng)


def kill_plain_command(context: FaultContext, rng: random.Random) -> None:
    context.driver.kill_plain_command()


def _stop(context: FaultContext, rng: random.Random, number: signal.Signals) -> None:
    context.server.signal(number)
    code = context.server.wait_for_exit()
    if code != 0:
        raise Violation(f"after {number.name} the server ended with {code}")
    _restart(context, rng)


def term(context: FaultContext, rng: random.Random) -> None:
    _stop(context, rng, signal.SIGTERM)


def interrupt(context: FaultContext, rng: random.Random) -> None:
    _stop(context, rng, signal.SIGINT)


def hang_up(context: FaultContext, rng: random.Random) -> None:
    """Send HUP. The server may stay or exit, but has to leave a valid state."""
    context.server.signal(signal.SIGHUP)
    time.sleep(0.5)
    if not context.server.is_alive():
        context.server.wait_for_exit()
        _restart(context, rng)


def freeze(context: FaultContext, rng: random.Random) -> None:
    context.server.signal(signal.SIGSTOP)
    time.sleep(rng.uniform(0.5, 4))
    context.server.signal(signal.SIGCONT)


def mix(context: FaultContext, rng: random.Random) -> None:
    """Send signals in any order, close together; the last is KILL."""
    for _ in range(rng.randint(2, 6)):
        context.server.signal(signal.Signals[f"SIG{rng.choice(MIXED)}"])
        time.sleep(rng.choice([0, 0.01, 0.1, 0.5]))
    kill(context, rng)


@contextlib.contextmanager
def _full_disk(context: FaultContext, left_bytes: int) -> Generator[None]:
    ballast = context.deployment.disk / "ballast"
    try:
        _fill(ballast, left_bytes)
        yield
    finally:
        ballast.unlink(missing_ok=True)


def _fill(ballast: Path, left_bytes: int) -> None:
    with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            free = os.statvfs(ballast.parent).f_bavail * os.statvfs(ballast.parent).f_frsize - left_bytes
            if free <= 0 and left_bytes:
                return
            file.write(b"\0" * max(4096, min(free, 2**20)))


def disk(context: FaultContext, rng: random.Random) -> None:
    with _full_disk(context, rng.choice([0, 0, 1_000_000])):
        time.sleep(rng.uniform(0.3, 5))


def disk_and_kill(context: FaultContext, rng: random.Random) -> None:
    """Fill the disk. The server may be unable to start meanwhile."""
    with _full_disk(context, 0):
        time.sleep(rng.uniform(0.1, 1))
        context.server.signal(signal.SIGKILL)
        context.server.wait_for_exit()
        context.server.spawn()
        if context.server.wait_until_up():
            time.sleep(rng.uniform(0.1, 2))
        else:
            context.server.wait_for_exit()
    context.server.ensure_up()


def lock(context: FaultContext, rng: random.Random) -> None:
    """Lock the database from another process."""
    database = sqlite3.connect(context.deployment.storage.database, timeout=10, isolation_level=None)
    try:
        database.execute("BEGIN EXCLUSIVE")
        time.sleep(rng.uniform(0.5, 4))
        database.execute("ROLLBACK")
    except sqlite3.OperationalError:
        # The server locked the database first, which is not an error on a busy machine.
        return
    finally:
        database.close()


@contextlib.contextmanager
def _limited(pid: int, kind: int, soft: int) -> Generator[None]:
    before = resource.prlimit(pid, kind)
    resource.prlimit(pid, kind, (soft, before[1]))
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(pid, kind, before)


def descriptors(context: FaultContext, rng: random.Random) -> None:
    """Limit the files that the server can open."""
    pid = context.server.pid
    most = max(int(name) for name in os.listdir(f"/proc/{pid}/fd")) + 1
    with _limited(pid, resource.RLIMIT_NOFILE, most + rng.choice(SPARE_DESCRIPTORS)):
        time.sleep(rng.uniform(0.3, 3))
    context.server.ensure_up()


def memory(context: FaultContext, rng: random.Random) -> None:
    """Limit the memory that the server can allocate."""
    pid = context.server.pid
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[0])
    spare_bytes = rng.choice(SPARE_MEMORY_BYTES)
    with _limited(pid, resource.RLIMIT_AS, pages * resource.getpagesize() + spare_bytes):
        time.sleep(rng.uniform(0.3, 3))
    context.server.ensure_up()


def connections(context: FaultContext, rng: random.Random) -> None:
    """Open many connections with half a request each. The server has reserved descriptors for runs at its start."""
    address = context.server.address
    assert address is not None
    host, port = address[0].removeprefix("http://").split(":")
    with contextlib.ExitStack() as opened:
        for _ in range(HALF_SENT_CONNECTIONS):
            half = opened.enter_context(socket.create_connection((host, int(port)), timeout=TIMEOUT_SECONDS))
            with contextlib.suppress(OSError):
                half.sendall(b"POST /api/runs HTTP/1.1\r\nHost: ")
        time.sleep(rng.uniform(1, 3))
    context.server.ensure_up()


def clock(context: FaultContext, rng: random.Random) -> None:
    context.clock.write_text(str(rng.choice(JUMPS)))


def database(context: FaultContext, rng: random.Random) -> None:
    """Damage or delete the database, stop the server, rebuild the rows, and start the server."""
    path = context.deployment.storage.database
    match rng.choice(["bytes", "cut", "unlink"]):
        case "bytes":
            size = path.stat().st_size
            with path.open("r+b") as file:
                for _ in range(20):
                    file.seek(rng.randrange(size))
                    file.write(rng.randbytes(64))
        case "cut":
            os.truncate(path, rng.randrange(path.stat().st_size))
        case _:
            for name in (path, Path(f"{path}-wal"), Path(f"{path}-shm")):
                name.unlink(missing_ok=True)
    time.sleep(rng.uniform(0, 2))
    context.server.signal(rng.choice([signal.SIGKILL, signal.SIGTERM]))
    context.server.wait_for_exit()
    done = context.deployment.command("rebuild")
    if done.returncode != 0:
        raise Violation(f"rebuild: exit code {done.returncode}: {done.stderr[-2000:]}")
    context.server.start()


FAULTS = {
    "kill": Fault(kill, 6, _INTERRUPTED),
    "kill-with-reaper": Fault(kill_with_reaper, 1, _INTERRUPTED),
    "kill-reaper": Fault(kill_reaper, 1),
    "kill-at-start": Fault(kill_at_start, 1, _INTERRUPTED),
    "kill-bare": Fault(kill_plain_command, 1, _INTERRUPTED),
    "term": Fault(term, 2, _STOPPED),
    "interrupt": Fault(interrupt, 1, _STOPPED),
    "hang-up": Fault(hang_up, 1, _STOPPED),
    "freeze": Fault(freeze, 2),
    "mix": Fault(mix, 2, _STOPPED, noisy=True),
    "disk": Fault(disk, 2, _STORAGE | _INTERRUPTED, noisy=True),
    # If the kill comes between a step that failed with a full disk and the outcome, the run fails with that step.
    "disk-and-kill": Fault(disk_and_kill, 1, _STORAGE | _INTERRUPTED | {"execution_error"}, noisy=True),
    "lock": Fault(lock, 1),
    "descriptors": Fault(descriptors, 1, _STARVED | _STOPPED, noisy=True),
    "memory": Fault(memory, 1, _STARVED | _STOPPED, noisy=True),
    "connections": Fault(connections, 1),
    "clock": Fault(clock, 2, frozenset({"answer_timeout"})),
    "database": Fault(database, 1, _STORAGE | _STOPPED, noisy=True),
}
