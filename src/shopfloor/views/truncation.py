"""Values as text, text within a size limit, and events with their long texts truncated."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final, cast

import msgspec

from shopfloor.decoding import json_decoder
from shopfloor.limits import TRUNCATED_ENTRIES, TRUNCATED_EVENT_CHARS, TRUNCATED_MESSAGE_CHARS, TRUNCATED_TEXT_CHARS
from shopfloor.log import AssistantMessage, UserMessage

_encode = msgspec.json.Encoder().encode
_CHAR_BYTES = 4
"""The largest size of a character in UTF-8."""


def as_text(value: Any) -> str:
    """Return a value as readable text: a string unchanged, anything else as JSON on one line."""
    return value if isinstance(value, str) else msgspec.json.format(_encode(value), indent=0).decode()


def truncate_bytes(text: str, limit_bytes: int, *, total_bytes: int | None = None) -> str:
    """Return `text` in at most `limit_bytes` of UTF-8, truncated between characters, with a mark at the end.

    `total_bytes` is the size of the full text, if `text` is only its beginning.
    """
    if total_bytes is None and len(text) * _CHAR_BYTES <= limit_bytes:
        return text
    data = text.encode()
    size = total_bytes if total_bytes is not None else len(data)
    if size <= limit_bytes:
        return text
    mark = f"… [cut: {size:,} bytes in all]"
    return data[: limit_bytes - len(mark.encode())].decode("utf-8", "ignore") + mark


def ms_between(started_at: str, ended_at: str) -> int | None:
    """Return the milliseconds between two timestamps: 0 if the clock was set back, None if either is no time.

    Providers' timestamps may be malformed or without a time zone.
    """
    try:
        duration = datetime.fromisoformat(ended_at) - datetime.fromisoformat(started_at)
    except (ValueError, TypeError, OverflowError):
        return None
    return max(0, round(duration.total_seconds() * 1000))


_decode_fields = json_decoder(dict[str, msgspec.Raw]).decode
_decode = msgspec.json.Decoder().decode

_MESSAGES: Final = frozenset({AssistantMessage.event_type, UserMessage.event_type})
_PROSE: Final = frozenset({"text", "thinking"})
_CHUNK: Final = frozenset({"chunk"})
_SCALAR_CHARS: Final = 8
"""The size that a number, boolean or null counts as, about its length in JSON."""
_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


def truncate_event(raw: bytes, limit_chars: int = TRUNCATED_TEXT_CHARS) -> bytes:
    """Return a log line with its long texts truncated.

    If anything was truncated, the event has a field `cut`: the size of the full line in bytes.
    """
    if len(raw) < limit_chars:
        return raw
    try:
        fields = _decode_fields(raw)
        truncation = _Truncation(limit_chars)
        payload = _encode(truncation.payload(_event_type(fields), _decode(fields["payload"])))
        if not truncation.is_cut:
            return raw
    except (*_UNREADABLE, KeyError):
        # A payload that cannot be decoded cannot be truncated either.
        return _without_payload(raw)
    fields["payload"] = msgspec.Raw(payload)
    fields["cut"] = msgspec.Raw(_encode(len(raw)))
    return _encode(fields)


def truncate_value(value: Any, limit_chars: int) -> Any:
    """Return a copy of a JSON value with its long texts, lists and objects truncated."""
    return _Truncation(limit_chars).value(value)


def _event_type(fields: dict[str, msgspec.Raw]) -> str:
    return str(_decode(fields["type"])) if "type" in fields else ""


class _Head(msgspec.Struct):
    seq: int
    type: str


_decode_head = json_decoder(_Head).decode


def _without_payload(raw: bytes) -> bytes:
    try:
        head = _decode_head(raw)
    except _UNREADABLE:
        return raw
    return _encode({"seq": head.seq, "type": head.type, "payload": None, "cut": len(raw)})


class _Truncation:
    """A copy of the part of an event that fits. The rest is never visited: an event can be large in many ways."""

    def __init__(self, limit_chars: int) -> None:
        self.is_cut = False
        self._limit_chars = limit_chars
        self._remaining_chars = TRUNCATED_EVENT_CHARS

    def payload(self, event_type: str, payload: Any) -> Any:
        if event_type not in _MESSAGES or not isinstance(payload, dict):
            return self.value(payload)
        fields = cast("dict[str, Any]", payload)
        blocks = fields.get("blocks")
        if not isinstance(blocks, list):
            return self.value(fields)
        other_fields = {name: value for name, value in fields.items() if name != "blocks"}
        # The blocks get their share of the size first: they are what people read.
        copied_blocks = self._entries([*cast("list[Any]", blocks)], self._block)
        return {**self._fields(other_fields), "blocks": copied_blocks}

    def _block(self, block: Any) -> Any:
        if not isinstance(block, dict):
            return self.value(block)
        fields = cast("dict[str, Any]", block)
        return self._fields(fields, prose=_CHUNK if fields.get("kind") in _PROSE else _PROSE)

    def value(self, value: Any) -> Any:
        match value:
            case str():
                return self._text(value, self._limit_chars)
            case dict():
                return self._fields(cast("dict[str, Any]", value))
            case list():
                return self._entries(cast("list[Any]", value), self.value)
            case _:
                self._remaining_chars -= _SCALAR_CHARS
                return value

    def _text(self, text: str, limit_chars: int) -> str:
        limit_chars = max(0, min(limit_chars, self._remaining_chars))
        self._remaining_chars -= min(len(text), limit_chars)
        if len(text) <= limit_chars:
            return text
        self.is_cut = True
        return text[:limit_chars]

    def _entries(self, values: list[Any], copy: Any) -> list[Any]:
        copied: list[Any] = []
        for value in values[:TRUNCATED_ENTRIES]:
            if self._remaining_chars <= 0:
                break
            copied.append(copy(value))
        self.is_cut = self.is_cut or len(copied) < len(values)
        return copied

    def _fields(self, fields: dict[str, Any], *, prose: frozenset[str] = frozenset()) -> dict[str, Any]:
        copied: dict[str, Any] = {}
        for name, value in fields.items():
            if len(copied) == TRUNCATED_ENTRIES or self._remaining_chars <= 0:
                self.is_cut = True
                break
            is_prose = isinstance(value, str) and name in prose
            short_name = self._text(name, self._limit_chars)
            copied[short_name] = self._text(value, TRUNCATED_MESSAGE_CHARS) if is_prose else self.value(value)
        return copied
