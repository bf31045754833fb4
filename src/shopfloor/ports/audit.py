"""Audit: who did what, from where and when."""

from __future__ import annotations

from typing import Protocol


class Audit(Protocol):
    async def write(
        self,
        action: str,
        *,
        by: str,
        role: str | None = None,
        address: str | None = None,
        client: str | None = None,
        run_id: str | None = None,
        detail: str | None = None,
    ) -> None:
        """Append an entry. Never raises: what was done is done, so a failure is logged as an error."""
        ...
