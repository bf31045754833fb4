"""Audit: who did what, from where and when."""

from __future__ import annotations

from typing import Protocol

import msgspec

from shopfloor.limits import AUDIT_TEXT_CHARS
from shopfloor.log import now


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An audited action."""

    at: str
    action: str
    """What was done: `run.dispatched`, `run.cancelled`, `token.made`, `login.failed`, …"""
    by: str
    """Who did it: the name of a token or session, or a process of this machine."""
    role: str | None = None
    address: str | None = None
    """Network address of the client."""
    client: str | None = None
    """What the client calls itself (its User-Agent). Not verified."""
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
    """Create an entry with the current time. Texts that clients choose are shortened."""
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
    """The audit log."""

    async def write(self, entry: AuditEntry) -> None:
        """Append an entry.

        Never raises: the action has already happened, so a failure to record it is logged as an error.
        """
        ...
