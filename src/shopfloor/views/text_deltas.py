"""Text deltas: messages and call inputs, streamed in parts while a model writes them, completed from the log.

The parts of a call's input together are the input as JSON. A model writes JSON in its own layout, deltas may be lost,
and the log has the value, not the text. So each delta is rewritten into the layout in which the value is encoded:
then the streamed text is a prefix of the encoded value, and the rest follows from the value.
"""

from __future__ import annotations

import re
import zlib
from typing import Final, Literal

import msgspec

from shopfloor.limits import OPEN_BRANCHES
from shopfloor.log import (
    AssistantMessage,
    Delta,
    Event,
    TextBlock,
    ThinkingBlock,
    ToolUseBlock,
    chunk_blocks,
    is_message_chunk,
)
from shopfloor.views.stream_events import (
    ReasoningDelta,
    ReasoningEnd,
    ReasoningStart,
    StreamEvent,
    TextDelta,
    TextEnd,
    TextStart,
    ToolInputAvailable,
    ToolInputDelta,
    ToolInputStart,
)
from shopfloor.views.wait_state import format_step_key, keep_newest

_WHITE_SPACE: Final = re.compile(r"[ \t\r\n]*")
_SCALAR: Final = re.compile(r'[^ \t\r\n{}\[\],:"]+')
_STRING_TEXT: Final = re.compile(r'[^"\\\x00-\x1f\ud800-\udfff]+')
_ESCAPE: Final = re.compile(
    r'\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u(?![dD][89a-fA-F])[0-9a-fA-F]{4}|["\\/bfnrt])'
)
_ESCAPE_CHARS: Final = 12
"""The longest escape: a pair of surrogates."""
_SCALAR_CHARS: Final = 1_000
"""A longer number is not streamed in parts."""


class StreamedInput(msgspec.Struct, frozen=True, omit_defaults=True):
    """The streamed part of a call's input, and the received part that cannot be streamed yet."""

    length: int = 0
    """The number of characters streamed."""
    checksum: int = 0
    """The checksum of the streamed characters, to recognize them as a prefix without storing them."""
    pending: str = ""
    """The start of a number, a word or an escape whose end has not been received."""
    in_string: bool = False
    broken: bool = False
    """True if the received text is not JSON: the rest is streamed when the complete input is known."""

    def with_text(self, text: str) -> StreamedInput:
        """Return the state after `text` was streamed."""
        checksum = zlib.crc32(text.encode(), self.checksum)
        return msgspec.structs.replace(self, length=self.length + len(text), checksum=checksum)

    def rest_of(self, whole: str) -> str | None:
        """Return the part of the complete input that is not streamed yet; None if the streamed text is no prefix."""
        is_prefix = len(whole) >= self.length and zlib.crc32(whole[: self.length].encode()) == self.checksum
        return whole[self.length :] if is_prefix else None


def as_json(value: object) -> str:
    """Return the complete input in the layout of its streamed parts."""
    return msgspec.json.encode(value).decode()


def append_input_text(state: StreamedInput, chunk: str) -> tuple[StreamedInput, str]:
    """Return the state after a chunk, and the text that can be streamed now."""
    if state.broken:
        return state, ""
    text, position, parts = state.pending + chunk, 0, list[str]()
    in_string, broken = state.in_string, False
    while position < len(text):
        found = _next_part(text, position, in_string=in_string)
        if found is None:
            broken = _is_broken(text[position:], in_string=in_string)
            break
        part, position = found
        parts.append(part)
        in_string = in_string != (part == '"')
    streamed = "".join(parts)
    pending = "" if broken else text[position:]
    state = msgspec.structs.replace(state.with_text(streamed), pending=pending, in_string=in_string, broken=broken)
    return state, streamed


def _next_part(text: str, position: int, *, in_string: bool) -> tuple[str, int] | None:
    """Return the next part in our layout and its end position; None if it is incomplete or no JSON."""
    if in_string:
        if text[position] == '"':
            return '"', position + 1
        found = _STRING_TEXT.match(text, position) or _ESCAPE.match(text, position)
        return None if found is None else (_normalize_string(found[0]), found.end())
    found = _WHITE_SPACE.match(text, position)
    if found and found.end() > position:
        return "", found.end()
    if text[position] in '{}[],:"':
        return text[position], position + 1
    found = _SCALAR.match(text, position)
    if found is None or found.end() == len(text):
        return None
    try:
        return as_json(msgspec.json.decode(found[0])), found.end()
    except msgspec.DecodeError:
        return None


def _normalize_string(raw: str) -> str:
    return as_json(msgspec.json.decode(f'"{raw}"'))[1:-1]


def _is_broken(rest: str, *, in_string: bool) -> bool:
    """Return True if no further text can complete `rest` to a part of JSON."""
    if in_string:
        return not rest.startswith("\\") or len(rest) >= _ESCAPE_CHARS
    found = _SCALAR.match(rest)
    return found is None or found.end() < len(rest) or len(rest) > _SCALAR_CHARS


Kind = Literal["text", "thinking", "tool_input"]
_STARTS = {"text": TextStart, "thinking": ReasoningStart}
_DELTAS = {"text": TextDelta, "thinking": ReasoningDelta}
_ENDS = {"text": TextEnd, "thinking": ReasoningEnd}


class StreamedBlock(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A block that is streamed in part."""

    id: str
    """The block's id in the stream; for the input of a tool the call's id."""
    kind: Kind
    step_key: str
    message_id: str
    length: int = 0
    """The number of characters streamed."""
    checksum: int = 0
    """The checksum of the streamed characters, to recognize them as a prefix without storing them."""
    ended: bool = False
    """True if the message has continued with its next block, so that this block appears to be complete."""

    def with_text(self, text: str) -> StreamedBlock:
        """Return the block after `text` was streamed."""
        return msgspec.structs.replace(self, length=self.length + len(text), checksum=_checksum(text, self.checksum))

    def is_prefix_of(self, whole: str) -> bool:
        """Return True if the streamed text is a prefix of the complete text."""
        return len(whole) >= self.length and _checksum(whole[: self.length]) == self.checksum


class TextState(msgspec.Struct, frozen=True, omit_defaults=True):
    """The streamed text of messages. Bounded: each dictionary has the newest `OPEN_BRANCHES` entries."""

    open: dict[str, StreamedBlock] = {}
    """The blocks that are streamed in part, by `<message id>:<block>`."""
    restarts: dict[str, int] = {}
    """How often a block was interrupted and started again with a new id, by `<message id>:<block>`."""
    logged_blocks: dict[str, int] = {}
    """The number of blocks that the log has of a message, by message id: a message may have several events."""
    logged_seqs: dict[str, int] = {}
    """The `seq` up to which deltas are too late, by step key."""
    calls: dict[str, str] = {}
    """The tool names of the calls whose input is streamed completely and that have no result yet, by call id."""
    inputs: dict[str, StreamedInput] = {}
    """The inputs that are streamed in part, by call id."""


TextStep = tuple[TextState, list[StreamEvent]]


def stream_delta(texts: TextState, delta: Delta) -> TextStep:
    """Stream a delta that continues the streamed text. Any other is skipped: the message in the log replaces it."""
    key, step_key = f"{delta.message_id}:{delta.block}", format_step_key(delta.path, delta.iteration)
    if delta.after < texts.logged_seqs.get(step_key, 0) or delta.block < texts.logged_blocks.get(delta.message_id, 0):
        return texts, []
    events: list[StreamEvent] = []
    streamed = texts.open.get(key)
    if streamed is None:
        texts, events = close_texts(texts, step_key, except_message_id=delta.message_id)
        streamed = _first_block(texts, key, delta, step_key)
        if streamed is None or len(texts.open) >= OPEN_BRANCHES:
            return texts, events
        texts, new_events = _end_blocks(texts, delta.message_id)
        events += [*new_events, _start_event(streamed, delta.tool_name or "")]
    if streamed.ended or delta.offset > streamed.length or delta.kind != streamed.kind:
        return texts, events
    # The same text may come as a live delta and as a chunk in the log, in either order.
    new = delta.text[streamed.length - delta.offset :]
    if streamed.kind == "tool_input":
        texts, new_events = _stream_input(texts, streamed.id, new)
        events += new_events
    elif new:
        events.append(_delta_event(streamed, new))
    return msgspec.structs.replace(texts, open={**texts.open, key: streamed.with_text(new)}), events


def _stream_chunks(texts: TextState, event: Event, message: AssistantMessage) -> TextStep:
    """Stream the chunks that the log has of an incomplete message, without the text that was already streamed live."""
    events: list[StreamEvent] = []
    for block, kind, number, offset in chunk_blocks(message):
        delta = Delta(
            after=event.seq,
            path=event.path,
            iteration=event.iteration,
            message_id=message.message_id or "",
            block=number,
            kind=kind,
            offset=offset,
            text=block.chunk,
            tool_name=block.tool_name,
            tool_id=block.tool_id,
        )
        texts, new_events = stream_delta(texts, delta)
        events += new_events
    return texts, events


def _stream_input(texts: TextState, call_id: str, chunk: str) -> TextStep:
    state, text = append_input_text(texts.inputs.get(call_id, StreamedInput()), chunk)
    texts = msgspec.structs.replace(texts, inputs=keep_newest({**texts.inputs, call_id: state}))
    return texts, [ToolInputDelta(tool_call_id=call_id, input_text_delta=text)] if text else []


def _end_blocks(texts: TextState, message_id: str) -> TextStep:
    """End the open blocks of a message, because its next block starts."""
    events: list[StreamEvent] = []
    opened = dict(texts.open)
    for key, streamed in texts.open.items():
        if streamed.message_id == message_id:
            events += _end_events(streamed)
            opened[key] = msgspec.structs.replace(streamed, ended=True)
    return msgspec.structs.replace(texts, open=opened), events


def _first_block(texts: TextState, key: str, delta: Delta, step_key: str) -> StreamedBlock | None:
    """Return a block that starts with this delta; None if the delta is not the start of a block."""
    name = delta.tool_id if delta.kind == "tool_input" else _block_id(texts, key)
    if delta.offset or name is None or name in texts.calls or name in texts.inputs:
        return None
    return StreamedBlock(id=name, kind=delta.kind, step_key=step_key, message_id=delta.message_id)


def stream_message(texts: TextState, event: Event, message: AssistantMessage) -> TextStep:
    """Stream the rest of a message from the log."""
    if is_message_chunk(message):
        return _stream_chunks(texts, event, message)
    if not message.blocks:
        # Usage or a note: it may come in the middle of a message and ends no block.
        return texts, []
    step_key = format_step_key(event.path, event.iteration)
    texts, events = close_texts(texts, step_key, except_message_id=message.message_id)
    name = message.message_id or f"seq-{event.seq}"
    first = texts.logged_blocks.get(name, 0)
    for number, block in enumerate(message.blocks, first):
        key = f"{name}:{number}"
        match block:
            case TextBlock(text=text):
                texts, new_events = _stream_complete_block(
                    texts, StreamedBlock(id=key, kind="text", step_key=step_key, message_id=name), text
                )
            case ThinkingBlock(thinking=text):
                texts, new_events = _stream_complete_block(
                    texts, StreamedBlock(id=key, kind="thinking", step_key=step_key, message_id=name), text
                )
            case ToolUseBlock(tool_id=call_id, tool_name=tool, tool_input=arguments):
                texts, new_events = stream_call_input(_without_block(texts, key), call_id, tool, arguments)
            case _:
                continue
        events += new_events
    logged_seqs = keep_newest({**texts.logged_seqs, step_key: event.seq})
    logged_blocks = texts.logged_blocks
    if message.message_id is not None:
        logged_blocks = keep_newest({**logged_blocks, name: first + len(message.blocks)})
    return msgspec.structs.replace(texts, logged_blocks=logged_blocks, logged_seqs=logged_seqs), events


def _stream_complete_block(texts: TextState, block: StreamedBlock, text: str) -> TextStep:
    key = block.id
    streamed = texts.open.get(key)
    events: list[StreamEvent] = []
    if streamed is not None and streamed.ended and streamed.length == len(text) and streamed.is_prefix_of(text):
        return _without_block(texts, key), []
    if streamed is not None and (streamed.ended or streamed.kind != block.kind or not streamed.is_prefix_of(text)):
        # The block was interrupted and written again. Streamed text cannot be taken back, so a new block starts.
        texts, events = _interrupt(texts, key, streamed)
        streamed = None
    if streamed is None:
        streamed = msgspec.structs.replace(block, id=_block_id(texts, key))
        events.append(_start_event(streamed))
    if rest := text[streamed.length :]:
        events.append(_delta_event(streamed, rest))
    return _without_block(texts, key), [*events, *_end_events(streamed)]


def stream_call_input(texts: TextState, call_id: str, tool: str, arguments: object) -> TextStep:
    """Stream the input of a call once, although both the message and the call event have it.

    If the text streamed so far belongs to a different input, the input starts again.
    """
    if call_id in texts.calls:
        return texts, []
    whole, partial = as_json(arguments), texts.inputs.get(call_id)
    rest = partial.rest_of(whole) if partial is not None else None
    events: list[StreamEvent] = [] if rest is not None else [ToolInputStart(tool_call_id=call_id, tool_name=tool)]
    if rest != "":
        events.append(ToolInputDelta(tool_call_id=call_id, input_text_delta=rest or whole))
    events.append(ToolInputAvailable(tool_call_id=call_id, tool_name=tool, input=arguments))
    inputs = {key: state for key, state in texts.inputs.items() if key != call_id}
    calls = keep_newest({**texts.calls, call_id: tool})
    return msgspec.structs.replace(texts, calls=calls, inputs=inputs), events


def close_call(texts: TextState, call_id: str) -> TextState:
    """Forget a call that has its result."""
    calls = {key: tool for key, tool in texts.calls.items() if key != call_id}
    return msgspec.structs.replace(texts, calls=calls)


def close_step(texts: TextState, step_key: str, seq: int) -> TextStep:
    """End all blocks of a step that has ended, and ignore its late deltas."""
    texts, events = close_texts(texts, step_key)
    return msgspec.structs.replace(texts, logged_seqs=keep_newest({**texts.logged_seqs, step_key: seq})), events


def close_texts(texts: TextState, step_key: str | None = None, *, except_message_id: str | None = None) -> TextStep:
    """End the open blocks of a step (or of all steps), except those of one message: they will not be completed."""
    events: list[StreamEvent] = []
    for key, streamed in texts.open.items():
        if step_key in {None, streamed.step_key} and streamed.message_id != except_message_id:
            texts, new_events = _interrupt(texts, key, streamed)
            events += new_events
    return texts, events


def _interrupt(texts: TextState, key: str, streamed: StreamedBlock) -> TextStep:
    texts = _without_block(texts, key)
    if streamed.kind == "tool_input":
        return texts, []
    restarts = keep_newest({**texts.restarts, key: texts.restarts.get(key, 0) + 1})
    return msgspec.structs.replace(texts, restarts=restarts), _end_events(streamed)


def _without_block(texts: TextState, key: str) -> TextState:
    if key not in texts.open:
        return texts
    return msgspec.structs.replace(texts, open={other: block for other, block in texts.open.items() if other != key})


def _block_id(texts: TextState, key: str) -> str:
    restarts = texts.restarts.get(key, 0)
    return f"{key}:r{restarts + 1}" if restarts else key


def _start_event(streamed: StreamedBlock, tool: str = "") -> StreamEvent:
    if streamed.kind == "tool_input":
        return ToolInputStart(tool_call_id=streamed.id, tool_name=tool)
    return _STARTS[streamed.kind](id=streamed.id)


def _delta_event(streamed: StreamedBlock, text: str) -> StreamEvent:
    return _DELTAS[streamed.kind](id=streamed.id, delta=text)


def _end_events(streamed: StreamedBlock) -> list[StreamEvent]:
    return [] if streamed.ended or streamed.kind == "tool_input" else [_ENDS[streamed.kind](id=streamed.id)]


def _checksum(text: str, before: int = 0) -> int:
    # A delta may end inside a pair of surrogates.
    return zlib.crc32(text.encode("utf-8", "surrogatepass"), before)
