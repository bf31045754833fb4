"""Finding words in a log: in the values of its events, however they are written."""

from __future__ import annotations

import re
from typing import Annotated, Any, Final, cast

import msgspec

from shopfloor.decoding import json_decoder
from shopfloor.limits import LOG_HIT_CHARS
from shopfloor.log import Entry
from shopfloor.views.search import HIT_BEGIN, HIT_END, strip_hit_marks

_decode_payload = json_decoder(dict[str, msgspec.Raw]).decode
_decode = msgspec.json.Decoder().decode
_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
# Characters that others write as escapes and we do not: where there are any, only decoding tells what stands there.
_FOREIGN: Final = re.compile(rb"\\(?:u(?!00[01])|/)").search
_BEFORE: Final = 40


class LogHit(msgspec.Struct, frozen=True):
    """An event in whose payload the text stands."""

    seq: int
    type: str
    snippet: Annotated[str, msgspec.Meta(description="Where it stands first, between U+E000 and U+E001.")]


class LogSearcher:
    """Looks for a text, whatever its case. Most events are passed over by their bytes alone."""

    def __init__(self, text: str) -> None:
        self._find = re.compile(re.escape(text), re.IGNORECASE).search
        # Lone surrogates stand in no log: bytes that are never found.
        escaped = msgspec.json.encode(text.lower().encode("utf-8", "replace").decode())[1:-1]
        self._bytes = escaped if text.isascii() else None
        self._text = escaped.decode()

    def find(self, entry: Entry) -> LogHit | None:
        if not self._may_have(entry.raw):
            return None
        try:
            payload = _decode(_decode_payload(entry.raw)["payload"])
        except (*_UNREADABLE, KeyError):
            return None
        if _is_piece(payload):
            # The message that follows has the same text, in one.
            return None
        for value in _strings(payload):
            if hit := self._find(value):
                return LogHit(entry.seq, entry.type, _snippet(value, *hit.span()))
        return None

    def _may_have(self, raw: bytes) -> bool:
        if self._bytes is not None:
            found = self._bytes in raw.lower()
        else:
            found = not raw.isascii() and self._text in raw.decode("utf-8", "replace").lower()
        return found or (b"\\" in raw and _FOREIGN(raw) is not None)


def _is_piece(payload: Any) -> bool:
    blocks: Any = cast("dict[str, Any]", payload).get("blocks") if isinstance(payload, dict) else None
    if not isinstance(blocks, list) or not blocks:
        return False
    return all(
        isinstance(block, dict) and "offset" in block and cast("dict[str, Any]", block).get("type") == "stream"
        for block in cast("list[Any]", blocks)
    )


def _strings(payload: Any) -> list[str]:
    """The texts inside, in order. No recursion: whoever wrote it may have nested it deeply."""
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
    """On one line, at most so many characters with its marks; the hit itself is shown first of all."""
    room = LOG_HIT_CHARS - len(f"{HIT_BEGIN}{HIT_END}……")
    hit = text[start : min(end, start + room)]
    before = text[max(0, start - min(_BEFORE, room - len(hit))) : start]
    after = text[end : end + room - len(hit) - len(before)]
    first = "…" if len(before) < start else ""
    last = "…" if end + len(after) < len(text) else ""
    marked = f"{strip_hit_marks(before)}{HIT_BEGIN}{strip_hit_marks(hit)}{HIT_END}{strip_hit_marks(after)}"
    return re.sub(r"\s", " ", f"{first}{marked}{last}")
