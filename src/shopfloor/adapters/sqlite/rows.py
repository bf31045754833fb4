"""Conversion between database rows and the types of the port."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

import msgspec

from shopfloor.decoding import json_decoder
from shopfloor.log import BasedOn, ClientInfo, Requirements
from shopfloor.ports import RunItem, TimelineItem
from shopfloor.views import Activity, Notes, Progress, RunRow, Spending, WaitState

_JSON = ("spending", "notes", "waits", "client", "based_on", "requires", "progress", "activity")
_PLAIN = tuple(name for name in RunRow.__struct_fields__ if name not in (*_JSON, "channel_name"))
"""The fields that are stored unchanged."""
_LISTED = tuple(name for name in _PLAIN if name != "result")
"""The fields of a list: without the result, which can be long."""
_DERIVED = ("cost_usd", "waiting_since", "needs_person_since")
"""Columns for filters and orders, which follow from other columns. `cost_usd` is the cost with sub-runs."""
_ITEM_FIELDS = ("event_count", "has_transcript", "search_stopped_at")
RUN_COLUMNS = (*_PLAIN, *_JSON, *_DERIVED, *_ITEM_FIELDS)
"""The columns of `worker_runs`, except `num`, which SQLite assigns. A test compares them with the table."""

_plain_values = attrgetter(*_PLAIN)
_encode = msgspec.json.Encoder().encode
_decode_spending = json_decoder(Spending).decode
_decode_notes = json_decoder(Notes).decode
_decode_waits = json_decoder(WaitState).decode
_decode_client = json_decoder(ClientInfo).decode
_decode_based_on = json_decoder(BasedOn).decode
_decode_requires = json_decoder(Requirements).decode
_decode_progress = json_decoder(Progress).decode
_decode_activity = json_decoder(Activity).decode


def run_column_values(row: RunRow, *item_values: Any) -> tuple[Any, ...]:
    """Return the values of `RUN_COLUMNS`: those of the row, then `item_values`."""
    spending, notes, waits = row.spending, row.notes, row.waits
    return (
        *_plain_values(row),
        None if spending == _NO_SPENDING else _encode(spending).decode(),
        None if notes == _NO_NOTES else _encode(notes).decode(),
        None if waits == _NO_WAITS else _encode(waits).decode(),
        None if row.client is None else _encode(row.client).decode(),
        None if row.based_on is None else _encode(row.based_on).decode(),
        None if row.requires is None else _encode(row.requires).decode(),
        None if row.progress == _NO_PROGRESS else _encode(row.progress).decode(),
        None if row.activity == _NO_ACTIVITY else _encode(row.activity).decode(),
        None if spending == _NO_SPENDING else spending.tree.cost_usd,
        None if waits == _NO_WAITS else row.waiting_since,
        row.needs_person_since,
        *item_values,
    )


def row_columns(*, listed: bool) -> str:
    """Return the columns for `decode_run_item`, in its order: access by name would take longer than the query."""
    names = (*(_LISTED if listed else _PLAIN), *_JSON, "num", *_ITEM_FIELDS)
    return ", ".join([f"worker_runs.{name}" for name in names])


def decode_run_item(db_row: Sequence[Any], *, listed: bool) -> RunItem:
    """Decode a row of `row_columns`, followed by the channel's name and the pin."""
    names = _LISTED if listed else _PLAIN
    spending, notes, waits, client, based_on, requires, progress, activity, *rest = db_row[len(names) :]
    number, events, archived, stopped_at, channel_name, pinned = rest
    values: dict[str, Any] = dict(zip(names, db_row, strict=False))
    values["outside"] = bool(values["outside"])
    row = RunRow(
        **values,
        channel_name=channel_name,
        spending=_decode_spending(spending) if spending else _NO_SPENDING,
        notes=_decode_notes(notes) if notes else _NO_NOTES,
        waits=_decode_waits(waits) if waits else _NO_WAITS,
        client=_decode_client(client) if client else None,
        based_on=_decode_based_on(based_on) if based_on else None,
        requires=_decode_requires(requires) if requires else None,
        progress=_decode_progress(progress) if progress else _NO_PROGRESS,
        activity=_decode_activity(activity) if activity else _NO_ACTIVITY,
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


_NO_SPENDING = Spending()
_NO_NOTES = Notes()
_NO_PROGRESS = Progress()
_NO_ACTIVITY = Activity()
_NO_WAITS = WaitState()


TIMELINE_COLUMNS = "id, seq, event_type, data, created_at"


def decode_timeline_item(db_row: Sequence[Any]) -> TimelineItem:
    """Decode a row of `TIMELINE_COLUMNS`."""
    number, seq, event_type, data, created_at = db_row
    fields: dict[str, Any] = msgspec.json.decode(data) if data else {}
    return TimelineItem(id=number, seq=seq, event_type=event_type, data=fields, created_at=created_at)
