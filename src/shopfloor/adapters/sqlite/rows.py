"""Rows of the database to what the port speaks of, and back."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

import msgspec

from shopfloor.decoding import json_decoder
from shopfloor.ports import RunItem, TimelineItem
from shopfloor.views import RunRow, Spending, WaitState

_JSON = ("spending", "waits")
_PLAIN = tuple(name for name in RunRow.__struct_fields__ if name not in (*_JSON, "channel_name"))
"""The fields that are columns as they are."""
_LISTED = tuple(name for name in _PLAIN if name != "result")
"""Those that a list shows: a result can be long."""
_OF_ITEM = ("event_count", "has_transcript", "search_stopped_at")
RUN_COLUMNS = (*_PLAIN, *_JSON, *_OF_ITEM)
"""The columns of `worker_runs` that are ours to fill, as a test holds them against the table; `num` is SQLite's."""

_plain_values = attrgetter(*_PLAIN)
_encode = msgspec.json.Encoder().encode
_decode_spending = json_decoder(Spending).decode
_decode_waits = json_decoder(WaitState).decode


def run_column_values(row: RunRow, *of_item: Any) -> tuple[Any, ...]:
    """The values of `RUN_COLUMNS`: of the row, then those that an item has besides."""
    spending, waits = row.spending, row.waits
    return (
        *_plain_values(row),
        None if spending == _NOTHING else _encode(spending).decode(),
        None if waits == _NO_WAITS else _encode(waits).decode(),
        *of_item,
    )


def row_columns(*, listed: bool) -> str:
    """Return the columns of `decode_run_item`, in its order. Reading them by name costs more than the query."""
    names = (*(_LISTED if listed else _PLAIN), *_JSON, "num", *_OF_ITEM)
    return ", ".join([f"worker_runs.{name}" for name in names])


def decode_run_item(found: Sequence[Any], *, listed: bool) -> RunItem:
    """A row of `row_columns`, then the channel's name and the pin."""
    names = _LISTED if listed else _PLAIN
    spending, waits, number, events, archived, stopped_at, channel_name, pinned = found[len(names) :]
    values: dict[str, Any] = dict(zip(names, found, strict=False))
    values["outside"] = bool(values["outside"])
    row = RunRow(
        **values,
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
_NO_WAITS = WaitState()


TIMELINE_COLUMNS = "id, seq, event_type, data, created_at"


def decode_timeline_item(found: Sequence[Any]) -> TimelineItem:
    number, seq, event_type, data, created_at = found
    fields: dict[str, Any] = msgspec.json.decode(data) if data else {}
    return TimelineItem(id=number, seq=seq, event_type=event_type, data=fields, created_at=created_at)
