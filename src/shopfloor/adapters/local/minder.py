"""The minder: a small process that ends a host's children when the host is gone, however it went.

It reads the groups to look after from its standard input: `+<group>` and `-<group>`, one to a line. The end of that
pipe is the host's death. Then it ends the groups that are still registered and every process that carries the host's
marker in its environment, whatever session or group it has moved to.

It runs as a script of its own, so this file needs nothing but the standard library.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import NamedTuple

HOST_MARKER = "SHOPFLOOR_HOST"
RUN_MARKER = "SHOPFLOOR_RUN"
CHILD_MARKER = "SHOPFLOOR_CHILD"
MARKERS = (HOST_MARKER, RUN_MARKER, CHILD_MARKER)

_PROC = Path("/proc")
_LOOKS = 3
_CMDLINE_BYTES = 4096


class Signalled(NamedTuple):
    """A process and the last signal that it was sent."""

    argv: list[str]
    number: signal.Signals


def family(groups: Collection[int], marker: str | None = None) -> list[int]:
    """The live processes that are in one of the groups or carry the marker (`NAME=value`) in their environment."""
    if not (_PROC / "self" / "stat").exists():
        return [group for group in groups if _group_exists(group)]
    wanted = b"\0" + marker.encode() + b"\0" if marker else None
    return [pid for pid in _pids() if _belongs(pid, groups, wanted)]


def _pids() -> Iterator[int]:
    own = os.getpid()
    return (pid for name in os.listdir(_PROC) if name.isdecimal() and (pid := int(name)) != own)


def _belongs(pid: int, groups: Collection[int], marker: bytes | None) -> bool:
    with contextlib.suppress(OSError):
        # After the name in brackets, which can hold anything: state, parent, group.
        state, _, group = (_PROC / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()[:3]
        if state in (b"Z", b"X"):
            return False
        if int(group) in groups:
            return True
        if marker:
            return marker in b"\0" + (_PROC / str(pid) / "environ").read_bytes()
    return False


def _group_exists(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except OSError:
        return False
    return True


def send(number: signal.Signals, groups: Collection[int], pids: Collection[int]) -> None:
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


def end(
    groups: Collection[int],
    marker: str,
    *,
    grace: float,
    patience: float,
    pause: float,
    signalled: dict[int, Signalled] | None = None,
) -> bool:
    """TERM, a grace, KILL, until nothing is left; False where something would not go.

    `signalled` gets every process that was found, by its pid.
    """
    found = {} if signalled is None else signalled
    members = family(groups, marker)
    if not members:
        return True
    found.update((pid, Signalled(command_line(pid), signal.SIGTERM)) for pid in members)
    send(signal.SIGTERM, groups, members)
    quiet = 0
    deadline = time.monotonic() + grace
    while (members := family(groups, marker)) and time.monotonic() < deadline:
        time.sleep(pause)
    # Gone is what is not seen several times in a row: a process that forks all the time can slip past one look.
    deadline = time.monotonic() + patience
    while quiet < _LOOKS and time.monotonic() < deadline:
        for pid in members:
            found[pid] = Signalled(found[pid].argv if pid in found else command_line(pid), signal.SIGKILL)
        send(signal.SIGKILL, groups, members)
        time.sleep(pause / _LOOKS)
        members = family(groups, marker)
        quiet = 0 if members else quiet + 1
    return not members


def watch(lines: Iterator[bytes]) -> set[int]:
    """The groups that are registered when the host's end of the pipe closes."""
    groups: set[int] = set()
    for line in lines:
        (groups.add if line[:1] == b"+" else groups.discard)(int(line[1:]))
    return groups


def main(host: str, grace: str, patience: str, pause: str) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    groups = watch(iter(sys.stdin.buffer.readline, b""))
    # Twice: a process that was between two programs has no environment to be read for an instant.
    for _ in range(2):
        end(groups, f"{HOST_MARKER}={host}", grace=float(grace), patience=float(patience), pause=float(pause))
        time.sleep(float(pause))


if __name__ == "__main__":
    main(*sys.argv[1:])
