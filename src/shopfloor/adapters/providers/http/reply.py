"""A model's reply, assembled from its blocks and deltas, and its reports."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Literal

import msgspec

from shopfloor.adapters.limits import AGENT_LINE_BYTES
from shopfloor.adapters.providers.json_access import Record
from shopfloor.limits import OPEN_BRANCHES
from shopfloor.log import (
    AssistantMessage,
    Block,
    Note,
    StreamBlock,
    TextBlock,
    ThinkingBlock,
    ToolCall,
    ToolResult,
    ToolUseBlock,
    Usage,
)
from shopfloor.ports import AgentReport, MessageDelta, TranscriptItem, UsageDelta

Kind = Literal["text", "thinking", "tool_input"]


class PartialBlock(msgspec.Struct, kw_only=True):
    """A block that is being streamed."""

    kind: Kind
    index: int
    chunks: list[str] = []
    signature: str | None = None
    name: str = ""
    tool_id: str = ""
    is_text: bool = False
    """The tool takes text as its input instead of JSON."""
    is_complete: bool = False
    complete_block: Block | None = None
    """The block itself, if it came complete."""

    @property
    def text(self) -> str:
        """The text of all chunks so far."""
        return "".join(self.chunks)

    def block(self, *, message_is_complete: bool) -> Block | None:
        """Return the block so far; None if it is empty."""
        if self.complete_block is not None:
            return self.complete_block
        text = self.text
        match self.kind:
            case "text":
                return TextBlock(text=text, fidelity="agent_emitted") if text else None
            case "thinking":
                if not text and self.signature is None:
                    return None
                return ThinkingBlock(thinking=text, signature=self.signature, fidelity="agent_emitted")
            case "tool_input":
                if message_is_complete or self.is_complete:
                    return tool_use(self.name, self.tool_id, text if self.is_text else parse_tool_input(text))
                # The input is not complete, so there will be no call, and the block must not look like one.
                return StreamBlock(chunk=text, fidelity="agent_emitted")


class Reply:
    """A reply of a model: collects blocks, and turns them into a message, tool calls and usage."""

    def __init__(self) -> None:
        self.message_id: str | None = None
        self.model: str | None = None
        self.stop_reason: str | None = None
        self.usage: Usage | None = None
        self.text: str | None = None
        self.unparsed = 0
        self.results: list[ToolResult] = []
        """Results of tools that the provider itself runs."""
        self._parts: dict[Hashable, PartialBlock] = {}
        self._block_count = 0
        self._size = 0

    # Deltas.

    def part(self, key: Hashable, kind: Kind) -> PartialBlock:
        """Return the block with this key. A new block gets the next index. Raises IndexError if there are too many."""
        if key not in self._parts:
            if self._block_count >= OPEN_BRANCHES:
                raise IndexError("too many blocks")
            self._parts[key] = PartialBlock(kind=kind, index=self._block_count)
            self._block_count += 1
        return self._parts[key]

    def get_part(self, key: Hashable) -> PartialBlock:
        """Return the block with this key. Raises KeyError."""
        return self._parts[key]

    def close_part(self, key: Hashable) -> None:
        """Mark a block as complete."""
        if key in self._parts:
            self._parts[key].is_complete = True

    def set_block(self, key: Hashable, block: Block) -> None:
        """Set a block that came complete. It replaces the chunks of the block so far."""
        part = self.part(key, "text")
        part.complete_block, part.is_complete = block, True
        part.chunks.clear()
        self._size += len(msgspec.json.encode(block))

    def append_delta(self, part: PartialBlock, text: str) -> list[AgentReport]:
        """Append text to a block and report the delta."""
        if not text:
            return []
        reports = self.flush_if_too_long()
        part.chunks.append(text)
        self._size += len(text)
        is_tool = part.kind == "tool_input"
        delta = MessageDelta(
            message_id=self.message_id or "",
            block=part.index,
            kind=part.kind,
            text=text,
            tool_name=part.name if is_tool else None,
            tool_id=part.tool_id if is_tool else None,
        )
        return [*reports, delta]

    # The message.

    def finish(self, *, unfinished: bool = False) -> list[AgentReport]:
        """Report the message with all blocks, the tool calls that it requests, and its usage."""
        blocks = [part.block(message_is_complete=not unfinished) for part in self._parts.values()]
        self._parts.clear()
        return self._message_reports([block for block in blocks if block is not None], unfinished=unfinished)

    def _message_reports(self, blocks: Sequence[Block], *, unfinished: bool = False) -> list[AgentReport]:
        """Report a message with these blocks, the tool calls that it requests, and its usage."""
        message = AssistantMessage(
            message_id=self.message_id,
            model=self.model,
            usage=self.usage,
            stop_reason=self.stop_reason,
            note=Note(kind="warning", message="unfinished") if unfinished else None,
            blocks=list(blocks),
        )
        reports = self._message_and_calls(message) if blocks or not unfinished else []
        if self.usage is not None:
            reports.append(UsageDelta(usage=self.usage, model=self.model))
        return reports

    def flush_if_too_long(self) -> list[AgentReport]:
        """Report the blocks so far if the message gets too long to be held. All its reports share the message id."""
        if self._size <= AGENT_LINE_BYTES:
            return []
        partial_blocks = [part.block(message_is_complete=False) for part in self._parts.values()]
        blocks = [block for block in partial_blocks if block is not None]
        self._parts = {key: part for key, part in self._parts.items() if not part.is_complete}
        for part in self._parts.values():
            part.chunks.clear()
        self._size = 0
        return self._message_and_calls(AssistantMessage(message_id=self.message_id, model=self.model, blocks=blocks))

    def _message_and_calls(self, message: AssistantMessage) -> list[AgentReport]:
        self.text = "".join(block.text for block in message.blocks if isinstance(block, TextBlock)) or self.text
        results, self.results = self.results, []
        reports: list[AgentReport] = [TranscriptItem(payload=message)]
        for block in message.blocks:
            if isinstance(block, ToolUseBlock):
                reports.append(_call_report(block))
                reports += [TranscriptItem(payload=result) for result in results if result.call_id == block.tool_id]
                results = [result for result in results if result.call_id != block.tool_id]
        return [*reports, *(TranscriptItem(payload=result) for result in results)]

    def unparsed_block(self, block: Record) -> StreamBlock:
        """Return a block of an unknown type verbatim."""
        self.unparsed += 1
        chunk = msgspec.json.encode(block).decode()
        return StreamBlock(chunk=chunk, unparsed=True, fidelity="agent_emitted")


def tool_use(name: str, tool_id: str, tool_input: Any) -> ToolUseBlock:
    """Return the block of a tool call."""
    return ToolUseBlock(tool_name=name, tool_id=tool_id, tool_input=tool_input, fidelity="agent_emitted")


def tool_result(name: str, call_id: str, output: Any, error: str | None = None) -> ToolResult:
    """Return the log entry of a tool result."""
    return ToolResult(name=name, call_id=call_id, input=None, output=output, error=error, fidelity="agent_emitted")


def parse_tool_input(text: str) -> Any:
    """Parse the JSON that the model wrote as the input of a tool. Text that is not valid JSON is returned as it is."""
    if not text.strip():
        return {}
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return text


def _call_report(block: ToolUseBlock) -> TranscriptItem:
    name, call_id = block.tool_name, block.tool_id
    return TranscriptItem(
        payload=ToolCall(name=name, call_id=call_id, input=block.tool_input, output=None, fidelity="agent_emitted")
    )
