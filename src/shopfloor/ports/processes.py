"""Processes: starting, reading and ending child processes, in the same way for all providers."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Final, Literal, NamedTuple, Protocol

import msgspec

from shopfloor.log import EndedProcess

StreamName = Literal["stdout", "stderr"]

_OWN_PREFIX: Final = "SHOPFLOOR_"
_INHERITED: Final = frozenset({"SHOPFLOOR_STORAGE"})
"""Our variables that children inherit: a `shopfloor` inside a command uses the same storage."""


def child_environment(env: Mapping[str, str]) -> dict[str, str]:
    """Return the part of our environment that children inherit: everything except our own settings and secrets.

    Otherwise `SHOPFLOOR_TOKEN` and the keys of models would be in the log of every command that prints its environment.
    """
    return {name: value for name, value in env.items() if not name.startswith(_OWN_PREFIX) or name in _INHERITED}


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """A program to run. `env` is added to the inherited environment."""

    argv: list[str]
    cwd: str
    env: dict[str, str] = {}
    stdin: bytes = b""
    """The content of the standard input."""
    keeps_stdin_open: bool = False
    """Whether `Child.write` adds to the standard input, until `Child.close_stdin`. Otherwise it ends after `stdin`."""
    inherits_stdin: bool = False
    """Let the program read our standard input directly. `stdin` is empty then."""


class OutputChunk(NamedTuple):
    """A chunk of output."""

    stream: StreamName
    data: bytes


class Exit(msgspec.Struct, frozen=True):
    """How a process ended: its exit code, or the signal that killed it."""

    code: int
    signal: str | None = None
    outlived: bool = False
    """Whether a process that it started continues to run and cannot be ended."""
    ended_processes: list[EndedProcess] = []
    """Processes that outlived it and were ended."""

    @property
    def shell_code(self) -> int:
        """The exit code that a shell would report."""
        return self.code if self.signal is None else 128 + self.code


class Child(Protocol):
    """A process and its descendants. It does nothing until `release()`."""

    @property
    def pid(self) -> int: ...

    def release(self) -> None:
        """Start the program. Call this after recording what must be in the log before."""
        ...

    async def read(self) -> OutputChunk | None:
        """Return the next output, or None at the end. Loses nothing if cancelled."""
        ...

    async def write(self, data: bytes) -> None:
        """Add to the standard input of a command that keeps it open. Does nothing if the program reads no more."""
        ...

    def close_stdin(self) -> None:
        """End the standard input of a command that keeps it open."""
        ...

    async def wait(self) -> Exit:
        """Wait until the program and its remaining descendants have ended."""
        ...

    async def stop(self, grace: float) -> None:
        """Terminate the process and its descendants; kill them after `grace` seconds."""
        ...

    async def kill(self) -> None:
        """Kill the process and its descendants."""
        ...


class Processes(Protocol):
    """Launcher of child processes."""

    def start(self, command: Command, *, run_id: str | None) -> AbstractAsyncContextManager[Child]:
        """Start a child that waits for `release()`. Leaving the context kills the remaining processes.

        `run_id` is None for a process that belongs to no run, such as a plugin.
        """
        ...
