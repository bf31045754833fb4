"""Conversations with a model, rebuilt from the log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from shopfloor.engine.replay_state import ConversationEvent, StepKey
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
    """A conversation so far. It is rebuilt in every attempt."""

    model: str
    system: str | None = None
    tools: Sequence[str] = ()
    max_steps: int = 10
    thinking: Literal["low", "medium", "high"] | None = None
    temperature: float | None = None
    backup_model: str | None = None
    messages: list[ThreadMessage] = []
    session_id: str | None = None
    """The path and iteration of the step that started the conversation; None if that is its only step."""
    has_system_prompt: bool = False
    """Whether a message in the log carries the system prompt."""


def session_id_of(step_key: StepKey) -> str:
    """Return the id of the conversation that a step starts."""
    return f"{step_key.path}:{step_key.iteration}"


def restore_system_prompt(thread: Thread, conversation: Sequence[ConversationEvent]) -> None:
    """Give a thread the system prompt that the log has: memories may have changed since an earlier attempt."""
    for event in conversation:
        if isinstance(event, UserMessage) and event.system_prompt is not None:
            thread.system = event.system_prompt


def to_thread_messages(conversation: Sequence[ConversationEvent]) -> list[ThreadMessage]:
    """Convert the events of a step to messages. Results of tools that were called together are in one message."""
    messages: list[ThreadMessage] = []
    results: list[Block] = []
    for event in conversation:
        if isinstance(event, ToolResult):
            results.append(tool_result_block(event))
            continue
        if isinstance(event, UserMessage | AssistantMessage) and results:
            messages.append(ThreadMessage("user", results))
            results = []
        match event:
            case UserMessage():
                messages.append(ThreadMessage("user", event.blocks))
            case AssistantMessage() if event.stop_reason != INTERRUPTED_STOP:
                messages.append(ThreadMessage("assistant", event.blocks))
            case _:
                pass
    return [*messages, ThreadMessage("user", results)] if results else messages


def tool_result_block(result: ToolResult) -> ToolResultBlock:
    """Convert a tool result to a block for the model."""
    content: Any = {"error": result.error} if result.error is not None else result.output
    return ToolResultBlock(fidelity="router", tool_id=result.call_id, tool_content=content)


def is_complete_reply(event: ConversationEvent) -> bool:
    """Return whether the event is a reply of the model that was not interrupted."""
    return isinstance(event, AssistantMessage) and event.stop_reason != INTERRUPTED_STOP


def last_reply(conversation: Sequence[ConversationEvent]) -> AssistantMessage | None:
    """Return the newest complete reply of the model, or None if a user message follows it."""
    for event in reversed(conversation):
        if isinstance(event, UserMessage):
            return None
        if isinstance(event, AssistantMessage) and event.stop_reason != INTERRUPTED_STOP:
            return event
    return None


def tool_uses(message: AssistantMessage) -> list[ToolUseBlock]:
    """Return the tool calls in a message."""
    return [block for block in message.blocks if isinstance(block, ToolUseBlock)]


def text_of(blocks: Sequence[Block]) -> str:
    """Return the text of the blocks."""
    return "".join(block.text for block in blocks if isinstance(block, TextBlock))


def as_markdown(thread: Thread) -> str:
    """Format a thread as Markdown."""
    parts = [f"## system\n\n{thread.system}"] if thread.system else []
    for message in thread.messages:
        body = "\n\n".join(line for block in message.blocks if (line := _format_block(block)))
        parts.append(f"## {message.role}\n\n{body}")
    return "\n\n".join(parts)


def _format_block(block: Block) -> str:
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
