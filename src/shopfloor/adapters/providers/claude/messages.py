"""The blocks of a message of Anthropic's API, as the log has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from shopfloor.adapters.providers.reading import Json, Record, text_at
from shopfloor.log import Block, StreamBlock, TextBlock, ThinkingBlock, ToolUseBlock

_RESULT = "tool_result"


def contents(message: Record) -> list[Record]:
    """Its blocks. A text alone stands for one. Raises where it is neither."""
    content: Any = message["content"]
    blocks: list[Any] = [{"type": "text", "text": content}] if isinstance(content, str) else list(content)
    for block in blocks:
        if not isinstance(block, dict):
            raise TypeError("a block is no object")
    return blocks


def is_result(block: Record) -> bool:
    return text_at(block, "tool_use_id") is not None and (text_at(block, "type") or "").endswith(_RESULT)


def block_of(block: Record) -> Block:
    """One that is not understood is kept as it came."""
    read = _BLOCKS.get(text_at(block, "type") or "")
    made = read(block) if read is not None else None
    if made is not None:
        return made
    return StreamBlock(fidelity="agent_emitted", chunk=msgspec.json.encode(block).decode(), unparsed=True)


def _said(block: Record) -> Block | None:
    text = text_at(block, "text")
    return None if text is None else TextBlock(fidelity="agent_emitted", text=text)


def _thought(block: Record) -> Block | None:
    text, signature = text_at(block, "thinking"), text_at(block, "signature")
    return None if text is None else ThinkingBlock(fidelity="agent_emitted", thinking=text, signature=signature)


def _hidden_thought(block: Record) -> Block | None:
    """One that nobody may read, to be given back as it is."""
    data = text_at(block, "data")
    return None if data is None else ThinkingBlock(fidelity="agent_emitted", thinking="", signature=data)


def _used(block: Record) -> Block | None:
    tool_id, name = text_at(block, "id"), text_at(block, "name")
    if tool_id is None or name is None:
        return None
    return ToolUseBlock(fidelity="agent_emitted", tool_name=name, tool_id=tool_id, tool_input=block.get("input"))


_BLOCKS: dict[str, Callable[[Record], Block | None]] = {
    "text": _said,
    "thinking": _thought,
    "redacted_thinking": _hidden_thought,
    "tool_use": _used,
    # Of tools that the provider runs itself, in the middle of its answer.
    "server_tool_use": _used,
    "mcp_tool_use": _used,
}


def joined(content: Json) -> Json:
    """What a tool gave: a text, or blocks; such as are all text become one."""
    if not isinstance(content, list):
        return "" if content is None else content
    texts = _texts(content)
    return "\n".join(texts) if len(texts) == len(content) else content


def said_in(content: Json) -> str:
    """The texts in it alone."""
    if not isinstance(content, list):
        return content if isinstance(content, str) else ""
    return "\n".join(_texts(content))


def _texts(blocks: list[Json]) -> list[str]:
    found = [block.get("text") for block in blocks if isinstance(block, dict) and block.get("type") == "text"]
    return [text for text in found if isinstance(text, str)]
