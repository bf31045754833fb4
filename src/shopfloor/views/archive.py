"""The archive: a simplified transcript stored with a run's row, with size limits on inputs and outputs."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from typing import Literal

import msgspec

from shopfloor.limits import ARCHIVE_ARGS_BYTES, ARCHIVE_RESULT_BYTES
from shopfloor.log import AssistantMessage, CommandBlock, Event, TextBlock, ToolCall, ToolResult, UserMessage
from shopfloor.views.partial_messages import PartialMessages
from shopfloor.views.truncation import as_text, truncate_bytes

Role = Literal["user", "assistant"]


class TextItem(msgspec.Struct, tag_field="type", tag="text", gc=False):
    """A text of the user or of the agent."""

    text: str


class ToolCallItem(msgspec.Struct, tag_field="type", tag="tool_call", gc=False):
    """A tool call. `args` is its input as text."""

    id: str
    name: str
    args: str


class ToolResultItem(msgspec.Struct, tag_field="type", tag="tool_result", gc=False):
    """The result of a tool call, or its error."""

    call_id: str
    text: str


Item = TextItem | ToolCallItem | ToolResultItem


class ArchiveEntry(msgspec.Struct, gc=False):
    """One turn: consecutive items of the same role."""

    role: Role
    content: list[Item]


class Archive:
    """The fold: the entries so far, and the text at the end of the last entry while it may still grow."""

    def __init__(self) -> None:
        self._entries: list[ArchiveEntry] = []
        self._partial = PartialMessages()
        self._content: list[Item] = []
        self._role = ""
        self._text_key: tuple[str, str] | None = None
        self._parts: list[str] = []
        self._size_bytes = 0
        self._is_capped = False

    def feed(self, events: Iterable[Event]) -> None:
        """Add the next events of a log."""
        for event in self._partial.feed_all(events):
            self._feed(event)

    def finish(self) -> list[ArchiveEntry]:
        """Return the entries. No more events may follow."""
        for event in self._partial.rest():
            self._feed(event)
        self._end_text()
        return self._entries

    def _feed(self, event: Event) -> None:
        match event.payload:
            case AssistantMessage() as message:
                for block in message.blocks:
                    if isinstance(block, TextBlock):
                        text_key = (event.path, block.stream or message.message_id or str(event.seq))
                        self._append_text(text_key, block.text, is_capped=block.stream is not None)
            case ToolCall() as call:
                # From the event; the message has a block for the same call, which is ignored.
                args = truncate_bytes(as_text(call.input), ARCHIVE_ARGS_BYTES)
                self._add("assistant", ToolCallItem(call.call_id, call.name, args))
            case ToolResult() as result:
                text = result.error if result.error is not None else as_text(result.output)
                self._add("user", ToolResultItem(result.call_id, truncate_bytes(text, ARCHIVE_RESULT_BYTES)))
            case UserMessage() as message:
                for block in message.blocks:
                    if isinstance(block, TextBlock):
                        self._add("user", TextItem(block.text))
                    elif isinstance(block, CommandBlock):
                        self._add("user", TextItem(format_command(block)))
            case _:
                pass

    def _add(self, role: Role, item: Item) -> None:
        self._end_text()
        self._start_turn(role)
        self._content.append(item)

    def _append_text(self, text_key: tuple[str, str], text: str, *, is_capped: bool) -> None:
        """Append text that arrives in parts. A command's output is capped like a tool's; an agent's text is not."""
        if text_key != self._text_key:
            self._end_text()
            self._start_turn("assistant")
            self._text_key, self._parts, self._size_bytes, self._is_capped = text_key, [], 0, is_capped
        if not self._is_capped or self._size_bytes <= ARCHIVE_RESULT_BYTES:
            self._parts.append(text)
        if self._is_capped:
            self._size_bytes += len(text.encode())

    def _end_text(self) -> None:
        if self._text_key is not None:
            text = "".join(self._parts)
            text = truncate_bytes(text, ARCHIVE_RESULT_BYTES, total_bytes=self._size_bytes) if self._is_capped else text
            self._content.append(TextItem(text))
            self._text_key = None

    def _start_turn(self, role: Role) -> None:
        if role != self._role:
            self._role, self._content = role, []
            self._entries.append(ArchiveEntry(role, self._content))


def format_command(block: CommandBlock) -> str:
    """Return a command and the variables that it uses, one line each."""
    return "\n".join(
        [block.command, *(f"{name}={shlex.quote(value)}" for name, value in (block.variables or {}).items())]
    )


def archive(events: Iterable[Event]) -> list[ArchiveEntry]:
    """Return the archive of a whole log."""
    fold = Archive()
    fold.feed(events)
    return fold.finish()
