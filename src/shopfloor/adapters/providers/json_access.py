"""Typed access to the fields of records that vendors define. A value of an unexpected type counts as absent."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from shopfloor.limits import AGENT_DIFF_CHARS
from shopfloor.log import FileChange, format_timestamp

Record = dict[str, Any]
Json = dict[str, Any] | list[Any] | str | float | bool | None
"""A value under a key. Annotating with it is free at run time; `cast` would be a call, and these functions are hot."""
_is_log_timestamp = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T(?:[01][0-9]|2[0-3])(?::[0-9]{2}){2}\.[0-9]{3}Z").fullmatch
"""Match a timestamp in the format of the log, which most agents use too."""


def record_at(record: Record, key: str) -> Record:
    """Return the object under a key, or an empty object."""
    value: Json = record.get(key)
    return value if isinstance(value, dict) else {}


def records_at(record: Record, key: str) -> list[Record]:
    """Return the objects in the list under a key."""
    found: list[Json] = list_at(record, key)
    return [item for item in found if isinstance(item, dict)]


def list_at(record: Record, key: str) -> list[Any]:
    """Return the list under a key, or an empty list."""
    value: Json = record.get(key)
    return value if isinstance(value, list) else []


def text_at(record: Record, key: str) -> str | None:
    """Return the string under a key, or None."""
    value = record.get(key)
    return value if isinstance(value, str) else None


def required_text(record: Record, key: str) -> str:
    """Return the string under a key. Raises KeyError or TypeError if there is none."""
    value = record[key]
    if not isinstance(value, str):
        raise TypeError(key)
    return value


def int_at(record: Record, key: str) -> int | None:
    """Return the integer under a key, or None."""
    value = record.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def count_at(record: Record, key: str) -> int:
    """Return the token count under a key, or 0 where it is absent or not positive."""
    value = record.get(key)
    return value if isinstance(value, int) and value > 0 and value is not True else 0


def number_at(record: Record, key: str) -> float | None:
    """Return the number under a key as a float, or None."""
    value = record.get(key)
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def parse_timestamp(value: object) -> str | None:
    """Convert a vendor's timestamp (ISO 8601 text, or milliseconds since 1970) to the format of the log."""
    try:
        if isinstance(value, str):
            moment = datetime.fromisoformat(value)
            if _is_log_timestamp(value):
                return value
            moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
            return _format_ms(round(moment.timestamp() * 1000))
        if isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0:
            return _format_ms(round(value))
    except (ValueError, OverflowError, OSError):
        pass
    return None


def _format_ms(ms: int) -> str:
    return f"{_format_second(ms // 1000)}.{ms % 1000:03d}Z"


@lru_cache(maxsize=2)
def _format_second(second: int) -> str:
    """Format a second. Cached, because timestamps within the same second usually follow each other."""
    return format_timestamp(second * 1000).removesuffix(".000Z")


def changed_file(path: str, action: object, diff: str | None = None) -> FileChange:
    """Return a file change. Its line counts come from the diff, if there is one."""
    known_action = action if action in ("create", "modify", "delete") else "modify"
    if diff is None:
        return FileChange(path=path, action=known_action)
    lines = diff.splitlines()
    return FileChange(
        path=path,
        action=known_action,
        lines_added=sum(line.startswith("+") and not line.startswith("+++") for line in lines),
        lines_removed=sum(line.startswith("-") and not line.startswith("---") for line in lines),
        diff=diff if len(diff) <= AGENT_DIFF_CHARS else f"{diff[:AGENT_DIFF_CHARS]}\n… (cut)",
    )
