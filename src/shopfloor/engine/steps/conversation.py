"""Threads: conversations with a model, rebuilt from what the log has of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from shopfloor.engine.replay_state import ConversationEvent
from shopfloor.log import (
    INTERRUPTED_STOP,
    AssistantMessage,
    Block,
    TextBlock,
    ThinkingBlock,
    ToolResult,
    ToolResultBlock,
    ToolUseBlock,
    UserMessage,
)
from shopfloor.ports import ThreadMessage


class Thread(msgspec.Struct):
    """A conversation as it stands. It is built anew in every attempt."""

    model: str
    system: str | None = None
    tools: Sequence[str] = ()
    max_steps: int = 10
    thinking: Literal["low", "medium", "high"] | None = None
    temperature: float | None = None
    backup_model: str | None = None
    messages: list[ThreadMessage] = []
    has_system_prompt: bool = False
    """Whether a message in the log carries the system prompt."""


def to_thread_messages(conversation: Sequence[ConversationEvent]) -> list[ThreadMessage]:
    """What was said at a place, as messages of a thread. Results of tools that were called together stand together."""
    messages: list[ThreadMessage] = []
    results: list[Block] = []
    for one in conversation:
        if isinstance(one, ToolResult):
            results.append(tool_result_block(one))
            continue
        if isinstance(one, UserMessage | AssistantMessage) and results:
            messages.append(ThreadMessage("user", results))
            results = []
        match one:
            case UserMessage():
                messages.append(ThreadMessage("user", one.blocks))
            case AssistantMessage() if one.stop_reason != INTERRUPTED_STOP:
                messages.append(ThreadMessage("assistant", one.blocks))
            case _:
                pass
    return [*messages, ThreadMessage("user", results)] if results else messages


def tool_result_block(result: ToolResult) -> ToolResultBlock:
    content: Any = {"error": result.error} if result.error is not None else result.output
    return ToolResultBlock(fidelity="router", tool_id=result.call_id, tool_content=content)


def is_complete_reply(one: ConversationEvent) -> bool:
    """Whether it is a message of the model's that was not cut off."""
    return isinstance(one, AssistantMessage) and one.stop_reason != INTERRUPTED_STOP


def last_reply(conversation: Sequence[ConversationEvent]) -> AssistantMessage | None:
    """The newest whole message of the model; None where something was said to it since."""
    for one in reversed(conversation):
        if isinstance(one, UserMessage):
            return None
        if isinstance(one, AssistantMessage) and one.stop_reason != INTERRUPTED_STOP:
            return one
    return None


def tool_uses(message: AssistantMessage) -> list[ToolUseBlock]:
    return [block for block in message.blocks if isinstance(block, ToolUseBlock)]


def text_of(blocks: Sequence[Block]) -> str:
    return "".join(block.text for block in blocks if isinstance(block, TextBlock))


def as_markdown(thread: Thread) -> str:
    """A thread as somebody reads it."""
    parts = [f"## system\n\n{thread.system}"] if thread.system else []
    for message in thread.messages:
        body = "\n\n".join(line for block in message.blocks if (line := _line(block)))
        parts.append(f"## {message.role}\n\n{body}")
    return "\n\n".join(parts)


def _line(block: Block) -> str:
    match block:
        case TextBlock():
            return block.text
        case ThinkingBlock():
            return f"> {block.thinking}"
        case ToolUseBlock():
            return f"`{block.tool_name}` {msgspec.json.encode(block.tool_input).decode()}"
        case ToolResultBlock():
            content = block.tool_content
            return content if isinstance(content, str) else msgspec.json.encode(content).decode()
        case _:
            return ""
