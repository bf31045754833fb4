"""Search for a text in one log: in the decoded values of its events."""

from __future__ import annotations

import re
from typing import Annotated, Any, Final, cast

import msgspec

from shopfloor.decoding import json_decoder
from shopfloor.limits import LOG_HIT_CHARS
from shopfloor.log import Entry
from shopfloor.views.search_query import HIT_BEGIN, HIT_END, strip_hit_marks

_decode_payload = json_decoder(dict[str, msgspec.Raw]).decode
_decode = msgspec.json.Decoder().decode
_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
# JSON escapes that other programs write and our encoder does not. A line with such escapes has to be decoded before it
# can be searched.
_has_foreign_escape: Final = re.compile(rb"\\(?:u(?!00[01])|/)").search
_CHARS_BEFORE_HIT: Final = 40


class LogHit(msgspec.Struct, frozen=True):
    """An event whose payload contains the text."""

    seq: int
    type: str
    snippet: Annotated[
        str, msgspec.Meta(description="The text around the first hit. The hit is between U+E000 and U+E001.")
    ]


class LogSearcher:
    """A case-insensitive search for a text. Most events are rejected by their bytes alone, without decoding."""

    def __init__(self, text: str) -> None:
        self._search = re.compile(re.escape(text), re.IGNORECASE).search
        # Lone surrogates occur in no log, so their replacement is never found.
        escaped = msgspec.json.encode(text.lower().encode("utf-8", "replace").decode())[1:-1]
        self._ascii_needle = escaped if text.isascii() else None
        self._needle = escaped.decode()

    def find(self, entry: Entry) -> LogHit | None:
        """Return the first hit in an event, or None."""
        if not self._may_contain(entry.raw):
            return None
        try:
            payload = _decode(_decode_payload(entry.raw)["payload"])
        except (*_UNREADABLE, KeyError):
            return None
        if _is_chunk(payload):
            # The complete message follows in the log and has the same text.
            return None
        for value in _strings(payload):
            if hit := self._search(value):
                return LogHit(entry.seq, entry.type, _snippet(value, *hit.span()))
        return None

    def _may_contain(self, raw: bytes) -> bool:
        if self._ascii_needle is not None:
            found = self._ascii_needle in raw.lower()
        else:
            found = not raw.isascii() and self._needle in raw.decode("utf-8", "replace").lower()
        return found or (b"\\" in raw and _has_foreign_escape(raw) is not None)


def _is_chunk(payload: Any) -> bool:
    blocks: Any = cast("dict[str, Any]", payload).get("blocks") if isinstance(payload, dict) else None
    if not isinstance(blocks, list) or not blocks:
        return False
    return all(
        isinstance(block, dict) and "offset" in block and cast("dict[str, Any]", block).get("type") == "stream"
        for block in cast("list[Any]", blocks)
    )


def _strings(payload: Any) -> list[str]:
    """Return the strings inside a value, in order. Not recursive: a log may have deeply nested values."""
    found: list[str] = []
    stack: list[Any] = [payload]
    while stack:
        value = stack.pop()
        if isinstance(value, str):
            found.append(value)
        elif isinstance(value, dict):
            stack += reversed(cast("dict[str, Any]", value).values())
        elif isinstance(value, list):
            stack += reversed(cast("list[Any]", value))
    return found


def _snippet(text: str, start: int, end: int) -> str:
    """Return the hit and its surroundings on one line, at most `LOG_HIT_CHARS` with marks; the hit has priority."""
    limit_chars = LOG_HIT_CHARS - len(f"{HIT_BEGIN}{HIT_END}……")
    hit = text[start : min(end, start + limit_chars)]
    before = text[max(0, start - min(_CHARS_BEFORE_HIT, limit_chars - len(hit))) : start]
    after = text[end : end + limit_chars - len(hit) - len(before)]
    first = "…" if len(before) < start else ""
    last = "…" if end + len(after) < len(text) else ""
    marked = f"{strip_hit_marks(before)}{HIT_BEGIN}{strip_hit_marks(hit)}{HIT_END}{strip_hit_marks(after)}"
    return re.sub(r"\s", " ", f"{first}{marked}{last}")
