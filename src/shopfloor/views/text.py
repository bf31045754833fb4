"""Values as text, and text within bounds."""

from __future__ import annotations

from typing import Any

import msgspec

_encode = msgspec.json.Encoder().encode
_CHAR_BYTES = 4
"""The most that a character takes in UTF-8."""


def as_text(value: Any) -> str:
    """A value as somebody reads it: text as it is, anything else as JSON on one line."""
    return value if isinstance(value, str) else msgspec.json.format(_encode(value), indent=0).decode()


def cut(text: str, most: int, *, whole: int | None = None) -> str:
    """`text` in at most `most` bytes of UTF-8, cut on a character and marked where it is cut."""
    if whole is None and len(text) * _CHAR_BYTES <= most:
        return text
    data = text.encode()
    size = whole if whole is not None else len(data)
    if size <= most:
        return text
    mark = f"… [cut: {size:,} bytes in all]"
    return data[: most - len(mark.encode())].decode("utf-8", "ignore") + mark
