"""Inputs of calls, told in pieces that together are the input as JSON.

A model types JSON in its own layout, pieces of it may be lost, and the log keeps the value, not the text. So what is
typed is rewritten into the one layout in which the value itself is encoded: then what was told is the beginning of the
whole, and the rest follows from the value.
"""

from __future__ import annotations

import re
import zlib
from typing import Final

import msgspec

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


class TypedInput(msgspec.Struct, frozen=True, omit_defaults=True):
    """What was told of an input, and what of it was typed and cannot be told yet."""

    length: int = 0
    checksum: int = 0
    """Of the characters told: by it the whole is known to begin with them, and they need not be kept."""
    pending: str = ""
    """The beginning of a number, a word or an escape whose end has not come."""
    in_string: bool = False
    broken: bool = False
    """What was typed is not JSON: the rest is told when the whole is known."""

    def told(self, text: str) -> TypedInput:
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


def typed(state: TypedInput, piece: str) -> tuple[TypedInput, str]:
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
    return msgspec.structs.replace(state.told(said), pending=pending, in_string=in_string, broken=broken), said


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
