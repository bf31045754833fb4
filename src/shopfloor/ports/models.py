"""Models: whoever answers in a thread."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Literal, Protocol

import msgspec

from shopfloor.log import Block, Cost, Usage


class ThreadMessage(msgspec.Struct, frozen=True):
    """One message of a thread. What tools gave stands in a user's message, as `tool_result` blocks."""

    role: Literal["user", "assistant"]
    blocks: list[Block]


class ToolSpec(msgspec.Struct, frozen=True):
    """A tool that the model may ask for."""

    name: str
    description: str
    parameters: dict[str, Any]
    """JSON Schema of its input."""


class ModelRequest(msgspec.Struct, frozen=True, kw_only=True):
    model: str
    """`provider/name`, as in `anthropic/claude-sonnet-4-5`."""
    messages: list[ThreadMessage]
    system: str | None = None
    tools: list[ToolSpec] = []
    thinking: Literal["low", "medium", "high"] | None = None
    temperature: float | None = None
    schema: dict[str, Any] | None = None
    """With it the answer is JSON of this shape, as the text of its one text block."""


class ReplyDelta(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of the reply that is being made."""

    block: int
    """Which of the reply's blocks, from 0."""
    kind: Literal["text", "thinking", "tool_input"]
    text: str
    tool_name: str | None = None
    tool_id: str | None = None


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """A whole reply. Its blocks are those that the deltas spoke of, in the same order."""

    blocks: list[Block]
    model: str
    """The model that answered, as it names itself."""
    stop_reason: str
    """In the provider's word."""
    usage: Usage = Usage()
    cost: Cost | None = None


class Models(Protocol):
    def check(self, model: str) -> None:
        """Raises `UnknownModel` where nobody could ever answer under that name; asks nobody."""
        ...

    def warm_up(self) -> None:
        """Load what is slow to load. Blocks."""
        ...

    def reply(self, request: ModelRequest) -> AsyncIterator[ReplyDelta | Reply]:
        """Deltas as they come, and at last the reply. Raises a `ProviderError`; never retries by itself."""
        ...
