"""Messages that are not complete: the pieces by which the log has them, and how pieces are joined again."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from shopfloor.log.blocks import Block, ChunkKind, StreamBlock, TextBlock, ThinkingBlock
from shopfloor.log.payloads import AssistantMessage


class Delta(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A piece of a block of a message that is still being made."""

    after: int
    """The `seq` of the last event before it."""
    path: str
    """The step."""
    iteration: int = 0
    message_id: str
    """The `message_id` that the whole message will have in the log."""
    block: int
    """Which of the message's blocks, from 0."""
    kind: ChunkKind
    """What it is a piece of."""
    offset: int
    """How many characters of that block came before."""
    text: str
    """The piece; for `tool_input` a piece of JSON."""
    tool_name: str | None = None
    """For `tool_input`: the tool."""
    tool_id: str | None = None
    """For `tool_input`: the call."""


INTERRUPTED_STOP: Final = "interrupted"
"""The stop reason of a message that was cut off. It stands for its pieces, as the whole message would."""

_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_HIGH_SURROGATE: Final = re.compile("[\ud800-\udbff]")
_MISSING: Final = "…"
_FIDELITY: Final = "agent_emitted"


def chunk_blocks(message: AssistantMessage) -> Iterator[tuple[StreamBlock, ChunkKind, int, int]]:
    """The blocks that are pieces, each with its kind, the number of its block and its offset."""
    for block in message.blocks:
        if isinstance(block, StreamBlock) and block.kind and block.block is not None and block.offset is not None:
            yield block, block.kind, block.block, block.offset


def is_message_chunk(message: AssistantMessage) -> bool:
    """Whether an event holds nothing but pieces of a message."""
    # Asked of every message of every log: most end here.
    return (
        bool(message.blocks)
        and isinstance(message.blocks[0], StreamBlock)
        and sum(1 for _ in chunk_blocks(message)) == len(message.blocks)
    )


def supersedes_chunks(message: AssistantMessage) -> bool:
    """Whether an event has the whole text of a message, or of some of its blocks, so that earlier pieces are void."""
    return message.message_id is not None and bool(message.blocks) and not is_message_chunk(message)


class _Part(msgspec.Struct):
    """One block: its text since the last whole, and how much of that text is in pieces."""

    kind: ChunkKind
    tool_name: str | None = None
    tool_id: str | None = None
    base: int = 0
    """How many characters came before the text."""
    texts: list[str] = []
    length: int = 0
    written: str = ""
    """What the pieces say so far."""

    @property
    def text(self) -> str:
        self.texts = ["".join(self.texts)]
        return _mended(self.texts[0])

    @property
    def stable_text(self) -> str:
        """The text without half a character at its end: the other half may still come."""
        text = "".join(self.texts)
        return _mended(text[:-1]) if _HIGH_SURROGATE.fullmatch(text[-1:]) else self.text


def _mended(text: str) -> str:
    """The text with one character for a pair of surrogates: its halves can come one after the other."""
    if not _SURROGATE.search(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


class PartialMessage:
    """A message that is being made: what there is of its blocks so far."""

    def __init__(self, message_id: str, *, model: str | None = None) -> None:
        self.message_id = message_id
        self._model = model
        self._parts: dict[int, _Part] = {}

    @property
    def has_text(self) -> bool:
        """Whether there is text that no whole message has."""
        return any(part.length for part in self._parts.values())

    def grow(
        self, block: int, kind: ChunkKind, text: str, *, tool_name: str | None = None, tool_id: str | None = None
    ) -> int:
        """Add text to a block and return its offset: how many characters of the block come before it."""
        part = self._parts.get(block)
        if part is None or part.kind != kind:
            part = self._parts[block] = _Part(kind=kind, tool_name=tool_name, tool_id=tool_id, texts=[])
        offset = part.base + part.length
        part.texts.append(text)
        part.length += len(text)
        return offset

    def join(self, piece: AssistantMessage) -> None:
        """Add what a piece of the log says. Text that is there already is not added twice."""
        for block, kind, number, offset in chunk_blocks(piece):
            part = self._parts.get(number)
            if part is None:
                part = self._parts[number] = _Part(kind=kind, base=offset, texts=[])
            part.tool_name, part.tool_id = part.tool_name or block.tool_name, part.tool_id or block.tool_id
            missing = offset - part.base - part.length
            if missing > 0:
                part.texts.append(_MISSING)
                part.length += missing
                missing = 0
            new = block.chunk[-missing:]
            part.texts.append(new)
            part.length += len(new)

    def clear(self) -> None:
        """The log has the whole of all that there is so far."""
        for part in self._parts.values():
            part.base, part.length, part.texts, part.written = part.base + part.length, 0, [], ""

    def piece(self, settle: Callable[[str], str] | None = None) -> AssistantMessage | None:
        """What no piece has yet; None where there is nothing. `settle` gives what of a text may be on record by now.

        The piece counts as written; `unmark_written` takes that back.
        """
        blocks: list[Block] = []
        for number, part in self._parts.items():
            before = part.written
            settled = settle(part.stable_text) if settle is not None else part.stable_text
            if len(settled) <= len(before) or not settled.startswith(before):
                continue
            blocks.append(
                StreamBlock(
                    fidelity=_FIDELITY,
                    chunk=settled[len(before) :],
                    kind=part.kind,
                    block=number,
                    offset=part.base + len(before),
                    tool_name=None if before else part.tool_name,
                    tool_id=None if before else part.tool_id,
                )
            )
            part.written = settled
        return AssistantMessage(message_id=self.message_id, blocks=blocks) if blocks else None

    def unmark_written(self, piece: AssistantMessage) -> None:
        """The piece could not be written: the next one has its text again."""
        for block, _, number, _ in chunk_blocks(piece):
            part = self._parts[number]
            part.written = part.written[: -len(block.chunk)]

    def interrupted(self, settle: Callable[[str], str] | None = None) -> AssistantMessage | None:
        """The message as it was cut off; None where nothing of it is missing in the log."""
        blocks = [_block(part, settle) for part in self._parts.values() if part.length]
        if not blocks:
            return None
        return AssistantMessage(
            message_id=self.message_id, model=self._model, stop_reason=INTERRUPTED_STOP, blocks=blocks
        )


def _block(part: _Part, settle: Callable[[str], str] | None) -> Block:
    text = settle(part.text) if settle is not None else part.text
    match part.kind:
        case "text":
            return TextBlock(fidelity=_FIDELITY, text=text)
        case "thinking":
            return ThinkingBlock(fidelity=_FIDELITY, thinking=text)
        case "tool_input":
            # No call came of it, so it must not look like one.
            return StreamBlock(fidelity=_FIDELITY, chunk=text, tool_name=part.tool_name, tool_id=part.tool_id)
