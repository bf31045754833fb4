"""Events as they are sent, and back.

Types that only we have are not in the vocabulary of the TypeScript SDK, which drops them. They travel as a
`resource-update`, which it passes on: `name` is the type, `value` has the fields.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import msgspec

from shopfloor.decoding import convert, json_decoder
from shopfloor.views.stream_events import Notice, Question, StreamEvent, UnknownEvent, UsageEvent

_OWN: Final = (Question, Notice, UsageEvent)
"""The events that only we have."""
_OWN_TYPES: Final = frozenset(str(one.__struct_config__.tag) for one in _OWN)


class _ResourceUpdate(msgspec.Struct, frozen=True, kw_only=True, tag="resource-update", tag_field="type"):
    name: str
    value: dict[str, Any]


_encode = msgspec.json.Encoder().encode
_decode_any = json_decoder(dict[str, Any]).decode


@cache
def _decoder() -> msgspec.json.Decoder[StreamEvent | _ResourceUpdate]:
    return json_decoder(StreamEvent | _ResourceUpdate)


def encode_event(event: StreamEvent | UnknownEvent) -> bytes:
    """The event as it is sent: JSON, on one line."""
    if isinstance(event, UnknownEvent):
        return _encode(event.data)
    if isinstance(event, _OWN):
        fields: dict[str, Any] = msgspec.to_builtins(event)
        name: str = fields.pop("type")
        return _encode(_ResourceUpdate(name=name, value=fields))
    return _encode(event)


def decode_event(raw: bytes | str) -> StreamEvent | UnknownEvent:
    """The event that was sent. Raises `msgspec.MsgspecError` for what is no event at all."""
    try:
        event = _decoder().decode(raw)
        if not isinstance(event, _ResourceUpdate):
            return event
        if event.name in _OWN_TYPES:
            return convert({**event.value, "type": event.name}, StreamEvent)
    except msgspec.ValidationError:
        pass
    # Of a later version: a type that we do not know, or one that has changed.
    data = _decode_any(raw)
    return UnknownEvent(str(data.get("type", "")), data)
