"""The audit log of a process, in its memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

import msgspec

from shopfloor.limits import AUDIT_ENTRIES_IN_MEMORY
from shopfloor.ports import AuditEntry


class MemoryAudit:
    """Implements `Audit` without a file; the oldest entries go where there are too many."""

    def __init__(self) -> None:
        self._entries: deque[AuditEntry] = deque(maxlen=AUDIT_ENTRIES_IN_MEMORY)

    async def write(self, entry: AuditEntry) -> None:
        self._entries.append(entry)

    def read(self) -> Iterator[dict[str, Any]]:
        """The entries, oldest first."""
        return iter([msgspec.to_builtins(entry) for entry in self._entries])
