"""The audit log of a process, in its memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

import msgspec

from shopfloor.limits import AUDIT_ENTRIES_IN_MEMORY
from shopfloor.ports import AuditEntry, new_audit_entry


class MemoryAudit:
    """Implements `Audit` without a file; the oldest entries go where there are too many."""

    def __init__(self) -> None:
        self._entries: deque[AuditEntry] = deque(maxlen=AUDIT_ENTRIES_IN_MEMORY)

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
        self._entries.append(
            new_audit_entry(action, by=by, role=role, address=address, client=client, run_id=run_id, detail=detail)
        )

    def read(self) -> Iterator[dict[str, Any]]:
        """The entries, oldest first."""
        return iter([msgspec.to_builtins(entry) for entry in self._entries])
