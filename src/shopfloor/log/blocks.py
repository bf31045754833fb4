"""Content blocks: the six things that a message can hold. The vocabulary is closed for writers."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

Fidelity = Literal["router", "agent_emitted"]
"""Who vouches for a block: `router`, we did it or saw it done; `agent_emitted`, the agent says so."""

ChunkKind = Literal["text", "thinking", "tool_input"]
"""What a message that is being made consists of."""

FIDELITIES: frozenset[str] = frozenset({"router", "agent_emitted"})


class _Block(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", omit_defaults=True, gc=False):
    fidelity: Fidelity
    """Who vouches for it."""


class TextBlock(_Block, frozen=True, kw_only=True, tag="text"):
    """Plain text: what an agent said, or what a command printed."""

    text: str
    """The text."""
    stream: Literal["stdout", "stderr"] | None = None
    """For a command's output: where it was printed."""
    raw: str | None = None
    """For output that was not UTF-8: its exact bytes in base64 (`text` has U+FFFD in their place)."""


class ThinkingBlock(_Block, frozen=True, kw_only=True, tag="thinking"):
    """What an agent thought."""

    thinking: str
    """The text of the thought."""
    signature: str | None = None
    """What the provider wants back with the thought, to trust it."""


class ToolUseBlock(_Block, frozen=True, kw_only=True, tag="tool_use", gc=True):
    """An agent asks for a tool."""

    tool_name: str
    """The tool's exact name."""
    tool_id: str
    """What joins a use and its result."""
    tool_input: Any
    """What the tool is to be given."""


class ToolResultBlock(_Block, frozen=True, kw_only=True, tag="tool_result", gc=True):
    """What a tool gave back."""

    tool_id: str
    """The `tool_id` of the use that this answers."""
    tool_content: Any
    """What the tool gave."""


class CommandBlock(_Block, frozen=True, kw_only=True, tag="command", gc=True):
    """A command that a step executes."""

    command: str
    """The command line."""
    variables: dict[str, str] | None = None
    """Environment variables by which the command line refers to values of the worker."""


class StreamBlock(_Block, frozen=True, kw_only=True, tag="stream"):
    """A piece of a provider's stream, kept as it came.

    With `kind`, `block` and `offset` it is a piece of a message that was not complete when it was written: the new text
    of one of its blocks. The whole message takes the place of its pieces once it follows, under the same `message_id`.
    """

    chunk: str
    """The piece."""
    unparsed: bool = False
    """True where the piece was not understood and is kept so that nothing is lost."""
    raw: str | None = None
    """For a piece that was not UTF-8: its exact bytes in base64 (`chunk` has U+FFFD in their place)."""
    kind: ChunkKind | None = None
    """For a piece of a message: what the block holds. The input of a tool is a piece of JSON."""
    block: int | None = None
    """For a piece of a message: which of the message's blocks, from 0."""
    offset: int | None = None
    """For a piece of a message: how many characters of that block come before it."""
    tool_name: str | None = None
    """For the input of a tool: the tool; only with the first piece of the block."""
    tool_id: str | None = None
    """For the input of a tool: what joins the use and its result; only with the first piece of the block."""


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
    """A block of a later version, or a broken one: passed on as it is, never dropped, never written by us."""

    type: str
    data: dict[str, Any]
