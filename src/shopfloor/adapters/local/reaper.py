"""The reaper: a small process that terminates the children of a host when the host ends, however it ends.

The reaper reads commands from its standard input, one per line: `+<group>` registers a process group, `-<group>`
unregisters it, and `!<marker>` terminates the processes with that marker now. The host sends `!<marker>` if it cannot
terminate these processes itself, for example if it has no free file descriptor for listing processes; the reaper has
its own descriptors.
When the pipe closes, the host has ended. Then the reaper terminates the groups that are still registered and every
process with the host's marker in its environment, whatever session or group that process has moved to.

The reaper runs as a script, so this file imports the standard library only.
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
_EMPTY_SCANS = 3
_CMDLINE_BYTES = 4096
_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
_ROUNDS = 10
"""How often the reaper tries to terminate the host's processes before it gives up."""


class SignaledProcess(NamedTuple):
    """The command line of a process, and the last signal sent to it."""

    argv: list[str]
    number: signal.Signals


class _SpareDescriptor:
    """A file descriptor held in reserve, so that /proc can still be read when no other descriptor is free."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._descriptor: int | None = None

    def fill(self) -> None:
        """Open the descriptor, unless it is open or none is free."""
        with self._lock:
            self._fill()

    def _fill(self) -> None:
        if self._descriptor is None:
            with contextlib.suppress(OSError):
                self._descriptor = os.open(os.devnull, os.O_RDONLY)

    @contextlib.contextmanager
    def released(self) -> Generator[None]:
        """Release the descriptor within the context. Another thread may take it first."""
        with self._lock:
            if self._descriptor is not None:
                os.close(self._descriptor)
                self._descriptor = None
            try:
                yield
            finally:
                self._fill()


SPARE_DESCRIPTOR = _SpareDescriptor()


def try_find_processes(groups: Collection[int], marker: str | None = None) -> list[int] | None:
    """Call `find_processes`, if necessary with the spare descriptor. Return None if processes cannot be listed now."""
    with contextlib.suppress(OSError):
        return find_processes(groups, marker)
    with contextlib.suppress(OSError), SPARE_DESCRIPTOR.released():
        return find_processes(groups, marker)
    return None


def find_processes(groups: Collection[int], marker: str | None = None) -> list[int]:
    """Return the live processes that are in one of the groups or have the marker (`NAME=value`) in their environment.

    Raises `OSError` if processes cannot be listed, for example without a free descriptor: an empty list would wrongly
    mean that they are gone.
    """
    if not (_PROC / "self" / "stat").exists():
        return [group for group in groups if _group_exists(group)]
    encoded_marker = b"\0" + marker.encode() + b"\0" if marker else None
    return [pid for pid in _pids() if _belongs(pid, groups, encoded_marker)]


def _pids() -> Iterator[int]:
    own = os.getpid()
    return (pid for name in os.listdir(_PROC) if name.isdecimal() and (pid := int(name)) != own)


def _belongs(pid: int, groups: Collection[int], marker: bytes | None) -> bool:
    try:
        # After the name in brackets, which can contain anything: state, parent, group and, as the 21st field, memory.
        fields = (_PROC / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()
        # A process without memory is exiting and executes no more instructions.
        if fields[0] in (b"Z", b"X") or fields[20] == b"0":
            return False
        if int(fields[2]) in groups:
            return True
        return marker is not None and marker in b"\0" + (_PROC / str(pid) / "environ").read_bytes()
    except OSError as error:
        if error.errno in _EXHAUSTED:
            raise
        # The process has ended, or belongs to another user.
        return False


def _group_exists(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except OSError:
        return False
    return True


def send_signal(number: signal.Signals, groups: Collection[int], pids: Collection[int]) -> None:
    """Send a signal to process groups and processes. Those that have ended are ignored."""
    for group in groups:
        with contextlib.suppress(OSError):
            os.killpg(group, number)
    for pid in pids:
        with contextlib.suppress(OSError):
            os.kill(pid, number)


def command_line(pid: int) -> list[str]:
    """Return the command line of a process; empty if the system does not report it."""
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
    """Send SIGTERM, and after `grace` seconds SIGKILL until no process is left. Blocks meanwhile.

    Returns False if processes are still alive after `kill_timeout` seconds more, or could not be listed. `signaled`
    receives every process found, by its pid.
    """
    found = {} if signaled is None else signaled
    members = try_find_processes(groups, marker)
    if members == []:
        return True
    found.update((pid, SignaledProcess(command_line(pid), signal.SIGTERM)) for pid in members or ())
    send_signal(signal.SIGTERM, groups, members or ())
    empty_scans = 0
    deadline = time.monotonic() + grace
    while (members := try_find_processes(groups, marker)) != [] and time.monotonic() < deadline:
        time.sleep(pause)
    # Require several empty scans in a row: a process that forks continuously can escape a single scan.
    deadline = time.monotonic() + kill_timeout
    while empty_scans < _EMPTY_SCANS and time.monotonic() < deadline:
        for pid in members or ():
            found[pid] = SignaledProcess(found[pid].argv if pid in found else command_line(pid), signal.SIGKILL)
        send_signal(signal.SIGKILL, groups, members or ())
        time.sleep(pause / _EMPTY_SCANS)
        members = try_find_processes(groups, marker)
        empty_scans = empty_scans + 1 if members == [] else 0
    return members == []


def read_groups(lines: Iterator[bytes], terminate_marked: Callable[[str], object] = lambda marker: None) -> set[int]:
    """Execute the host's commands, and return the groups that are registered when the host closes the pipe."""
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
    """Serve the host on standard input until it ends, then terminate its processes."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)

    def terminate_marked(groups: Collection[int], marker: str, grace: float) -> bool:
        return terminate(groups, marker, grace=grace, kill_timeout=float(kill_timeout), pause=float(pause))

    groups = read_groups(iter(sys.stdin.buffer.readline, b""), lambda marker: terminate_marked((), marker, 0))
    # At least twice: during `exec` the environment of a process cannot be read for an instant.
    for round_number in range(_ROUNDS):
        is_gone = terminate_marked(groups, f"{HOST_MARKER}={host}", float(grace))
        time.sleep(float(pause))
        if is_gone and round_number:
            break


if __name__ == "__main__":
    main(*sys.argv[1:])
