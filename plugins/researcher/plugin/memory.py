"""Knowledge that outlives a job: one Markdown file per key under `memory/`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio

from plugin.files import is_safe_name, read_text, write_text
from plugin.settings import CHARS_PER_TOKEN, COMPACT_TOKENS, MEMORY_TOKENS

COMPACTED_KEY = "compacted"

Compact = Callable[[str], Awaitable[str]]
"""Condense the text of all memories."""


class InvalidMemory(Exception):
    """A memory that cannot be stored, as a message for the agent."""


class Memory:
    """The plugin's memories. Writing an existing key overwrites it."""

    def __init__(
        self, folder: Path, *, prompt_tokens: int = MEMORY_TOKENS, compact_tokens: int = COMPACT_TOKENS
    ) -> None:
        self._folder = folder
        self._prompt_chars = prompt_tokens * CHARS_PER_TOKEN
        self._compact_chars = compact_tokens * CHARS_PER_TOKEN
        self._lock = anyio.Lock()
        folder.mkdir(parents=True, exist_ok=True)

    async def store(self, key: str, content: str, compact: Compact | None = None) -> None:
        """Write a memory; condense all first if they would exceed the limit. Raises `InvalidMemory` for a bad key."""
        if not is_safe_name(key):
            raise InvalidMemory(
                f"invalid memory key {key!r}: use letters, digits, '.', '_' and '-', at most 100 characters"
            )
        async with self._lock:
            if compact is not None and 0 < self._compact_chars < self._size() + len(content):
                await self._compact(compact)
            write_text(self._path(key), content)

    def render(self) -> str:
        """Return the memories for a system prompt: the newest first, as many as fit."""
        parts: list[str] = []
        left = self._prompt_chars
        for path in sorted(self._paths(), key=lambda path: path.stat().st_mtime_ns, reverse=True):
            part = f"## {path.stem}\n\n{(read_text(path) or '').strip()}\n"
            if len(part) > left:
                break
            parts.append(part)
            left -= len(part)
        return "\n".join(parts)

    async def _compact(self, compact: Compact) -> None:
        paths = self._paths()
        if not paths:
            return
        condensed = await compact("\n\n".join(f"## {path.stem}\n\n{read_text(path) or ''}" for path in paths))
        if not condensed.strip():
            return
        # The condensed text first: a crash in between leaves a repetition, and loses nothing.
        write_text(self._path(COMPACTED_KEY), condensed)
        for path in paths:
            if path.stem != COMPACTED_KEY:
                path.unlink(missing_ok=True)

    def _size(self) -> int:
        return sum(path.stat().st_size for path in self._paths())

    def _paths(self) -> list[Path]:
        return [path for path in self._folder.glob("*.md") if not path.name.startswith(".")]

    def _path(self, key: str) -> Path:
        return self._folder / f"{key}.md"
