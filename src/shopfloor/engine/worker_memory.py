"""The memory of a worker: texts under short keys that outlive its runs."""

from __future__ import annotations

from collections.abc import Sequence

import anyio
import msgspec

from shopfloor.errors import ToolFailed
from shopfloor.limits import CHARS_PER_TOKEN, MEMORY_COMPACT_TOKENS, MEMORY_KEYS, MEMORY_PROMPT_TOKENS
from shopfloor.ports import BlobInfo, Blobs, validate_name

PROMPT_CHARS = MEMORY_PROMPT_TOKENS * CHARS_PER_TOKEN
"""How much memory goes into a system prompt; also the length of one memory."""
COMPACT_CHARS = MEMORY_COMPACT_TOKENS * CHARS_PER_TOKEN
"""The length of all memories above which they are condensed."""
COMPACT_PROMPT = (
    "Condense these notes to at most half of their length. Keep every fact that may help with later tasks, merge "
    "repetitions and drop what is outdated. Answer with the condensed notes only."
)
_COMPACTED_KEY = "compacted"
_HEADING = "# What you remember from earlier runs"


class Memory(msgspec.Struct, frozen=True):
    """A stored text."""

    info: BlobInfo
    content: str

    @property
    def markdown(self) -> str:
        """The text below its key."""
        return f"## {self.info.name}\n\n{self.content.strip()}\n"


class WorkerMemory:
    """The memories of one worker. All of its runs, in any process, share them."""

    def __init__(self, blobs: Blobs, folder: str) -> None:
        self._blobs = blobs
        self._folder = folder

    async def store(self, key: str, content: str) -> None:
        """Store a memory; overwrite the one with the same key. Raises `InvalidName`, `ToolFailed` for a limit."""
        validate_name(key, "the key")
        if key == _COMPACTED_KEY:
            raise ToolFailed(f"the key {key!r} is reserved for condensed memories: choose another key")
        if len(content) > PROMPT_CHARS:
            raise ToolFailed(f"the memory has {len(content):,} characters; at most {PROMPT_CHARS:,} are allowed")
        known = {info.name for info in await self._blobs.list(self._folder)}
        if key not in known and len(known) >= MEMORY_KEYS:
            raise ToolFailed(f"the worker has {MEMORY_KEYS:,} memories already: overwrite one of them")
        # Lone surrogates can come from a model's JSON, and UTF-8 has no bytes for them.
        await self._blobs.put(f"{self._folder}/{key}", content.encode("utf-8", "replace"))

    async def load(self) -> list[Memory]:
        """Return all memories, newest first."""
        memories: list[Memory] = []
        for info in await self._blobs.list(self._folder):
            content = await self._blobs.get(f"{self._folder}/{info.name}")
            if content is not None:
                memories.append(Memory(info, content.decode("utf-8", "replace")))
        return memories

    async def replace(self, condensed: Sequence[Memory], text: str) -> bool:
        """Replace memories by a text that condenses them. Return False if the text is unusable or they have changed."""
        text = text.strip()
        current = set(await self._blobs.list(self._folder))
        if not 0 < len(text) <= PROMPT_CHARS or not {memory.info for memory in condensed} <= current:
            return False
        # The condensed text first: a crash in between leaves a repetition, and loses nothing.
        with anyio.CancelScope(shield=True):
            await self._blobs.put(f"{self._folder}/{_COMPACTED_KEY}", text.encode("utf-8", "replace"))
            for memory in condensed:
                if memory.info.name != _COMPACTED_KEY:
                    await self._blobs.delete(f"{self._folder}/{memory.info.name}")
        return True


def compactable(memories: Sequence[Memory]) -> list[Memory]:
    """Return the memories to condense: none below the limit, else the newest that fit into one request."""
    if sum(len(memory.content) for memory in memories) <= COMPACT_CHARS:
        return []
    # Always with the text that was condensed before: the new one takes its place.
    return _newest(sorted(memories, key=lambda memory: memory.info.name != _COMPACTED_KEY), 2 * COMPACT_CHARS)


def add_memories(system: str | None, memories: Sequence[Memory]) -> str | None:
    """Return a system prompt followed by the newest memories, as many as fit."""
    shown = [memory.markdown for memory in _newest(memories, PROMPT_CHARS)]
    parts = [system] if system else []
    return "\n\n".join([*parts, "\n\n".join([_HEADING, *shown])]) if shown else system


def _newest(memories: Sequence[Memory], limit_chars: int) -> list[Memory]:
    found: list[Memory] = []
    for memory in memories:
        limit_chars -= len(memory.markdown)
        if limit_chars < 0 and found:
            break
        found.append(memory)
    return found
