"""The workers as a client sees them: the catalog, and the agents that are installed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import anyio

from shopfloor.mcp.limits import MCP_PROVIDERS_SECONDS
from shopfloor.mcp.session import Session

Worker = Mapping[str, Any]


class CatalogCache:
    """Remembers which agents are installed, for all calls of this process."""

    def __init__(self) -> None:
        self._usable: frozenset[str] = frozenset()
        self._usable_until = 0.0
        self._lock = anyio.Lock()

    async def workers(self, session: Session) -> list[Worker]:
        """Return all workers: those of the catalog, then the agents and model APIs that can be used here."""
        listed, usable = await self.listed_workers(session), await self._usable_providers(session)
        return [*listed[0], *(worker for worker in listed[1] if worker["slug"] in usable)]

    async def listed_workers(self, session: Session) -> tuple[list[Worker], list[Worker]]:
        """Return the workers of the catalog, and the workers that pass a task directly to an agent or model API."""
        catalog = await session.api.get("/api/workers")
        return cast("list[Worker]", catalog["workers"]), cast("list[Worker]", catalog["providers"])

    async def _usable_providers(self, session: Session) -> frozenset[str]:
        async with self._lock:
            if anyio.current_time() >= self._usable_until:
                self._usable = frozenset((await session.api.get("/api/providers"))["usable"])
                self._usable_until = anyio.current_time() + MCP_PROVIDERS_SECONDS
        return self._usable
