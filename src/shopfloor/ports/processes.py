"""Processes: how a command is started, heard and ended, for every provider alike."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Final, Literal, NamedTuple, Protocol

import msgspec

from shopfloor.log import EndedProcess

StreamName = Literal["stdout", "stderr"]

_OWN_PREFIX: Final = "SHOPFLOOR_"
_INHERITED: Final = frozenset({"SHOPFLOOR_STORAGE"})
"""Variables of ours that children get on purpose: a `shopfloor` inside a command works on the same storage."""


def child_environment(env: Mapping[str, str]) -> dict[str, str]:
    """Give what a child gets of our environment: everything but our own settings and secrets.

    `SHOPFLOOR_TOKEN` and the keys of models would otherwise be in the log of every command that prints its environment.
    """
    return {name: value for name, value in env.items() if not name.startswith(_OWN_PREFIX) or name in _INHERITED}


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """A program to run. `env` is added to what children get of our own environment."""

    argv: list[str]
    cwd: str
    env: dict[str, str] = {}
    stdin: bytes = b""
    """What it reads on its standard input; nothing where it is empty."""
    inherits_stdin: bool = False
    """It reads our own standard input, itself: nothing is copied. Then `stdin` is empty."""


class OutputChunk(NamedTuple):
    """Some output, as it came."""

    stream: StreamName
    data: bytes


class Exit(msgspec.Struct, frozen=True):
    """How a process ended: its exit code, or the signal that killed it."""

    code: int
    signal: str | None = None
    outlived: bool = False
    """True where something that it started goes on, out of our reach."""
    ended_processes: list[EndedProcess] = []
    """What outlived it, within our reach, and was ended."""

    @property
    def shell_code(self) -> int:
        """The code that a shell would report."""
        return self.code if self.signal is None else 128 + self.code


class Child(Protocol):
    """A process with everything it starts. It does nothing until `release()`."""

    @property
    def pid(self) -> int: ...

    def release(self) -> None:
        """Lets the program begin: whatever has to be on record before that, is."""
        ...

    async def read(self) -> OutputChunk | None:
        """The next output; None when there will be no more. Being cancelled loses nothing."""
        ...

    async def wait(self) -> Exit:
        """Waits until the program has ended, and what it left behind too."""
        ...

    async def stop(self, grace: float) -> None:
        """Asks the whole family to end, and after `grace` seconds makes it."""
        ...

    async def kill(self) -> None:
        """Ends the whole family now."""
        ...


class Processes(Protocol):
    def start(self, command: Command, *, run_id: str) -> AbstractAsyncContextManager[Child]:
        """A child that waits for `release()`. Leaving the context ends whatever is left of it."""
        ...
