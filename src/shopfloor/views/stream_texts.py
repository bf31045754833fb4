"""What messages say, as a stream tells it: in pieces while it is typed, and the rest when the log has the whole."""

from __future__ import annotations

import zlib
from typing import Literal

import msgspec

from shopfloor.limits import OPEN_BRANCHES
from shopfloor.log import AssistantMessage, Delta, Event, TextBlock, ThinkingBlock, ToolUseBlock, is_piece, piece_blocks
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
from shopfloor.views.stream_inputs import TypedInput, as_json, typed
from shopfloor.views.waiting import bounded, place_name

Kind = Literal["text", "thinking", "tool_input"]
_STARTS = {"text": TextStart, "thinking": ReasoningStart}
_DELTAS = {"text": TextDelta, "thinking": ReasoningDelta}
_ENDS = {"text": TextEnd, "thinking": ReasoningEnd}


class Told(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
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

    def and_then(self, text: str) -> Told:
        return msgspec.structs.replace(self, length=self.length + len(text), checksum=_checksum(text, self.checksum))

    def begins(self, whole: str) -> bool:
        return len(whole) >= self.length and _checksum(whole[: self.length]) == self.checksum


class Texts(msgspec.Struct, frozen=True, omit_defaults=True):
    """What was told of messages. Bounded: of each kind of fact, the newest thousand are known."""

    open: dict[str, Told] = {}
    """By `<message id>:<block>`."""
    rounds: dict[str, int] = {}
    """How many ids a block has used up, where it was cut off and told anew."""
    said: dict[str, int] = {}
    """How many blocks of a message the log has: it may come in several pieces."""
    heard: dict[str, int] = {}
    """By place, the `seq` up to which pieces come too late."""
    calls: dict[str, str] = {}
    """The calls whose input was told, and that have no result yet; with the tool's name."""
    inputs: dict[str, TypedInput] = {}
    """The calls whose input is being told, and how much of it was."""


Telling = tuple[Texts, list[StreamEvent]]


def piece_told(texts: Texts, delta: Delta) -> Telling:
    """A piece, where it goes on from what was told. Any other is passed over: the whole makes up for it."""
    key, place = f"{delta.message_id}:{delta.block}", place_name(delta.path, delta.iteration)
    if delta.after < texts.heard.get(place, 0) or delta.block < texts.said.get(delta.message_id, 0):
        return texts, []
    events: list[StreamEvent] = []
    told = texts.open.get(key)
    if told is None:
        texts, events = texts_ended(texts, place, but=delta.message_id)
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
    return msgspec.structs.replace(texts, open={**texts.open, key: told.and_then(new)}), events


def _pieces_told(texts: Texts, event: Event, message: AssistantMessage) -> Telling:
    """What the log has of a message that is not complete. What was told live before is not told again."""
    events: list[StreamEvent] = []
    for block, kind, number, offset in piece_blocks(message):
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
        texts, more = piece_told(texts, delta)
        events += more
    return texts, events


def _input_told(texts: Texts, call_id: str, piece: str) -> Telling:
    state, text = typed(texts.inputs.get(call_id, TypedInput()), piece)
    texts = msgspec.structs.replace(texts, inputs=bounded({**texts.inputs, call_id: state}))
    return texts, [ToolInputDelta(tool_call_id=call_id, input_text_delta=text)] if text else []


def _next_block(texts: Texts, message_id: str) -> Telling:
    """Ends the blocks of a message that were being told, because the next one begins."""
    events: list[StreamEvent] = []
    opened = dict(texts.open)
    for key, told in texts.open.items():
        if told.message_id == message_id:
            events += _end(told)
            opened[key] = msgspec.structs.replace(told, ended=True)
    return msgspec.structs.replace(texts, open=opened), events


def _begun(texts: Texts, key: str, delta: Delta, place: str) -> Told | None:
    """A block that begins with this piece; None where it does not."""
    name = delta.tool_id if delta.kind == "tool_input" else _id(texts, key)
    if delta.offset or name is None or name in texts.calls or name in texts.inputs:
        return None
    return Told(id=name, kind=delta.kind, place=place, message_id=delta.message_id)


def message_told(texts: Texts, event: Event, message: AssistantMessage) -> Telling:
    """What of a message was not told yet; all of it is told then."""
    if is_piece(message):
        return _pieces_told(texts, event, message)
    if not message.blocks:
        # Spending or a note: it may come in the middle of a message, and ends nothing.
        return texts, []
    place = place_name(event.path, event.iteration)
    texts, events = texts_ended(texts, place, but=message.message_id)
    name = message.message_id or f"seq-{event.seq}"
    first = texts.said.get(name, 0)
    for number, block in enumerate(message.blocks, first):
        key = f"{name}:{number}"
        match block:
            case TextBlock(text=text):
                texts, more = _whole(texts, Told(id=key, kind="text", place=place, message_id=name), text)
            case ThinkingBlock(thinking=text):
                texts, more = _whole(texts, Told(id=key, kind="thinking", place=place, message_id=name), text)
            case ToolUseBlock(tool_id=call_id, tool_name=tool, tool_input=given):
                texts, more = call_told(_closed(texts, key), call_id, tool, given)
            case _:
                continue
        events += more
    heard = bounded({**texts.heard, place: event.seq})
    said = texts.said
    if message.message_id is not None:
        said = bounded({**said, name: first + len(message.blocks)})
    return msgspec.structs.replace(texts, said=said, heard=heard), events


def _whole(texts: Texts, block: Told, text: str) -> Telling:
    key = block.id
    told = texts.open.get(key)
    events: list[StreamEvent] = []
    if told is not None and told.ended and told.length == len(text) and told.begins(text):
        return _closed(texts, key), []
    if told is not None and (told.ended or told.kind != block.kind or not told.begins(text)):
        # Somebody began to say this and was cut off; what was told cannot be taken back.
        texts, events = _cut_off(texts, key, told)
        told = None
    if told is None:
        told = msgspec.structs.replace(block, id=_id(texts, key))
        events.append(_start(told))
    if rest := text[told.length :]:
        events.append(_delta(told, rest))
    return _closed(texts, key), [*events, *_end(told)]


def call_told(texts: Texts, call_id: str, tool: str, given: object) -> Telling:
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
    calls = bounded({**texts.calls, call_id: tool})
    return msgspec.structs.replace(texts, calls=calls, inputs=inputs), events


def call_answered(texts: Texts, call_id: str) -> Texts:
    calls = {one: tool for one, tool in texts.calls.items() if one != call_id}
    return msgspec.structs.replace(texts, calls=calls)


def step_ended(texts: Texts, place: str, seq: int) -> Telling:
    """Nothing more will be said there."""
    texts, events = texts_ended(texts, place)
    return msgspec.structs.replace(texts, heard=bounded({**texts.heard, place: seq})), events


def texts_ended(texts: Texts, place: str | None = None, *, but: str | None = None) -> Telling:
    """Ends what was begun at a place (or anywhere) and is not of this message: its whole will not come."""
    events: list[StreamEvent] = []
    for key, told in texts.open.items():
        if place in {None, told.place} and told.message_id != but:
            texts, more = _cut_off(texts, key, told)
            events += more
    return texts, events


def _cut_off(texts: Texts, key: str, told: Told) -> Telling:
    texts = _closed(texts, key)
    if told.kind == "tool_input":
        return texts, []
    rounds = bounded({**texts.rounds, key: texts.rounds.get(key, 0) + 1})
    return msgspec.structs.replace(texts, rounds=rounds), _end(told)


def _closed(texts: Texts, key: str) -> Texts:
    if key not in texts.open:
        return texts
    return msgspec.structs.replace(texts, open={one: told for one, told in texts.open.items() if one != key})


def _id(texts: Texts, key: str) -> str:
    used = texts.rounds.get(key, 0)
    return f"{key}:r{used + 1}" if used else key


def _start(told: Told, tool: str = "") -> StreamEvent:
    if told.kind == "tool_input":
        return ToolInputStart(tool_call_id=told.id, tool_name=tool)
    return _STARTS[told.kind](id=told.id)


def _delta(told: Told, text: str) -> StreamEvent:
    return _DELTAS[told.kind](id=told.id, delta=text)


def _end(told: Told) -> list[StreamEvent]:
    return [] if told.ended or told.kind == "tool_input" else [_ENDS[told.kind](id=told.id)]


def _checksum(text: str, before: int = 0) -> int:
    # What is being typed may be cut inside a pair of surrogates.
    return zlib.crc32(text.encode("utf-8", "surrogatepass"), before)
