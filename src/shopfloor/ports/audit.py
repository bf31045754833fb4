"""Audit: who did what, from where and when."""

from __future__ import annotations

from typing import Protocol

import msgspec

from shopfloor.limits import AUDIT_TEXT_CHARS
from shopfloor.log import now


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    at: str
    action: str
    """What was done: `run.dispatched`, `run.cancelled`, `token.made`, `login.failed`, …"""
    by: str
    """Who did it: a token or a session by its name, or a process of this machine."""
    role: str | None = None
    address: str | None = None
    """Where the request came from."""
    client: str | None = None
    """What the client calls itself; anybody can claim anything."""
    run_id: str | None = None
    detail: str | None = None


def audit_entry(
    action: str,
    *,
    by: str,
    role: str | None = None,
    address: str | None = None,
    client: str | None = None,
    run_id: str | None = None,
    detail: str | None = None,
) -> AuditEntry:
    """Make the entry of this moment. Texts that others choose are shortened."""
    return AuditEntry(
        at=now(),
        action=action,
        by=by[:AUDIT_TEXT_CHARS],
        role=role,
        address=address,
        client=client and client[:AUDIT_TEXT_CHARS],
        run_id=run_id,
        detail=detail and detail[:AUDIT_TEXT_CHARS],
    )


class Audit(Protocol):
    async def write(self, entry: AuditEntry) -> None:
        """Append an entry. Never raises: what was done is done, so a failure is logged as an error."""
        ...
