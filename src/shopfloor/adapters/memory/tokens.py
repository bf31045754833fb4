"""The access to a storage, in this process's memory."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import TypeVar

from shopfloor.ports import Access

T = TypeVar("T")


class MemoryTokens:
    """Implements `Tokens` without a file: nobody outside this process has access."""

    def __init__(self) -> None:
        self._access = Access()
        self._storage_name = secrets.token_hex(4)

    @property
    def storage_name(self) -> str:
        return self._storage_name

    async def read(self) -> Access:
        return self._access

    async def update(self, change: Callable[[Access], tuple[Access, T]]) -> T:
        self._access, result = change(self._access)
        return result
