"""Logs: where a run's events go."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Protocol

from shopfloor.log import Entry, Payload


class Log(Protocol):
    """One run's log, open for writing by us alone."""

    @property
    def run_id(self) -> str: ...

    async def append(
        self, payload: Payload, *, path: str = "", iteration: int = 0, child_run_id: str | None = None
    ) -> Entry:
        """Returns when the log's authority has the event."""
        ...


class Logs(Protocol):
    def open(self, run_id: str, *, parent_run_id: str | None = None) -> AbstractAsyncContextManager[Log]:
        """The log of a run, made if there is none, repaired if a crash tore it."""
        ...

    def room(self) -> int:
        """Bytes that can still be written before runs have to end; less than 0 where they have to now."""
        ...
