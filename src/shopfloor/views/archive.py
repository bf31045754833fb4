"""The simplified transcript that is kept beside a run's row: who said what, with caps."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, Literal, cast

import msgspec

from shopfloor.limits import ARCHIVE_ARGS_BYTES, ARCHIVE_RESULT_BYTES
from shopfloor.log import AssistantMessage, CommandBlock, Event, TextBlock, ToolCall, ToolResult, UserMessage


class TextItem(msgspec.Struct, tag_field="type", tag="text"):
    text: str


class ToolCallItem(msgspec.Struct, tag_field="type", tag="tool_call"):
    id: str
    name: str
    args: str


class ToolResultItem(msgspec.Struct, tag_field="type", tag="tool_result"):
    call_id: str
    text: str


Item = TextItem | ToolCallItem | ToolResultItem


class ArchiveEntry(msgspec.Struct):
    role: Literal["user", "assistant"]
    content: list[Item]


class _Text:
    """Text that comes in pieces. A command's output is capped as a tool's is; what an agent says is not."""

    def __init__(self, place: tuple[str, str | None], *, capped: bool) -> None:
        self.place = place
        self._capped = capped
        self._parts: list[str] = []
        self._size = 0

    def add(self, text: str) -> None:
        self._size += len(text.encode())
        if not self._capped or self._size - len(text.encode()) <= ARCHIVE_RESULT_BYTES:
            self._parts.append(text)

    def item(self) -> TextItem:
        text = "".join(self._parts)
        return TextItem(cut(text, ARCHIVE_RESULT_BYTES, whole=self._size) if self._capped else text)


def archive(events: Iterable[Event]) -> Iterator[ArchiveEntry]:
    """The entries, one after the other; no more than one of them is held at a time."""
    entry: ArchiveEntry | None = None
    text: _Text | None = None
    for event in events:
        for role, part in _parts(event):
            if text is not None and not (isinstance(part, _Piece) and part.place == text.place and entry):
                cast("ArchiveEntry", entry).content.append(text.item())
                text = None
            if entry is None or entry.role != role:
                if entry is not None:
                    yield entry
                entry = ArchiveEntry(role, [])
            if isinstance(part, _Piece):
                text = text or _Text(part.place, capped=part.capped)
                text.add(part.text)
            else:
                entry.content.append(part)
    if entry is not None:
        if text is not None:
            entry.content.append(text.item())
        yield entry


class _Piece(msgspec.Struct, frozen=True):
    place: tuple[str, str | None]
    text: str
    capped: bool


def _parts(event: Event) -> Iterator[tuple[Literal["user", "assistant"], Item | _Piece]]:
    match event.payload:
        case UserMessage() as message:
            for block in message.blocks:
                if isinstance(block, TextBlock):
                    yield "user", TextItem(block.text)
                elif isinstance(block, CommandBlock):
                    yield "user", TextItem(block.command)
        case AssistantMessage() as message:
            for block in message.blocks:
                if isinstance(block, TextBlock):
                    place = (event.path, block.stream or message.message_id or str(event.seq))
                    yield "assistant", _Piece(place, block.text, block.stream is not None)
        case ToolCall() as call:
            # From the event, not from the block in the message, which tells of the same call.
            yield "assistant", ToolCallItem(call.call_id, call.name, cut(_text(call.input), ARCHIVE_ARGS_BYTES))
        case ToolResult() as result:
            said = result.error if result.error is not None else _text(result.output)
            yield "user", ToolResultItem(result.call_id, cut(said, ARCHIVE_RESULT_BYTES))
        case _:
            pass


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def cut(text: str, most: int, *, whole: int | None = None) -> str:
    """`text` in at most `most` bytes of UTF-8, cut on a character and marked where it is cut."""
    data = text.encode()
    size = whole if whole is not None else len(data)
    if size <= most:
        return text
    mark = f"… [cut: {size:,} bytes in all]"
    return data[: most - len(mark.encode())].decode("utf-8", "ignore") + mark
