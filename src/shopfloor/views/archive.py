"""The simplified transcript that is kept beside a run's row: who said what, with caps."""

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
    text: str


class ToolCallItem(msgspec.Struct, tag_field="type", tag="tool_call", gc=False):
    id: str
    name: str
    args: str


class ToolResultItem(msgspec.Struct, tag_field="type", tag="tool_result", gc=False):
    call_id: str
    text: str


Item = TextItem | ToolCallItem | ToolResultItem


class ArchiveEntry(msgspec.Struct, gc=False):
    role: Role
    content: list[Item]


class Archive:
    """The entries so far, and the text that the last of them ends with, as long as more of it may come."""

    def __init__(self) -> None:
        self._entries: list[ArchiveEntry] = []
        self._partial = PartialMessages()
        self._content: list[Item] = []
        self._role = ""
        self._place: tuple[str, str] | None = None
        self._parts: list[str] = []
        self._size = 0
        self._capped = False

    def feed(self, events: Iterable[Event]) -> None:
        """Add the next events of a log."""
        for event in self._partial.feed_all(events):
            self._take(event)

    def finish(self) -> list[ArchiveEntry]:
        """Return the entries. No more events may follow."""
        for event in self._partial.rest():
            self._take(event)
        self._end_text()
        return self._entries

    def _take(self, event: Event) -> None:
        match event.payload:
            case AssistantMessage() as message:
                for block in message.blocks:
                    if isinstance(block, TextBlock):
                        place = (event.path, block.stream or message.message_id or str(event.seq))
                        self._say(place, block.text, capped=block.stream is not None)
            case ToolCall() as call:
                # From the event, not from the block in the message, which tells of the same call.
                args = truncate_bytes(as_text(call.input), ARCHIVE_ARGS_BYTES)
                self._add("assistant", ToolCallItem(call.call_id, call.name, args))
            case ToolResult() as result:
                said = result.error if result.error is not None else as_text(result.output)
                self._add("user", ToolResultItem(result.call_id, truncate_bytes(said, ARCHIVE_RESULT_BYTES)))
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
        self._turn(role)
        self._content.append(item)

    def _say(self, place: tuple[str, str], text: str, *, capped: bool) -> None:
        """Text that comes in pieces. A command's output is capped as a tool's is; what an agent says is not."""
        if place != self._place:
            self._end_text()
            self._turn("assistant")
            self._place, self._parts, self._size, self._capped = place, [], 0, capped
        if not self._capped or self._size <= ARCHIVE_RESULT_BYTES:
            self._parts.append(text)
        if self._capped:
            self._size += len(text.encode())

    def _end_text(self) -> None:
        if self._place is not None:
            text = "".join(self._parts)
            text = truncate_bytes(text, ARCHIVE_RESULT_BYTES, whole=self._size) if self._capped else text
            self._content.append(TextItem(text))
            self._place = None

    def _turn(self, role: Role) -> None:
        if role != self._role:
            self._role, self._content = role, []
            self._entries.append(ArchiveEntry(role, self._content))


def format_command(block: CommandBlock) -> str:
    """A command with the values that it refers to, one line each."""
    return "\n".join(
        [block.command, *(f"{name}={shlex.quote(value)}" for name, value in (block.variables or {}).items())]
    )


def archive(events: Iterable[Event]) -> list[ArchiveEntry]:
    made = Archive()
    made.feed(events)
    return made.finish()
