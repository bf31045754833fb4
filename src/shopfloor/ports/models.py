"""Models: language models that reply in a conversation."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Literal, Protocol

import msgspec

from shopfloor.log import Block, Cost, Usage


class ThreadMessage(msgspec.Struct, frozen=True):
    """One message of a conversation. Tool results are `tool_result` blocks of a user message."""

    role: Literal["user", "assistant"]
    blocks: list[Block]


class ToolSpec(msgspec.Struct, frozen=True):
    """A tool that the model may call."""

    name: str
    description: str
    parameters: dict[str, Any]
    """JSON Schema of the input."""


class ModelRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation to be continued by a model."""

    model: str
    """`provider/name`, as in `anthropic/claude-sonnet-4-5`."""
    messages: list[ThreadMessage]
    system: str | None = None
    tools: list[ToolSpec] = []
    thinking: Literal["low", "medium", "high"] | None = None
    temperature: float | None = None
    schema: dict[str, Any] | None = None
    """JSON Schema. If set, the reply is JSON of this shape, in one text block."""


class ReplyDelta(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the reply that is being generated."""

    block: int
    """Index of the block in the reply, from 0."""
    kind: Literal["text", "thinking", "tool_input"]
    text: str
    tool_name: str | None = None
    tool_id: str | None = None


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """A complete reply. Its blocks are in the order of the deltas."""

    blocks: list[Block]
    model: str
    """The model that replied, as it names itself."""
    stop_reason: str
    """As the provider names it."""
    usage: Usage = Usage()
    cost: Cost | None = None


class Models(Protocol):
    """Access to language models."""

    def access_mode(self, model: str) -> Literal["api", "local"]:
        """Return `local` for a model that a script on this machine plays, and `api` for any other."""
        ...

    def check(self, model: str) -> None:
        """Raise `UnknownModel` if no provider can have a model of this name. Sends no request."""
        ...

    def warm_up(self) -> None:
        """Import the slow modules. Blocks."""
        ...

    def reply(self, request: ModelRequest) -> AsyncIterator[ReplyDelta | Reply]:
        """Yield deltas as they arrive and finally the reply. Raises `ProviderError`. Never retries."""
        ...
