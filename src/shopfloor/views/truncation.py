"""Values as text, and text within bounds."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final, cast

import msgspec

from shopfloor.decoding import json_decoder
from shopfloor.limits import TRUNCATED_ENTRIES, TRUNCATED_EVENT_CHARS, TRUNCATED_MESSAGE_CHARS, TRUNCATED_TEXT_CHARS
from shopfloor.log import AssistantMessage, UserMessage

_encode = msgspec.json.Encoder().encode
_CHAR_BYTES = 4
"""The most that a character takes in UTF-8."""


def as_text(value: Any) -> str:
    """A value as somebody reads it: text as it is, anything else as JSON on one line."""
    return value if isinstance(value, str) else msgspec.json.format(_encode(value), indent=0).decode()


def truncate_bytes(text: str, most: int, *, whole: int | None = None) -> str:
    """`text` in at most `most` bytes of UTF-8, cut on a character and marked where it is cut."""
    if whole is None and len(text) * _CHAR_BYTES <= most:
        return text
    data = text.encode()
    size = whole if whole is not None else len(data)
    if size <= most:
        return text
    mark = f"… [cut: {size:,} bytes in all]"
    return data[: most - len(mark.encode())].decode("utf-8", "ignore") + mark


def ms_between(began: str, ended: str) -> int | None:
    """Milliseconds; None where one of them is no time. A clock that was set back makes it 0."""
    try:
        took = datetime.fromisoformat(ended) - datetime.fromisoformat(began)
    except (ValueError, TypeError):
        return None
    return max(0, round(took.total_seconds() * 1000))


_decode_fields = json_decoder(dict[str, msgspec.Raw]).decode
_decode = msgspec.json.Decoder().decode

_MESSAGES: Final = frozenset({AssistantMessage.event_type, UserMessage.event_type})
_PROSE: Final = frozenset({"text", "thinking"})
_PIECE: Final = frozenset({"chunk"})
_SCALAR_CHARS: Final = 8
"""What a number counts as: about what it takes."""
_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


def truncate_event(raw: bytes, most_chars: int = TRUNCATED_TEXT_CHARS) -> bytes:
    """The event of a line. Where anything was cut, it has `cut`: how many bytes the whole line has."""
    if len(raw) < most_chars:
        return raw
    try:
        fields = _decode_fields(raw)
        cutting = _Cutting(most_chars)
        payload = _encode(cutting.payload(_event_type(fields), _decode(fields["payload"])))
        if not cutting.cut:
            return raw
    except (*_UNREADABLE, KeyError):
        # What nobody can read whole, nobody can read in part.
        return _shell(raw)
    fields["payload"] = msgspec.Raw(payload)
    fields["cut"] = msgspec.Raw(_encode(len(raw)))
    return _encode(fields)


def _event_type(fields: dict[str, msgspec.Raw]) -> str:
    return str(_decode(fields["type"])) if "type" in fields else ""


class _Head(msgspec.Struct):
    seq: int
    type: str


_decode_head = json_decoder(_Head).decode


def _shell(raw: bytes) -> bytes:
    try:
        head = _decode_head(raw)
    except _UNREADABLE:
        return raw
    return _encode({"seq": head.seq, "type": head.type, "payload": None, "cut": len(raw)})


class _Cutting:
    """Copies what fits. What is left out is not looked at: an event can be large in many ways."""

    def __init__(self, most_chars: int) -> None:
        self.cut = False
        self._most = most_chars
        self._left = TRUNCATED_EVENT_CHARS

    def payload(self, event_type: str, payload: Any) -> Any:
        if event_type not in _MESSAGES or not isinstance(payload, dict):
            return self._value(payload)
        fields = cast("dict[str, Any]", payload)
        blocks = fields.get("blocks")
        if not isinstance(blocks, list):
            return self._value(fields)
        said = {name: value for name, value in fields.items() if name != "blocks"}
        # First what was said: it is what people read.
        kept = self._entries([*cast("list[Any]", blocks)], self._block)
        return {**self._fields(said), "blocks": kept}

    def _block(self, block: Any) -> Any:
        if not isinstance(block, dict):
            return self._value(block)
        fields = cast("dict[str, Any]", block)
        return self._fields(fields, prose=_PIECE if fields.get("kind") in _PROSE else _PROSE)

    def _value(self, value: Any) -> Any:
        match value:
            case str():
                return self._text(value, self._most)
            case dict():
                return self._fields(cast("dict[str, Any]", value))
            case list():
                return self._entries(cast("list[Any]", value), self._value)
            case _:
                self._left -= _SCALAR_CHARS
                return value

    def _text(self, text: str, most: int) -> str:
        most = max(0, min(most, self._left))
        self._left -= min(len(text), most)
        if len(text) <= most:
            return text
        self.cut = True
        return text[:most]

    def _entries(self, values: list[Any], keep: Any) -> list[Any]:
        kept: list[Any] = []
        for value in values[:TRUNCATED_ENTRIES]:
            if self._left <= 0:
                break
            kept.append(keep(value))
        self.cut = self.cut or len(kept) < len(values)
        return kept

    def _fields(self, fields: dict[str, Any], *, prose: frozenset[str] = frozenset()) -> dict[str, Any]:
        kept: dict[str, Any] = {}
        for name, value in fields.items():
            if len(kept) == TRUNCATED_ENTRIES or self._left <= 0:
                self.cut = True
                break
            said = isinstance(value, str) and name in prose
            short = self._text(name, self._most)
            kept[short] = self._text(value, TRUNCATED_MESSAGE_CHARS) if said else self._value(value)
        return kept
