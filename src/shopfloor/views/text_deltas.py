"""Inputs of calls, told in pieces that together are the input as JSON.

A model types JSON in its own layout, pieces of it may be lost, and the log keeps the value, not the text. So what is
typed is rewritten into the one layout in which the value itself is encoded: then what was told is the beginning of the
whole, and the rest follows from the value.
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

_SPACE: Final = re.compile(r"[ \t\r\n]*")
_SCALAR: Final = re.compile(r'[^ \t\r\n{}\[\],:"]+')
_PLAIN: Final = re.compile(r'[^"\\\x00-\x1f\ud800-\udfff]+')
_ESCAPE: Final = re.compile(
    r'\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u(?![dD][89a-fA-F])[0-9a-fA-F]{4}|["\\/bfnrt])'
)
_ESCAPE_CHARS: Final = 12
"""The longest escape: a pair of surrogates."""
_SCALAR_CHARS: Final = 1_000
"""A number that is longer is not told in pieces."""


class StreamedInput(msgspec.Struct, frozen=True, omit_defaults=True):
    """What was told of an input, and what of it was typed and cannot be told yet."""

    length: int = 0
    checksum: int = 0
    """Of the characters told: by it the whole is known to begin with them, and they need not be kept."""
    pending: str = ""
    """The beginning of a number, a word or an escape whose end has not come."""
    in_string: bool = False
    broken: bool = False
    """What was typed is not JSON: the rest is told when the whole is known."""

    def with_text(self, text: str) -> StreamedInput:
        """The state when this was told, too."""
        checksum = zlib.crc32(text.encode(), self.checksum)
        return msgspec.structs.replace(self, length=self.length + len(text), checksum=checksum)

    def rest_of(self, whole: str) -> str | None:
        """What is still to be told of the whole; None where it does not begin with what was told."""
        begins = len(whole) >= self.length and zlib.crc32(whole[: self.length].encode()) == self.checksum
        return whole[self.length :] if begins else None


def as_json(value: object) -> str:
    """The whole of an input, as its pieces together are."""
    return msgspec.json.encode(value).decode()


def append_input_text(state: StreamedInput, piece: str) -> tuple[StreamedInput, str]:
    """The state after a piece, and what can be told of it now."""
    if state.broken:
        return state, ""
    text, place, told = state.pending + piece, 0, list[str]()
    in_string, broken = state.in_string, False
    while place < len(text):
        found = _next(text, place, in_string=in_string)
        if found is None:
            broken = _is_broken(text[place:], in_string=in_string)
            break
        part, place = found
        told.append(part)
        in_string = in_string != (part == '"')
    said = "".join(told)
    pending = "" if broken else text[place:]
    return msgspec.structs.replace(state.with_text(said), pending=pending, in_string=in_string, broken=broken), said


def _next(text: str, place: int, *, in_string: bool) -> tuple[str, int] | None:
    """The next part in our layout and where it ends; None where it is not whole, or is no JSON."""
    if in_string:
        if text[place] == '"':
            return '"', place + 1
        found = _PLAIN.match(text, place) or _ESCAPE.match(text, place)
        return None if found is None else (_string(found[0]), found.end())
    found = _SPACE.match(text, place)
    if found and found.end() > place:
        return "", found.end()
    if text[place] in '{}[],:"':
        return text[place], place + 1
    found = _SCALAR.match(text, place)
    if found is None or found.end() == len(text):
        return None
    try:
        return as_json(msgspec.json.decode(found[0])), found.end()
    except msgspec.DecodeError:
        return None


def _string(raw: str) -> str:
    return as_json(msgspec.json.decode(f'"{raw}"'))[1:-1]


def _is_broken(rest: str, *, in_string: bool) -> bool:
    """Whether no more text can make a part of this."""
    if in_string:
        return not rest.startswith("\\") or len(rest) >= _ESCAPE_CHARS
    found = _SCALAR.match(rest)
    return found is None or found.end() < len(rest) or len(rest) > _SCALAR_CHARS


Kind = Literal["text", "thinking", "tool_input"]
_STARTS = {"text": TextStart, "thinking": ReasoningStart}
_DELTAS = {"text": TextDelta, "thinking": ReasoningDelta}
_ENDS = {"text": TextEnd, "thinking": ReasoningEnd}


class StreamedBlock(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A block of which something was told and more is to come."""

    id: str
    """What the stream calls it; for the input of a tool the call's id."""
    kind: Kind
    place: str
    message_id: str
    length: int = 0
    """How many characters were told."""
    checksum: int = 0
    """Of those characters: by it the whole is known to begin with them, and they need not be kept."""
    ended: bool = False
    """The message has gone on to its next block: as far as anybody knows, this was all of it."""

    def with_text(self, text: str) -> StreamedBlock:
        return msgspec.structs.replace(self, length=self.length + len(text), checksum=_checksum(text, self.checksum))

    def is_prefix_of(self, whole: str) -> bool:
        return len(whole) >= self.length and _checksum(whole[: self.length]) == self.checksum


class TextState(msgspec.Struct, frozen=True, omit_defaults=True):
    """What was told of messages. Bounded: of each kind of fact, the newest thousand are known."""

    open: dict[str, StreamedBlock] = {}
    """By `<message id>:<block>`."""
    rounds: dict[str, int] = {}
    """How many ids a block has used up, where it was cut off and told anew."""
    logged_blocks: dict[str, int] = {}
    """How many blocks of a message the log has: it may come in several pieces."""
    logged_seqs: dict[str, int] = {}
    """By place, the `seq` up to which pieces come too late."""
    calls: dict[str, str] = {}
    """The calls whose input was told, and that have no result yet; with the tool's name."""
    inputs: dict[str, StreamedInput] = {}
    """The calls whose input is being told, and how much of it was."""


TextStep = tuple[TextState, list[StreamEvent]]


def stream_delta(texts: TextState, delta: Delta) -> TextStep:
    """A piece, where it goes on from what was told. Any other is passed over: the whole makes up for it."""
    key, place = f"{delta.message_id}:{delta.block}", format_step_key(delta.path, delta.iteration)
    if delta.after < texts.logged_seqs.get(place, 0) or delta.block < texts.logged_blocks.get(delta.message_id, 0):
        return texts, []
    events: list[StreamEvent] = []
    told = texts.open.get(key)
    if told is None:
        texts, events = close_texts(texts, place, but=delta.message_id)
        told = _begun(texts, key, delta, place)
        if told is None or len(texts.open) >= OPEN_BRANCHES:
            return texts, events
        texts, more = _next_block(texts, delta.message_id)
        events += [*more, _start(told, delta.tool_name or "")]
    if told.ended or delta.offset > told.length or delta.kind != told.kind:
        return texts, events
    # The log says in pieces what was told live before, and the other way round.
    new = delta.text[told.length - delta.offset :]
    if told.kind == "tool_input":
        texts, more = _input_told(texts, told.id, new)
        events += more
    elif new:
        events.append(_delta(told, new))
    return msgspec.structs.replace(texts, open={**texts.open, key: told.with_text(new)}), events


def _pieces_told(texts: TextState, event: Event, message: AssistantMessage) -> TextStep:
    """What the log has of a message that is not complete. What was told live before is not told again."""
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
        texts, more = stream_delta(texts, delta)
        events += more
    return texts, events


def _input_told(texts: TextState, call_id: str, piece: str) -> TextStep:
    state, text = append_input_text(texts.inputs.get(call_id, StreamedInput()), piece)
    texts = msgspec.structs.replace(texts, inputs=keep_newest({**texts.inputs, call_id: state}))
    return texts, [ToolInputDelta(tool_call_id=call_id, input_text_delta=text)] if text else []


def _next_block(texts: TextState, message_id: str) -> TextStep:
    """Ends the blocks of a message that were being told, because the next one begins."""
    events: list[StreamEvent] = []
    opened = dict(texts.open)
    for key, told in texts.open.items():
        if told.message_id == message_id:
            events += _end(told)
            opened[key] = msgspec.structs.replace(told, ended=True)
    return msgspec.structs.replace(texts, open=opened), events


def _begun(texts: TextState, key: str, delta: Delta, place: str) -> StreamedBlock | None:
    """A block that begins with this piece; None where it does not."""
    name = delta.tool_id if delta.kind == "tool_input" else _id(texts, key)
    if delta.offset or name is None or name in texts.calls or name in texts.inputs:
        return None
    return StreamedBlock(id=name, kind=delta.kind, place=place, message_id=delta.message_id)


def stream_message(texts: TextState, event: Event, message: AssistantMessage) -> TextStep:
    """What of a message was not told yet; all of it is told then."""
    if is_message_chunk(message):
        return _pieces_told(texts, event, message)
    if not message.blocks:
        # Spending or a note: it may come in the middle of a message, and ends nothing.
        return texts, []
    place = format_step_key(event.path, event.iteration)
    texts, events = close_texts(texts, place, but=message.message_id)
    name = message.message_id or f"seq-{event.seq}"
    first = texts.logged_blocks.get(name, 0)
    for number, block in enumerate(message.blocks, first):
        key = f"{name}:{number}"
        match block:
            case TextBlock(text=text):
                texts, more = _whole(texts, StreamedBlock(id=key, kind="text", place=place, message_id=name), text)
            case ThinkingBlock(thinking=text):
                texts, more = _whole(texts, StreamedBlock(id=key, kind="thinking", place=place, message_id=name), text)
            case ToolUseBlock(tool_id=call_id, tool_name=tool, tool_input=given):
                texts, more = stream_call_input(_closed(texts, key), call_id, tool, given)
            case _:
                continue
        events += more
    logged_seqs = keep_newest({**texts.logged_seqs, place: event.seq})
    logged_blocks = texts.logged_blocks
    if message.message_id is not None:
        logged_blocks = keep_newest({**logged_blocks, name: first + len(message.blocks)})
    return msgspec.structs.replace(texts, logged_blocks=logged_blocks, logged_seqs=logged_seqs), events


def _whole(texts: TextState, block: StreamedBlock, text: str) -> TextStep:
    key = block.id
    told = texts.open.get(key)
    events: list[StreamEvent] = []
    if told is not None and told.ended and told.length == len(text) and told.is_prefix_of(text):
        return _closed(texts, key), []
    if told is not None and (told.ended or told.kind != block.kind or not told.is_prefix_of(text)):
        # Somebody began to say this and was cut off; what was told cannot be taken back.
        texts, events = _cut_off(texts, key, told)
        told = None
    if told is None:
        told = msgspec.structs.replace(block, id=_id(texts, key))
        events.append(_start(told))
    if rest := text[told.length :]:
        events.append(_delta(told, rest))
    return _closed(texts, key), [*events, *_end(told)]


def stream_call_input(texts: TextState, call_id: str, tool: str, given: object) -> TextStep:
    """The input of a call, once: it is in the message that asks for the call, and in the call.

    Where what was typed turns out to be another input, the input begins anew.
    """
    if call_id in texts.calls:
        return texts, []
    whole, begun = as_json(given), texts.inputs.get(call_id)
    rest = begun.rest_of(whole) if begun is not None else None
    events: list[StreamEvent] = [] if rest is not None else [ToolInputStart(tool_call_id=call_id, tool_name=tool)]
    if rest != "":
        events.append(ToolInputDelta(tool_call_id=call_id, input_text_delta=rest or whole))
    events.append(ToolInputAvailable(tool_call_id=call_id, tool_name=tool, input=given))
    inputs = {one: state for one, state in texts.inputs.items() if one != call_id}
    calls = keep_newest({**texts.calls, call_id: tool})
    return msgspec.structs.replace(texts, calls=calls, inputs=inputs), events


def close_call(texts: TextState, call_id: str) -> TextState:
    calls = {one: tool for one, tool in texts.calls.items() if one != call_id}
    return msgspec.structs.replace(texts, calls=calls)


def close_step(texts: TextState, place: str, seq: int) -> TextStep:
    """Nothing more will be said there."""
    texts, events = close_texts(texts, place)
    return msgspec.structs.replace(texts, logged_seqs=keep_newest({**texts.logged_seqs, place: seq})), events


def close_texts(texts: TextState, place: str | None = None, *, but: str | None = None) -> TextStep:
    """Ends what was begun at a place (or anywhere) and is not of this message: its whole will not come."""
    events: list[StreamEvent] = []
    for key, told in texts.open.items():
        if place in {None, told.place} and told.message_id != but:
            texts, more = _cut_off(texts, key, told)
            events += more
    return texts, events


def _cut_off(texts: TextState, key: str, told: StreamedBlock) -> TextStep:
    texts = _closed(texts, key)
    if told.kind == "tool_input":
        return texts, []
    rounds = keep_newest({**texts.rounds, key: texts.rounds.get(key, 0) + 1})
    return msgspec.structs.replace(texts, rounds=rounds), _end(told)


def _closed(texts: TextState, key: str) -> TextState:
    if key not in texts.open:
        return texts
    return msgspec.structs.replace(texts, open={one: told for one, told in texts.open.items() if one != key})


def _id(texts: TextState, key: str) -> str:
    used = texts.rounds.get(key, 0)
    return f"{key}:r{used + 1}" if used else key


def _start(told: StreamedBlock, tool: str = "") -> StreamEvent:
    if told.kind == "tool_input":
        return ToolInputStart(tool_call_id=told.id, tool_name=tool)
    return _STARTS[told.kind](id=told.id)


def _delta(told: StreamedBlock, text: str) -> StreamEvent:
    return _DELTAS[told.kind](id=told.id, delta=text)


def _end(told: StreamedBlock) -> list[StreamEvent]:
    return [] if told.ended or told.kind == "tool_input" else [_ENDS[told.kind](id=told.id)]


def _checksum(text: str, before: int = 0) -> int:
    # What is being typed may be cut inside a pair of surrogates.
    return zlib.crc32(text.encode("utf-8", "surrogatepass"), before)
