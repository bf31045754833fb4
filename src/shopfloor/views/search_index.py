"""The searchable text of a run, in chunks, so that a run is indexed while it grows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, cast

import msgspec

from shopfloor.limits import SEARCH_CHUNK_CHARS, SEARCH_OVERLAP_CHARS, SEARCH_RUN_CHARS
from shopfloor.log import (
    AssistantMessage,
    CallCompleted,
    CallStarted,
    CommandBlock,
    Event,
    RunStarted,
    StepCompleted,
    StreamBlock,
    TextBlock,
    ThinkingBlock,
    ToolCall,
    ToolResult,
    UnknownBlock,
    UnknownPayload,
    UserMessage,
)
from shopfloor.views.row import RunRow
from shopfloor.views.search_query import indexed_text

ROW_CHUNK: Final = 0
"""The number of the chunk with the row's task, result and error; the others are numbered from 1."""


class SearchChunk(msgspec.Struct, frozen=True, gc=False):
    """A part of a run's text. A chunk replaces the earlier chunk with the same number."""

    number: int
    text: str


class SearchState(msgspec.Struct, frozen=True, omit_defaults=True):
    """The state of the fold: the chunk that still grows. Bounded by `SEARCH_CHUNK_CHARS`."""

    number: int = 1
    text: str = ""
    source: str = ""
    """The output or message at the end of the text; its continuation follows without a line break."""
    chars: int = 0
    """The number of characters indexed so far."""
    stopped_at: int | None = None
    """The `seq` of the event at which the limit was reached: only its beginning is indexed, and no later event."""


def search_fold(state: SearchState, row: RunRow, events: Sequence[Event]) -> tuple[SearchState, list[SearchChunk]]:
    """Return the state after the next events of a run, and the chunks that are new or have changed.

    `row` is the row after these events.
    """
    builder = _ChunkBuilder(state)
    is_started = False
    for event in events:
        is_started = is_started or isinstance(event.payload, RunStarted)
        for source, text in _texts(event) if builder.stopped_at is None else ():
            if text and not (source is not None and (text == row.task or builder.has(source, text))):
                builder.add(event.seq, source, text)
    changed = builder.changed()
    if row.is_ended or is_started:
        result = None if row.result is not None and row.result in builder.open_text else row.result
        parts = (row.task, result, row.error_message, row.error_hint)
        text = "\n".join(part for part in parts if part)[:SEARCH_RUN_CHARS]
        changed.insert(0, SearchChunk(ROW_CHUNK, indexed_text(text)))
    return builder.state(), changed


class _ChunkBuilder:
    """A splitter of texts into chunks.

    The boundaries depend on the log alone, not on how the events are batched, so that two processes that fold the same
    run write the same chunks.
    """

    def __init__(self, state: SearchState) -> None:
        self._number, self._source, self._chars = state.number, state.source, state.chars
        self.open_text: str = state.text
        self.stopped_at = state.stopped_at
        self._closed: list[SearchChunk] = []
        self._has_changed = False

    def has(self, source: str, text: str) -> bool:
        """Return True if the text is already there: a log repeats it as message, step result and outcome."""
        return not (source and source == self._source) and text in self.open_text

    def add(self, seq: int, source: str | None, text: str) -> None:
        if self.stopped_at is not None:
            return
        continues = bool(source) and source == self._source
        remaining_chars = SEARCH_RUN_CHARS - self._chars
        if len(text) > remaining_chars:
            self.stopped_at, text = seq, text[:remaining_chars]
        self._chars += len(text)
        self._source, self._has_changed = source or "", True
        separator = "" if continues or not self.open_text else "\n"
        # Add a long text in parts, because each close copies the open text.
        for start in range(0, len(text), SEARCH_CHUNK_CHARS):
            self.open_text += separator + text[start : start + SEARCH_CHUNK_CHARS]
            separator = ""
            while len(self.open_text) > SEARCH_CHUNK_CHARS:
                self._close()

    def _close(self) -> None:
        """Close the chunk. The next chunk overlaps its end, so that no word or short phrase is cut in both."""
        end = SEARCH_CHUNK_CHARS
        self._closed.append(SearchChunk(self._number, indexed_text(self.open_text[:end])))
        self._number += 1
        overlap = self.open_text[end - SEARCH_OVERLAP_CHARS : end]
        # The overlap starts after a blank, so that its first word is complete.
        blank = overlap.find(" ")
        self.open_text = overlap[blank + 1 :] + self.open_text[end:]

    def changed(self) -> list[SearchChunk]:
        """Return the chunks that are new or have changed, including the open chunk."""
        if self._has_changed:
            return [*self._closed, SearchChunk(self._number, indexed_text(self.open_text))]
        return []

    def state(self) -> SearchState:
        return SearchState(self._number, self.open_text, self._source, self._chars, self.stopped_at)


def _texts(event: Event) -> Iterable[tuple[str | None, str]]:
    """Return the texts of an event, each with its source.

    The source is the output or message that a text continues, '' for a complete text, or None for a tool's text.
    """
    match event.payload:
        case ToolCall() as call:
            return ((None, _text_of(call.input, call.name)),)
        case ToolResult() as result:
            text = _text_of(result.output) if result.error is None else _text_of([result.error, result.output])
            return ((None, text), *((None, _text_of([file.path, file.diff])) for file in result.files or ()))
        case AssistantMessage() | UserMessage() as message:
            return _message_texts(event, message)
        case StepCompleted() | CallCompleted() as step:
            return (("", _text_of([step.error, step.result])),)
        case RunStarted() | CallStarted() as started:
            return (("", _text_of(started.input)),)
        case UnknownPayload() as unknown:
            return (("", _text_of(unknown.data)),)
        case _:
            return ()


def _message_texts(event: Event, message: AssistantMessage | UserMessage) -> list[tuple[str, str]]:
    # Lists instead of generators for speed: this runs for every message of every log.
    if isinstance(message, AssistantMessage):
        texts = [] if message.note is None else [("", message.note.message or "")]
    else:
        texts = [("", message.system_prompt or "")]
    for block in message.blocks:
        if type(block) is TextBlock and not block.stream:
            texts.append(("", block.text))
        elif (found := _block_text(event, message, block)) is not None:
            texts.append(found)
    return texts


def _block_text(event: Event, message: AssistantMessage | UserMessage, block: Any) -> tuple[str, str] | None:
    match block:
        case TextBlock() if block.stream:
            # Output comes in parts that may end in the middle of a word; a message is complete.
            return f"{_source(event, message)}:{block.stream}", block.text
        case TextBlock():
            return "", block.text
        case ThinkingBlock():
            return "", block.thinking
        case CommandBlock():
            return "", block.command
        case StreamBlock() if block.offset is not None:
            # A chunk of a streaming message: the complete or the interrupted message follows (ADR 14).
            return None
        case StreamBlock():
            return ("" if block.unparsed else f"{_source(event, message)}:stream"), block.chunk
        case UnknownBlock():
            return "", _text_of(block.data)
        case _:
            # Calls and results have events of their own.
            return None


def _source(event: Event, message: AssistantMessage | UserMessage) -> str:
    if isinstance(message, UserMessage):
        return ""
    return f"{event.path}#{event.iteration}:{message.message_id or ''}"


def _text_of(value: Any, *before: str) -> str:
    """Return the names and values inside, in order, one per line. Not JSON, because its escapes are no words."""
    if isinstance(value, str) and not before:
        return value
    found: list[str] = [*before]
    # Not recursive: the value may be deeply nested.
    stack: list[Any] = [value]
    while stack:
        value = stack.pop()
        if isinstance(value, str):
            found.append(value)
        elif isinstance(value, dict):
            for name, field in reversed(cast("dict[str, Any]", value).items()):
                stack += (field, name)
        elif isinstance(value, list):
            stack += reversed(cast("list[Any]", value))
        elif value is not None:
            found.append(str(value))
    return "\n".join(found)
