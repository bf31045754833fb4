"""The reaper: a small process that ends a host's children when the host is gone, however it went.

It reads what to do from its standard input, one order to a line: `+<group>` and `-<group>` for the groups to look
after, and `!<marker>` to end the processes with that marker now, where the host itself cannot: it may have no
descriptor left to list the processes with, and the reaper has a table of its own. The end of that pipe is the host's
death. Then it ends the groups that are still registered and every process that carries the host's marker in its
environment, whatever session or group it has moved to.

It runs as a script of its own, so this file needs nothing but the standard library.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection, Generator, Iterator
from pathlib import Path
from typing import NamedTuple

HOST_MARKER = "SHOPFLOOR_HOST"
RUN_MARKER = "SHOPFLOOR_RUN"
CHILD_MARKER = "SHOPFLOOR_CHILD"
MARKERS = (HOST_MARKER, RUN_MARKER, CHILD_MARKER)

_PROC = Path("/proc")
_LOOKS = 3
_CMDLINE_BYTES = 4096
_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
_ROUNDS = 10
"""How often the reaper tries to end what the host left before it gives up."""


class SignaledProcess(NamedTuple):
    """A process and the last signal that it was sent."""

    argv: list[str]
    number: signal.Signals


class _Reserve:
    """A descriptor that is held only to be given up when no other is left, so that /proc can still be read."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._descriptor: int | None = None

    def fill(self) -> None:
        with self._lock:
            self._fill()

    def _fill(self) -> None:
        if self._descriptor is None:
            with contextlib.suppress(OSError):
                self._descriptor = os.open(os.devnull, os.O_RDONLY)

    @contextlib.contextmanager
    def released(self) -> Generator[None]:
        """Give the descriptor up for as long as the context lasts. Another thread may be faster in taking it."""
        with self._lock:
            if self._descriptor is not None:
                os.close(self._descriptor)
                self._descriptor = None
            try:
                yield
            finally:
                self._fill()


SPARE_DESCRIPTOR = _Reserve()


def try_find_processes(groups: Collection[int], marker: str | None = None) -> list[int] | None:
    """As `find_processes`; None where the processes cannot be listed for now."""
    with contextlib.suppress(OSError):
        return find_processes(groups, marker)
    with contextlib.suppress(OSError), SPARE_DESCRIPTOR.released():
        return find_processes(groups, marker)
    return None


def find_processes(groups: Collection[int], marker: str | None = None) -> list[int]:
    """The live processes that are in one of the groups or carry the marker (`NAME=value`) in their environment.

    Raises OSError where they cannot be listed, as without a free descriptor: then nobody knows that they are gone.
    """
    if not (_PROC / "self" / "stat").exists():
        return [group for group in groups if _group_exists(group)]
    wanted = b"\0" + marker.encode() + b"\0" if marker else None
    return [pid for pid in _pids() if _belongs(pid, groups, wanted)]


def _pids() -> Iterator[int]:
    own = os.getpid()
    return (pid for name in os.listdir(_PROC) if name.isdecimal() and (pid := int(name)) != own)


def _belongs(pid: int, groups: Collection[int], marker: bytes | None) -> bool:
    try:
        # After the name in brackets, which can hold anything: state, parent, group and, as the 21st, the memory.
        fields = (_PROC / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()
        # A process without memory is exiting: it has executed its last instruction.
        if fields[0] in (b"Z", b"X") or fields[20] == b"0":
            return False
        if int(fields[2]) in groups:
            return True
        return marker is not None and marker in b"\0" + (_PROC / str(pid) / "environ").read_bytes()
    except OSError as error:
        if error.errno in _EXHAUSTED:
            raise
        # The process is gone, or it is somebody else's.
        return False


def _group_exists(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except OSError:
        return False
    return True


def send_signal(number: signal.Signals, groups: Collection[int], pids: Collection[int]) -> None:
    for group in groups:
        with contextlib.suppress(OSError):
            os.killpg(group, number)
    for pid in pids:
        with contextlib.suppress(OSError):
            os.kill(pid, number)


def command_line(pid: int) -> list[str]:
    """What a process was started with; empty where the system does not tell."""
    with contextlib.suppress(OSError), (_PROC / str(pid) / "cmdline").open("rb") as file:
        return [word.decode(errors="replace") for word in file.read(_CMDLINE_BYTES).split(b"\0") if word]
    return []


def terminate(
    groups: Collection[int],
    marker: str,
    *,
    grace: float,
    kill_timeout: float,
    pause: float,
    signaled: dict[int, SignaledProcess] | None = None,
) -> bool:
    """TERM, a grace, KILL, until nothing is left; False where something would not go, or nobody could look.

    `signaled` gets every process that was found, by its pid.
    """
    found = {} if signaled is None else signaled
    members = try_find_processes(groups, marker)
    if members == []:
        return True
    found.update((pid, SignaledProcess(command_line(pid), signal.SIGTERM)) for pid in members or ())
    send_signal(signal.SIGTERM, groups, members or ())
    quiet = 0
    deadline = time.monotonic() + grace
    while (members := try_find_processes(groups, marker)) != [] and time.monotonic() < deadline:
        time.sleep(pause)
    # Gone is what is not seen several times in a row: a process that forks all the time can slip past one look.
    deadline = time.monotonic() + kill_timeout
    while quiet < _LOOKS and time.monotonic() < deadline:
        for pid in members or ():
            found[pid] = SignaledProcess(found[pid].argv if pid in found else command_line(pid), signal.SIGKILL)
        send_signal(signal.SIGKILL, groups, members or ())
        time.sleep(pause / _LOOKS)
        members = try_find_processes(groups, marker)
        quiet = quiet + 1 if members == [] else 0
    return members == []


def read_groups(lines: Iterator[bytes], terminate_marked: Callable[[str], object] = lambda marker: None) -> set[int]:
    """The groups that are registered when the host's end of the pipe closes."""
    groups: set[int] = set()
    for line in lines:
        match line[:1]:
            case b"!":
                terminate_marked(line[1:].strip().decode())
            case b"+":
                groups.add(int(line[1:]))
            case _:
                groups.discard(int(line[1:]))
    return groups


def main(host: str, grace: str, kill_timeout: str, pause: str) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)

    def end_marked(groups: Collection[int], marker: str, grace: float) -> bool:
        return terminate(groups, marker, grace=grace, kill_timeout=float(kill_timeout), pause=float(pause))

    groups = read_groups(iter(sys.stdin.buffer.readline, b""), lambda marker: end_marked((), marker, 0))
    # At least twice: a process that was between two programs has no environment to be read for an instant.
    for turn in range(_ROUNDS):
        is_gone = end_marked(groups, f"{HOST_MARKER}={host}", float(grace))
        time.sleep(float(pause))
        if is_gone and turn:
            break


if __name__ == "__main__":
    main(*sys.argv[1:])
