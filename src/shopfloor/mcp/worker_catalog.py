"""The workers as a client sees them: the catalog, the agents that are installed, and the input for a task."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import anyio

from shopfloor.errors import InvalidInput
from shopfloor.mcp.limits import MCP_PROVIDERS_SECONDS
from shopfloor.mcp.session import Session
from shopfloor.views import input_from_task

Worker = Mapping[str, Any]


class CatalogCache:
    """Remembers the input schemas of workers and which agents are installed, for all calls of this process.

    A schema may be outdated: then the server refuses the input, and the schemas are fetched again.
    """

    def __init__(self) -> None:
        self._schemas: dict[str, Mapping[str, Any]] = {}
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
        workers, providers = cast("list[Worker]", catalog["workers"]), cast("list[Worker]", catalog["providers"])
        self._schemas = {worker["slug"]: worker["input_schema"] for worker in (*providers, *workers)}
        return workers, providers

    async def input_for_task(
        self, session: Session, worker: str, task: str, *, refresh: bool = False
    ) -> dict[str, Any]:
        """Return the input of a worker for a task. Raises `InvalidInput` if the worker has no single text input.

        The input of an unknown worker is empty: the server refuses the worker, with suggestions.
        """
        if refresh or worker not in self._schemas:
            await self.listed_workers(session)
        schema = self._schemas.get(worker)
        if schema is None:
            # A name that several projects have: the server chooses by the folder.
            schema = next((known for slug, known in self._schemas.items() if slug.endswith(f"/{worker}")), None)
        if schema is None:
            return {}
        try:
            return input_from_task(task, worker, schema)
        except InvalidInput:
            if refresh:
                raise
            return await self.input_for_task(session, worker, task, refresh=True)

    async def _usable_providers(self, session: Session) -> frozenset[str]:
        async with self._lock:
            if anyio.current_time() >= self._usable_until:
                self._usable = frozenset((await session.api.get("/api/providers"))["usable"])
                self._usable_until = anyio.current_time() + MCP_PROVIDERS_SECONDS
        return self._usable
