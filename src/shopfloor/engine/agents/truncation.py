"""Truncation of messages that are too long for a line of a log."""

from __future__ import annotations

from typing import Any, Final, TypeVar, cast

import msgspec

from shopfloor.limits import LOG_LINE_BYTES
from shopfloor.log import AssistantMessage, ToolCall, ToolResult, UserMessage

_T = TypeVar("_T", bound=msgspec.Struct)

_ESCAPED_BYTES: Final = 6
"""The maximum length of a character in JSON: `\\u0000`."""
_ENVELOPE_BYTES: Final = 64 * 1024
_CONTENT_BYTES: Final = LOG_LINE_BYTES - _ENVELOPE_BYTES
"""The maximum length of a payload."""
_MARKABLE = (UserMessage, AssistantMessage, ToolCall, ToolResult)
"""Payloads that have a field `truncated`."""


def truncate_to_line(content: _T) -> _T:
    """Return the content, or a copy that fits a line: its long texts are truncated, each with a remark at the end."""
    if _characters(content) * _ESCAPED_BYTES <= _CONTENT_BYTES or _fits(content):
        return content
    limit = _CONTENT_BYTES // _ESCAPED_BYTES
    truncated = content
    while limit > _ESCAPED_BYTES and not _fits(truncated):
        truncated = cast("_T", _truncate(content, limit))
        limit //= 2
    return msgspec.structs.replace(truncated, truncated=True) if isinstance(truncated, _MARKABLE) else truncated


def _fits(content: msgspec.Struct) -> bool:
    try:
        return len(msgspec.json.encode(content)) <= _CONTENT_BYTES
    except UnicodeEncodeError:
        # Half a surrogate is written as U+FFFD, which takes fewer bytes than an escape.
        return _characters(content) * _ESCAPED_BYTES <= _CONTENT_BYTES


def _characters(value: Any) -> int:
    """Return the approximate number of characters of all texts; numbers and syntax count a little too."""
    match value:
        case str():
            return len(value)
        case dict():
            pairs = cast("dict[Any, Any]", value).items()
            return sum(_characters(key) + _characters(inner) + 4 for key, inner in pairs)
        case list():
            return sum(_characters(inner) + 1 for inner in cast("list[Any]", value))
        case msgspec.Struct():
            return sum(len(name) + 4 + _characters(getattr(value, name)) for name in value.__struct_fields__)
        case _:
            return 4


def _truncate(value: Any, limit: int) -> Any:
    match value:
        case str() if len(value) > limit:
            return f"{value[:limit]}… (truncated: {limit:,} of {len(value):,} characters)"
        case dict():
            return {
                _truncate(key, limit): _truncate(inner, limit) for key, inner in cast("dict[Any, Any]", value).items()
            }
        case list():
            return [_truncate(inner, limit) for inner in cast("list[Any]", value)]
        case msgspec.Struct():
            fields = {name: _truncate(getattr(value, name), limit) for name in value.__struct_fields__}
            if fields.get("raw") is not None and fields["raw"] != getattr(value, "raw"):  # noqa: B009
                # A part of base64 is not the original bytes any more.
                fields["raw"] = None
            return msgspec.structs.replace(value, **fields)
        case _:
            return value
