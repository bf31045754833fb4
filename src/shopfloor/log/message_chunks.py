"""Incomplete messages: deltas for live viewers, the chunks that the log stores, and how chunks are merged.

While a message is generated, viewers get its text as deltas. The log gets the same text as chunks from time to time,
and then the complete message, which supersedes them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from shopfloor.log.blocks import Block, ChunkKind, StreamBlock, TextBlock, ThinkingBlock
from shopfloor.log.payloads import AssistantMessage


class Delta(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """New text of one block of a message that is still being generated."""

    after: int
    """The `seq` of the last event before the delta."""
    path: str
    """The step."""
    iteration: int = 0
    message_id: str
    """The `message_id` that the complete message will have in the log."""
    block: int
    """The index of the block in the message, from 0."""
    kind: ChunkKind
    """The kind of the block."""
    offset: int
    """The number of characters of the block before this delta."""
    text: str
    """The new text; for `tool_input` a fragment of JSON."""
    tool_name: str | None = None
    """For `tool_input`: the tool."""
    tool_id: str | None = None
    """For `tool_input`: the call."""


INTERRUPTED_STOP: Final = "interrupted"
"""The stop reason of a message that was interrupted. Such a message supersedes its chunks, as a complete one would."""

_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_HIGH_SURROGATE: Final = re.compile("[\ud800-\udbff]")
_MISSING: Final = "…"
_FIDELITY: Final = "agent_emitted"


def chunk_blocks(message: AssistantMessage) -> Iterator[tuple[StreamBlock, ChunkKind, int, int]]:
    """Iterate over the blocks that are chunks, each with its kind, its block number and its offset."""
    for block in message.blocks:
        if isinstance(block, StreamBlock) and block.kind and block.block is not None and block.offset is not None:
            yield block, block.kind, block.block, block.offset


def is_message_chunk(message: AssistantMessage) -> bool:
    """Return whether an event contains only chunks of a message."""
    # Called for every message of every log; most are decided by the first block.
    return (
        bool(message.blocks)
        and isinstance(message.blocks[0], StreamBlock)
        and sum(1 for _ in chunk_blocks(message)) == len(message.blocks)
    )


def supersedes_chunks(message: AssistantMessage) -> bool:
    """Return whether an event has complete blocks of a message: its earlier chunks are then no longer valid."""
    return message.message_id is not None and bool(message.blocks) and not is_message_chunk(message)


class _PartialBlock(msgspec.Struct):
    """One block: its text since the last complete message in the log, and how much of that text chunks contain."""

    kind: ChunkKind
    tool_name: str | None = None
    tool_id: str | None = None
    base: int = 0
    """The number of characters before the text."""
    texts: list[str] = []
    length: int = 0
    written: str = ""
    """The text that chunks contain so far."""

    @property
    def text(self) -> str:
        self.texts = ["".join(self.texts)]
        return _join_surrogates(self.texts[0])

    @property
    def stable_text(self) -> str:
        """The text without an unpaired surrogate at its end: the second half may still follow."""
        text = "".join(self.texts)
        return _join_surrogates(text[:-1]) if _HIGH_SURROGATE.fullmatch(text[-1:]) else self.text


def _join_surrogates(text: str) -> str:
    """Replace each pair of surrogates by its character: the halves of a pair can arrive in two deltas."""
    if not _SURROGATE.search(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


class PartialMessage:
    """A message that is still being generated: the text of its blocks so far."""

    def __init__(self, message_id: str, *, model: str | None = None) -> None:
        self.message_id = message_id
        self._model = model
        self._blocks: dict[int, _PartialBlock] = {}

    @property
    def has_text(self) -> bool:
        """Whether there is text that no complete message in the log contains."""
        return any(partial.length for partial in self._blocks.values())

    def append_text(
        self, block: int, kind: ChunkKind, text: str, *, tool_name: str | None = None, tool_id: str | None = None
    ) -> int:
        """Append text to a block and return its offset: the number of characters of the block before it."""
        partial = self._blocks.get(block)
        if partial is None or partial.kind != kind:
            partial = self._blocks[block] = _PartialBlock(kind=kind, tool_name=tool_name, tool_id=tool_id, texts=[])
        offset = partial.base + partial.length
        partial.texts.append(text)
        partial.length += len(text)
        return offset

    def merge_chunk(self, chunk: AssistantMessage) -> None:
        """Add the text of a chunk from the log. Text that is already present is not added twice."""
        for block, kind, number, offset in chunk_blocks(chunk):
            partial = self._blocks.get(number)
            if partial is None:
                partial = self._blocks[number] = _PartialBlock(kind=kind, base=offset, texts=[])
            partial.tool_name, partial.tool_id = partial.tool_name or block.tool_name, partial.tool_id or block.tool_id
            missing = offset - partial.base - partial.length
            if missing > 0:
                partial.texts.append(_MISSING)
                partial.length += missing
                missing = 0
            new = block.chunk[-missing:]
            partial.texts.append(new)
            partial.length += len(new)

    def clear(self) -> None:
        """Forget the text so far: the log has it in a complete message."""
        for partial in self._blocks.values():
            partial.base, partial.length, partial.texts, partial.written = partial.base + partial.length, 0, [], ""

    def next_chunk(self, mask: Callable[[str], str] | None = None) -> AssistantMessage | None:
        """Return a chunk with the text that no chunk has yet, or None if there is none.

        `mask` returns the part of a growing text that may be written now, masked. The chunk counts as written until
        `unmark_written`.
        """
        blocks: list[Block] = []
        for number, partial in self._blocks.items():
            before = partial.written
            stable = mask(partial.stable_text) if mask is not None else partial.stable_text
            if len(stable) <= len(before) or not stable.startswith(before):
                continue
            blocks.append(
                StreamBlock(
                    fidelity=_FIDELITY,
                    chunk=stable[len(before) :],
                    kind=partial.kind,
                    block=number,
                    offset=partial.base + len(before),
                    tool_name=None if before else partial.tool_name,
                    tool_id=None if before else partial.tool_id,
                )
            )
            partial.written = stable
        return AssistantMessage(message_id=self.message_id, blocks=blocks) if blocks else None

    def unmark_written(self, chunk: AssistantMessage) -> None:
        """Take back a chunk that could not be written: the next chunk contains its text again."""
        for block, _, number, _ in chunk_blocks(chunk):
            partial = self._blocks[number]
            partial.written = partial.written[: -len(block.chunk)]

    def interrupted(self, mask: Callable[[str], str] | None = None) -> AssistantMessage | None:
        """Return the interrupted message, or None if the log has all of its text. `mask` masks the text of a block."""
        blocks = [_interrupted_block(partial, mask) for partial in self._blocks.values() if partial.length]
        if not blocks:
            return None
        return AssistantMessage(
            message_id=self.message_id, model=self._model, stop_reason=INTERRUPTED_STOP, blocks=blocks
        )


def _interrupted_block(partial: _PartialBlock, mask: Callable[[str], str] | None) -> Block:
    text = mask(partial.text) if mask is not None else partial.text
    match partial.kind:
        case "text":
            return TextBlock(fidelity=_FIDELITY, text=text)
        case "thinking":
            return ThinkingBlock(fidelity=_FIDELITY, thinking=text)
        case "tool_input":
            # Not a ToolUseBlock: the tool was never called.
            return StreamBlock(fidelity=_FIDELITY, chunk=text, tool_name=partial.tool_name, tool_id=partial.tool_id)
