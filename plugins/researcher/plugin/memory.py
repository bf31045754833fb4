"""Knowledge that outlives a job: one Markdown file per key under `memory/`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from plugin.files import is_safe_name, read_text, write_text
from plugin.settings import CHARS_PER_TOKEN, COMPACT_TOKENS, MEMORY_KEYS, MEMORY_TOKENS

COMPACTED_KEY = "compacted"
"""The key of the condensed memories."""

Condense = Callable[[str], Awaitable[str]]
"""Return the text of memories in fewer words; empty if that failed."""


class InvalidMemory(Exception):
    """A memory that cannot be stored, as a message for the agent."""


@dataclass(frozen=True)
class _Entry:
    key: str
    content: str

    @property
    def markdown(self) -> str:
        return f"## {self.key}\n\n{self.content.strip()}\n"


class Memory:
    """The plugin's memories. Writing an existing key overwrites it. Sizes are numbers of characters."""

    def __init__(
        self,
        folder: Path,
        *,
        prompt_tokens: int = MEMORY_TOKENS,
        compact_tokens: int = COMPACT_TOKENS,
        max_keys: int = MEMORY_KEYS,
    ) -> None:
        self._folder = folder
        self._prompt_chars = prompt_tokens * CHARS_PER_TOKEN
        self._compact_chars = compact_tokens * CHARS_PER_TOKEN
        self._max_keys = max_keys
        self._compact_lock = asyncio.Lock()
        folder.mkdir(parents=True, exist_ok=True)

    def store(self, key: str, content: str) -> None:
        """Write a memory. Raises `InvalidMemory` for a bad key and for a limit."""
        if not is_safe_name(key):
            raise InvalidMemory(
                f"invalid memory key {key!r}: use letters, digits, '.', '_' and '-', at most 100 characters"
            )
        if key == COMPACTED_KEY:
            raise InvalidMemory(f"the memory key {key!r} is reserved for condensed memories: use another one")
        if len(content) > self._prompt_chars:
            raise InvalidMemory(f"the memory has {len(content)} characters; at most {self._prompt_chars} are allowed")
        known = {path.stem for path in self._paths()}
        if key not in known and len(known) >= self._max_keys:
            raise InvalidMemory(f"there are {self._max_keys} memories already: overwrite one of them")
        write_text(self._path(key), content)

    def render(self) -> str:
        """Return the memories for a system prompt: the newest first, as many as fit, the first one cut if needed."""
        shown = _fitting(self._load(), self._prompt_chars)
        return "\n".join(entry.markdown for entry in shown)[: self._prompt_chars]

    async def compact(self, condense: Condense) -> None:
        """Replace the memories by a condensed text if they exceed the limit. They stay if condensing fails."""
        # Only one at a time: each costs money.
        async with self._compact_lock:
            entries = self._load()
            if not 0 < self._compact_chars < sum(len(entry.content) for entry in entries):
                return
            # The text of the last time comes first: it would be overwritten.
            entries.sort(key=lambda entry: entry.key != COMPACTED_KEY)
            condensed = _fitting(entries, 2 * self._compact_chars)
            text = (await condense("\n".join(entry.markdown for entry in condensed))).strip()
            # Another job may have stored a memory meanwhile.
            if not 0 < len(text) <= self._prompt_chars or not set(condensed) <= set(self._load()):
                return
            # The condensed text first: a crash in between leaves a repetition, and loses nothing.
            write_text(self._path(COMPACTED_KEY), text)
            for entry in condensed:
                if entry.key != COMPACTED_KEY:
                    self._path(entry.key).unlink(missing_ok=True)

    def _load(self) -> list[_Entry]:
        """Read the memories, newest first."""
        paths = sorted(self._paths(), key=lambda path: path.stat().st_mtime_ns, reverse=True)
        return [_Entry(path.stem, read_text(path) or "") for path in paths]

    def _paths(self) -> list[Path]:
        return [path for path in self._folder.glob("*.md") if not path.name.startswith(".")]

    def _path(self, key: str) -> Path:
        return self._folder / f"{key}.md"


def _fitting(entries: Sequence[_Entry], limit_chars: int) -> list[_Entry]:
    """Return the first entries, as many as fit, and at least one."""
    found: list[_Entry] = []
    for entry in entries:
        limit_chars -= len(entry.markdown) + 1
        if limit_chars < 0 and found:
            break
        found.append(entry)
    return found
