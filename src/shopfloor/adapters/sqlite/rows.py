"""Rows of the database to what the port speaks of, and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from sqlalchemy import Column, RowMapping

from shopfloor.adapters.sqlite.schema import worker_runs
from shopfloor.ports import RunItem, TimelineItem
from shopfloor.views import RunRow, Spending, Waits

_JSON = ("spending", "waits")
_PLAIN = tuple(name for name in RunRow.__struct_fields__ if name not in (*_JSON, "channel_name"))
"""The fields that are columns as they are."""
_LISTED = tuple(name for name in _PLAIN if name != "result")
"""Those that a list shows: a result can be long."""
_OF_ITEM = ("num", "event_count", "has_transcript", "search_stopped_at")

_decode_spending = msgspec.json.Decoder(Spending).decode
_decode_waits = msgspec.json.Decoder(Waits).decode


def columns_of(row: RunRow) -> dict[str, Any]:
    values: dict[str, Any] = {name: getattr(row, name) for name in _PLAIN}
    for name in _JSON:
        value = getattr(row, name)
        values[name] = None if value in (_NOTHING, _NO_WAITS) else msgspec.json.encode(value).decode()
    return values


def row_columns(*, listed: bool) -> list[Column[Any]]:
    """The columns that `item_of` takes, in its order: by position, because by name costs more than the query."""
    return [worker_runs.c[name] for name in (*(_LISTED if listed else _PLAIN), *_JSON, *_OF_ITEM)]


def item_of(found: Sequence[Any], *, listed: bool) -> RunItem:
    """A row of `row_columns`, then the channel's name and the pin."""
    names = _LISTED if listed else _PLAIN
    spending, waits, number, events, archived, stopped_at, channel_name, pinned = found[len(names) :]
    row = RunRow(
        **dict(zip(names, found, strict=False)),
        channel_name=channel_name,
        spending=_decode_spending(spending) if spending else _NOTHING,
        waits=_decode_waits(waits) if waits else _NO_WAITS,
    )
    return RunItem(
        row=row,
        number=number,
        event_count=events,
        has_transcript=bool(archived),
        pinned=bool(pinned),
        channel_name=channel_name,
        search_stopped_at=stopped_at,
    )


_NOTHING = Spending()
_NO_WAITS = Waits()


def timeline_item_of(found: RowMapping) -> TimelineItem:
    return TimelineItem(
        id=found["id"],
        seq=found["seq"],
        event_type=found["event_type"],
        data=msgspec.json.decode(found["data"]) if found["data"] else {},
        created_at=found["created_at"],
    )
