"""The blocks of a message of Anthropic's API, as the log has them."""

from __future__ import annotations

from typing import Any, cast

import msgspec

from shopfloor.adapters.providers.reading import Record, text_at
from shopfloor.log import Block, StreamBlock, TextBlock, ThinkingBlock, ToolUseBlock

_USES = frozenset({"tool_use", "server_tool_use", "mcp_tool_use"})
"""The latter two are of tools that the provider runs itself, in the middle of its answer."""
_RESULT = "tool_result"


def contents(message: Record) -> list[Record]:
    """Its blocks. A text alone stands for one. Raises where it is neither."""
    content: Any = message["content"]
    blocks: list[Any] = [{"type": "text", "text": content}] if isinstance(content, str) else list(content)
    if not all(isinstance(block, dict) for block in blocks):
        raise TypeError("a block is no object")
    return blocks


def is_result(block: Record) -> bool:
    return (text_at(block, "type") or "").endswith(_RESULT) and text_at(block, "tool_use_id") is not None


def block_of(block: Record) -> Block:
    """One that is not understood is kept as it came."""
    match block:
        case {"type": "text", "text": str(text)}:
            return TextBlock(fidelity="agent_emitted", text=text)
        case {"type": "thinking", "thinking": str(text)}:
            return ThinkingBlock(fidelity="agent_emitted", thinking=text, signature=text_at(block, "signature"))
        case {"type": "redacted_thinking", "data": str(data)}:
            # A thought that nobody may read, to be given back as it is.
            return ThinkingBlock(fidelity="agent_emitted", thinking="", signature=data)
        case {"type": str(kind), "id": str(tool_id), "name": str(name)} if kind in _USES:
            tool_input = block.get("input")
            return ToolUseBlock(fidelity="agent_emitted", tool_name=name, tool_id=tool_id, tool_input=tool_input)
        case _:
            return StreamBlock(fidelity="agent_emitted", chunk=msgspec.json.encode(block).decode(), unparsed=True)


def joined(content: Any) -> Any:
    """What a tool gave: a text, or blocks; such as are all text become one."""
    if not isinstance(content, list):
        return "" if content is None else content
    blocks = cast("list[Any]", content)
    texts = [text for text in map(_text, blocks) if text is not None]
    return "\n".join(texts) if len(texts) == len(blocks) else blocks


def said_in(content: Any) -> str:
    """The texts in it alone."""
    if not isinstance(content, list):
        return content if isinstance(content, str) else ""
    return "\n".join(text for text in map(_text, cast("list[Any]", content)) if text is not None)


def _text(block: Any) -> str | None:
    match block:
        case {"type": "text", "text": str(text)}:
            return text
        case _:
            return None
