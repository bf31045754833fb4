"""Conversion of a conversation to pydantic-ai messages, and the packing of thinking signatures.

A provider requires the signature of its thinking back, and a thinking block has one string for it. Anthropic's
signatures are stored unchanged, as in any transcript of Claude. Those of others are stored as
`<provider>:<id of the thinking>:<signature>`, since a conversation may continue with another provider, which rejects
them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import msgspec
from pydantic_ai import messages as pydantic_messages

from shopfloor.log import (
    Block,
    CommandBlock,
    StreamBlock,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
)
from shopfloor.ports import ModelRequest, ThreadMessage


class Signature(msgspec.Struct, frozen=True):
    """The id and the signature of thinking."""

    id: str | None
    signature: str | None


def pack_signature(provider: str, signature: Signature) -> str | None:
    """Return the string for a thinking block, or None if there is nothing to send back."""
    if not signature.id and not signature.signature:
        return None
    if provider == "anthropic" and not signature.id:
        return signature.signature
    return f"{provider}:{signature.id or ''}:{signature.signature or ''}"


def unpack_signature(provider: str, packed: str | None) -> Signature | None:
    """Return the signature in a thinking block, or None if another provider signed it."""
    if not packed:
        return None
    owner, colon, rest = packed.partition(":")
    if not colon:
        return Signature(None, packed) if provider == "anthropic" else None
    if owner != provider:
        return None
    thinking_id, _, signature = rest.partition(":")
    return Signature(thinking_id or None, signature or None)


def to_pydantic_messages(request: ModelRequest, provider: str) -> list[pydantic_messages.ModelMessage]:
    """Convert a request for `provider`. Omits thinking of other providers, which it would reject."""
    names = {
        block.tool_id: block.tool_name
        for message in request.messages
        for block in message.blocks
        if isinstance(block, ToolUseBlock)
    }
    messages: list[pydantic_messages.ModelMessage] = []
    for message in request.messages:
        if message.role == "user":
            messages.append(
                pydantic_messages.ModelRequest(parts=_request_parts(message, names), instructions=request.system)
            )
        elif parts := list(_response_parts(message, provider)):
            messages.append(pydantic_messages.ModelResponse(parts=parts, provider_name=provider))
    if not messages or isinstance(messages[0], pydantic_messages.ModelResponse):
        # The conversation has to start with a request, which carries the system prompt.
        messages.insert(0, pydantic_messages.ModelRequest(parts=[], instructions=request.system))
    return messages


def _request_parts(message: ThreadMessage, names: dict[str, str]) -> list[pydantic_messages.ModelRequestPart]:
    """Convert the blocks of a user message, results first: a provider expects them right after the calls."""
    results: list[pydantic_messages.ModelRequestPart] = []
    prompts: list[pydantic_messages.ModelRequestPart] = []
    for block in message.blocks:
        if isinstance(block, ToolResultBlock):
            results.append(_result_part(block, names.get(block.tool_id, "tool")))
        elif text := _block_text(block):
            prompts.append(pydantic_messages.UserPromptPart(text))
    return results + prompts


def _response_parts(message: ThreadMessage, provider: str) -> Iterator[pydantic_messages.ModelResponsePart]:
    for block in message.blocks:
        match block:
            case ToolUseBlock():
                yield pydantic_messages.ToolCallPart(block.tool_name, block.tool_input, block.tool_id)
            case ThinkingBlock():
                if signed := unpack_signature(provider, block.signature):
                    yield pydantic_messages.ThinkingPart(
                        block.thinking, id=signed.id, signature=signed.signature, provider_name=provider
                    )
            case _:
                if text := _block_text(block):
                    yield pydantic_messages.TextPart(text)


def _result_part(block: ToolResultBlock, name: str) -> pydantic_messages.ToolReturnPart[Any]:
    """Convert a tool result. A result that is exactly `{"error": …}` marks a failed call."""
    content: Any = "" if block.tool_content is None else block.tool_content
    if _is_failure(content):
        return pydantic_messages.ToolReturnPart(name, content["error"], block.tool_id, outcome="failed")
    return pydantic_messages.ToolReturnPart(name, content, block.tool_id)


def _is_failure(content: object) -> bool:
    return isinstance(content, dict) and cast("dict[str, Any]", content).keys() == {"error"}


def _block_text(block: Block) -> str:
    match block:
        case TextBlock():
            return block.text
        case CommandBlock():
            return block.command
        case StreamBlock():
            return block.chunk
        case ThinkingBlock() | ToolUseBlock() | ToolResultBlock():
            return ""
