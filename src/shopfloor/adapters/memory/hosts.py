"""Hosts in memory: each registers itself, and leaves."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Generator
from contextlib import contextmanager

from shopfloor.adapters.memory.storage import MemoryStorage, StoredHost


def _ignore() -> None:
    """For hosts that nobody can end."""


class MemoryHosts:
    def __init__(self, storage: MemoryStorage) -> None:
        self._hosts = storage.hosts

    @contextmanager
    def register(
        self,
        host: str | None = None,
        *,
        is_dedicated: bool = False,
        interrupt: Callable[[], None] = _ignore,
        kill: Callable[[], None] = _ignore,
    ) -> Generator[str]:
        """A host is alive until the context is left, or until it is killed. Gives its name.

        `interrupt` and `kill` are called when somebody asks for them; only a dedicated host is ever asked.
        """
        host = host or f"memory-{uuid.uuid4().hex[:8]}"
        self._hosts[host] = StoredHost(is_dedicated, interrupt, kill)
        try:
            yield host
        finally:
            self._hosts.pop(host, None)

    async def is_alive(self, host: str) -> bool:
        return host in self._hosts

    async def is_dedicated(self, host: str) -> bool:
        return host in self._hosts and self._hosts[host].is_dedicated

    async def interrupt(self, host: str) -> None:
        if await self.is_dedicated(host):
            self._hosts[host].interrupt()

    async def kill(self, host: str) -> None:
        if await self.is_dedicated(host):
            self._hosts.pop(host).kill()
