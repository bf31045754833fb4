"""Rows of the database to what the port speaks of, and back."""

from __future__ import annotations

from typing import Any

import msgspec
from sqlalchemy import RowMapping

from shopfloor.log import Usage
from shopfloor.ports import RunItem, TimelineItem
from shopfloor.views import RunRow

_PLAIN = tuple(name for name in RunRow.__struct_fields__ if name not in ("usage", "awaits", "channel_name"))
"""The fields that are columns as they are."""


def columns_of(row: RunRow) -> dict[str, Any]:
    values: dict[str, Any] = {name: getattr(row, name) for name in _PLAIN}
    values["usage"] = None if row.usage == Usage() else msgspec.json.encode(row.usage).decode()
    values["awaits"] = msgspec.json.encode(row.awaits).decode() if row.awaits else None
    return values


def row_of(found: RowMapping) -> RunRow:
    values: dict[str, Any] = {name: found.get(name) for name in _PLAIN}
    usage, awaits = found.get("usage"), found.get("awaits")
    return RunRow(
        **values,
        channel_name=found.get("channel_name"),
        usage=msgspec.json.decode(usage, type=Usage) if usage else Usage(),
        awaits=msgspec.json.decode(awaits, type=tuple[str, ...]) if awaits else (),
    )


def item_of(found: RowMapping) -> RunItem:
    return RunItem(
        row=row_of(found),
        number=found["num"],
        event_count=found["event_count"],
        has_transcript=bool(found["has_transcript"]),
        pinned=bool(found["pinned"]),
        channel_name=found["channel_name"],
        snippet=found.get("snippet"),
    )


def timeline_item_of(found: RowMapping) -> TimelineItem:
    return TimelineItem(
        id=found["id"],
        seq=found["seq"],
        event_type=found["event_type"],
        data=msgspec.json.decode(found["data"]) if found["data"] else {},
        created_at=found["created_at"],
    )
