"""What a provider wants back with a thought, in the one string that a thinking block has for it.

Anthropic's signatures stand as they are, as in any transcript of Claude. Those of others are
`<provider>:<the thought's id>:<signature>`, since a thread may go on with another provider, which rejects them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import msgspec
from pydantic_ai import messages as theirs

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
    id: str | None
    signature: str | None


def pack_signature(provider: str, signature: Signature) -> str | None:
    if not signature.id and not signature.signature:
        return None
    if provider == "anthropic" and not signature.id:
        return signature.signature
    return f"{provider}:{signature.id or ''}:{signature.signature or ''}"


def unpack_signature(provider: str, packed: str | None) -> Signature | None:
    """None where that provider did not sign it."""
    if not packed:
        return None
    owner, colon, rest = packed.partition(":")
    if not colon:
        return Signature(None, packed) if provider == "anthropic" else None
    if owner != provider:
        return None
    thought, _, signature = rest.partition(":")
    return Signature(thought or None, signature or None)


def to_pydantic_messages(request: ModelRequest, provider: str) -> list[theirs.ModelMessage]:
    """`provider` is who is asked: the thoughts of another are left out, since nobody takes them."""
    names = {
        block.tool_id: block.tool_name
        for message in request.messages
        for block in message.blocks
        if isinstance(block, ToolUseBlock)
    }
    found: list[theirs.ModelMessage] = []
    for message in request.messages:
        if message.role == "user":
            found.append(theirs.ModelRequest(parts=_said_to(message, names), instructions=request.system))
        elif parts := list(_said_by(message, provider)):
            found.append(theirs.ModelResponse(parts=parts, provider_name=provider))
    if not found or isinstance(found[0], theirs.ModelResponse):
        # Somebody has to speak first, or there would be no place for the system prompt.
        found.insert(0, theirs.ModelRequest(parts=[], instructions=request.system))
    return found


def _said_to(message: ThreadMessage, names: dict[str, str]) -> list[theirs.ModelRequestPart]:
    """Results stand first: a provider wants them right after the calls."""
    results: list[theirs.ModelRequestPart] = []
    words: list[theirs.ModelRequestPart] = []
    for block in message.blocks:
        if isinstance(block, ToolResultBlock):
            results.append(_result(block, names.get(block.tool_id, "tool")))
        elif text := _words(block):
            words.append(theirs.UserPromptPart(text))
    return results + words


def _said_by(message: ThreadMessage, provider: str) -> Iterator[theirs.ModelResponsePart]:
    for block in message.blocks:
        match block:
            case ToolUseBlock():
                yield theirs.ToolCallPart(block.tool_name, block.tool_input, block.tool_id)
            case ThinkingBlock():
                if signed := unpack_signature(provider, block.signature):
                    yield theirs.ThinkingPart(
                        block.thinking, id=signed.id, signature=signed.signature, provider_name=provider
                    )
            case _:
                if text := _words(block):
                    yield theirs.TextPart(text)


def _result(block: ToolResultBlock, name: str) -> theirs.ToolReturnPart[Any]:
    """A result that is `{"error": …}` and nothing else is a call that failed."""
    content: Any = "" if block.tool_content is None else block.tool_content
    if _is_failure(content):
        return theirs.ToolReturnPart(name, content["error"], block.tool_id, outcome="failed")
    return theirs.ToolReturnPart(name, content, block.tool_id)


def _is_failure(content: object) -> bool:
    return isinstance(content, dict) and cast("dict[str, Any]", content).keys() == {"error"}


def _words(block: Block) -> str:
    match block:
        case TextBlock():
            return block.text
        case CommandBlock():
            return block.command
        case StreamBlock():
            return block.chunk
        case ThinkingBlock() | ToolUseBlock() | ToolResultBlock():
            return ""
