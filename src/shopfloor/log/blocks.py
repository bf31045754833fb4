"""Content blocks: the six kinds of content in a message. The vocabulary is closed for writers."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

Fidelity = Literal["router", "agent_emitted"]
"""The source of a block: `router` if Shopfloor did or observed it, `agent_emitted` if the agent reported it."""

ChunkKind = Literal["text", "thinking", "tool_input"]
"""The kinds of blocks in a message that is still being generated."""

FIDELITIES: frozenset[str] = frozenset({"router", "agent_emitted"})


class _Block(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", omit_defaults=True, gc=False):
    fidelity: Fidelity
    """The source of the block."""


class TextBlock(_Block, frozen=True, kw_only=True, tag="text"):
    """Plain text: a message of an agent, or the output of a command or of a worker's code."""

    text: str
    """The text."""
    stream: Literal["stdout", "stderr"] | None = None
    """For output of a command or of the code of a worker: the stream that it was printed to."""
    raw: str | None = None
    """For output that is not UTF-8: its exact bytes in base64 (`text` has U+FFFD in their place)."""


class ThinkingBlock(_Block, frozen=True, kw_only=True, tag="thinking"):
    """Thinking of an agent."""

    thinking: str
    """The text of the thinking."""
    signature: str | None = None
    """The provider's signature, which it requires when the thinking is sent back."""


class ToolUseBlock(_Block, frozen=True, kw_only=True, tag="tool_use", gc=True):
    """An agent's request to use a tool."""

    tool_name: str
    """The tool's exact name."""
    tool_id: str
    """The id shared by a use and its result."""
    tool_input: Any
    """The input of the tool."""


class ToolResultBlock(_Block, frozen=True, kw_only=True, tag="tool_result", gc=True):
    """The result of a tool use."""

    tool_id: str
    """The `tool_id` of the use."""
    tool_content: Any
    """The output of the tool."""


class CommandBlock(_Block, frozen=True, kw_only=True, tag="command", gc=True):
    """A command that a step executes."""

    command: str
    """The command line."""
    variables: dict[str, str] | None = None
    """Environment variables through which the command line refers to values of the worker."""


class StreamBlock(_Block, frozen=True, kw_only=True, tag="stream"):
    """A chunk of a provider's stream, unchanged.

    With `kind`, `block` and `offset`, it is a chunk of a message that was still incomplete: the new text of one of its
    blocks. The complete message, which follows under the same `message_id`, supersedes its chunks.
    """

    chunk: str
    """The text of the chunk."""
    unparsed: bool = False
    """True if the chunk was not understood; it is recorded so that nothing is lost."""
    raw: str | None = None
    """For a chunk that is not UTF-8: its exact bytes in base64 (`chunk` has U+FFFD in their place)."""
    kind: ChunkKind | None = None
    """For a chunk of a message: the kind of its block. The chunk of a tool's input is a fragment of JSON."""
    block: int | None = None
    """For a chunk of a message: the index of its block in the message, from 0."""
    offset: int | None = None
    """For a chunk of a message: the number of characters of the block before it."""
    tool_name: str | None = None
    """For the input of a tool: the tool; only in the first chunk of the block."""
    tool_id: str | None = None
    """For the input of a tool: the id shared by the use and its result; only in the first chunk of the block."""


Block = TextBlock | ThinkingBlock | ToolUseBlock | ToolResultBlock | CommandBlock | StreamBlock

BLOCK_TYPES: dict[str, type[Block]] = {
    "text": TextBlock,
    "thinking": ThinkingBlock,
    "tool_use": ToolUseBlock,
    "tool_result": ToolResultBlock,
    "command": CommandBlock,
    "stream": StreamBlock,
}


class UnknownBlock(msgspec.Struct, frozen=True):
    """A block of a later version, or an invalid one: passed on unchanged, never dropped, never written by Shopfloor."""

    type: str
    data: dict[str, Any]
