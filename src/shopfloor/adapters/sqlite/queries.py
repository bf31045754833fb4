"""Queries for runs as SQL text and parameters: filters, pages, counts."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import Annotated, Any, Final, NamedTuple

import msgspec

from shopfloor.adapters.sqlite.rows import row_columns
from shopfloor.decoding import decode_json
from shopfloor.errors import InvalidParameter
from shopfloor.ports import ANSWER_ID_PREFIX, RunFilter, RunItem

_Number = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
_COUNTED_FIELDS: Final = {"agent_id", "statuses", "worker_type", "channel_id", "name", "roots"}
_EQUALITY_FIELDS: Final = ("agent_id", "worker_type", "channel_id", "parent_run_id", "name")
_JOINED: Final = (
    "channels.name, pins.worker_id IS NOT NULL FROM worker_runs"
    " LEFT JOIN channels ON channels.id = worker_runs.channel_id"
    " LEFT JOIN pins ON pins.worker_id = worker_runs.id"
)
PIN: Final = "INSERT INTO pins (worker_id) VALUES (?) ON CONFLICT DO NOTHING"
UNPIN: Final = "DELETE FROM pins WHERE worker_id = ?"
_SELECT_LISTED: Final = f"SELECT {row_columns(listed=True)}, {_JOINED}"
_SELECT_FULL: Final = f"SELECT {row_columns(listed=False)}, {_JOINED}"


class Query(NamedTuple):
    """A statement with its parameters, to unpack into `execute`."""

    text: str
    parameters: Sequence[Any] = ()


Condition = tuple[str, Sequence[Any]]
"""An SQL condition with its parameters."""


def placeholders(values: Sequence[Any]) -> str:
    """Return a parenthesized list with one placeholder per value."""
    return f"({', '.join('?' * len(values))})"


def list_query(run_filter: RunFilter, *, limit: int, offset: int = 0, cursor: str | None = None) -> Query:
    """Return the query for a page of runs, newest first. With a search, call `find_runs` in the same transaction first.

    Raises `InvalidParameter` if the cursor is invalid.
    """
    is_search = run_filter.search is not None
    # Hits are ordered by run number, the order of the table: sorting all hits of a common word would take long.
    join, order = (
        (" JOIN found ON found.num = worker_runs.num", "found.num DESC")
        if is_search
        else ("", "worker_runs.started_at DESC, worker_runs.num DESC")
    )
    filters = conditions(run_filter)
    if cursor is not None:
        filters.append(_after(cursor, is_search=is_search))
    where, parameters = _where(filters)
    return Query(f"{_SELECT_LISTED}{join}{where} ORDER BY {order} LIMIT ? OFFSET ?", [*parameters, limit, offset])


def run_query(run_id: str) -> Query:
    """Return the query for one run."""
    return Query(f"{_SELECT_FULL} WHERE worker_runs.id = ?", (run_id,))


def pending_answers_query(run_ids: Sequence[str]) -> Query:
    """Return the query for the answers to calls of these runs that no log has yet."""
    condition = f"run_id IN {placeholders(run_ids)} AND id LIKE '{ANSWER_ID_PREFIX}%'"
    text = f"SELECT run_id, id FROM orders WHERE {condition} ORDER BY num"
    return Query(text, run_ids)


def runs_query(run_ids: Sequence[str], *, started_only: bool = False) -> Query:
    """Return the query for these runs; with `started_only`, for those of them that have events."""
    condition = " AND worker_runs.last_seq > 0" if started_only else ""
    return Query(f"{_SELECT_FULL} WHERE worker_runs.id IN {placeholders(run_ids)}{condition}", run_ids)


def conditions(run_filter: RunFilter) -> list[Condition]:
    """Return the conditions of a filter, except its search."""
    filters: list[Condition] = [
        (f"worker_runs.{name} = ?", (value,))
        for name in _EQUALITY_FIELDS
        if (value := getattr(run_filter, name)) is not None
    ]
    if run_filter.based_on is not None:
        # As in the index.
        text = "worker_runs.based_on IS NOT NULL AND json_extract(worker_runs.based_on, '$.run_id') = ?"
        filters.append((text, (run_filter.based_on,)))
    if (statuses := run_filter.statuses) is not None:
        comparison = "= ?" if len(statuses) == 1 else f"IN {placeholders(statuses)}"
        filters.append((f"worker_runs.status {comparison}", statuses))
    if run_filter.roots is not None:
        filters.append((f"worker_runs.parent_run_id IS {'' if run_filter.roots else 'NOT '}NULL", ()))
    if run_filter.started_after is not None:
        filters.append(("worker_runs.started_at > ?", (run_filter.started_after,)))
    if run_filter.started_before is not None:
        filters.append(("worker_runs.started_at < ?", (run_filter.started_before,)))
    return filters


def _where(filters: Sequence[Condition]) -> tuple[str, list[Any]]:
    text = " AND ".join([condition for condition, _ in filters])
    return f" WHERE {text}" if text else "", [value for _, values in filters for value in values]


def count_query(run_filter: RunFilter) -> Query:
    """Return the query for the number of matching runs, from the table of counts if it covers the filter."""
    filtered_fields = {name for name in RunFilter.__struct_fields__ if getattr(run_filter, name) is not None}
    # In the counts, '' means NULL.
    if filtered_fields <= _COUNTED_FIELDS and "" not in (run_filter.agent_id, run_filter.channel_id):
        filters: list[Condition] = [
            (f"{name} = ?", (getattr(run_filter, name),)) for name in filtered_fields - {"statuses"}
        ]
        if run_filter.statuses is not None:
            filters.append((f"status IN {placeholders(run_filter.statuses)}", run_filter.statuses))
        where, parameters = _where(filters)
        return Query(f"SELECT coalesce(sum(n), 0) FROM run_counts{where}", parameters)
    if filtered_fields == {"search"}:
        return Query("SELECT count(*) FROM found")
    found: list[Condition] = [] if run_filter.search is None else [("num IN (SELECT num FROM found)", ())]
    where, parameters = _where(conditions(run_filter) + found)
    return Query(f"SELECT count(*) FROM worker_runs{where}", parameters)


def _after(cursor: str, *, is_search: bool) -> Condition:
    """Return the condition that a run comes after the one in the cursor."""
    try:
        position = decode_json(base64.urlsafe_b64decode(cursor), tuple[str, _Number])
    except (msgspec.MsgspecError, binascii.Error, ValueError) as error:
        raise InvalidParameter(
            f"{cursor!r} is not a cursor", hint="use `next` of the previous page, or omit the cursor"
        ) from error
    return (
        ("found.num < ?", position[1:])
        if is_search
        else ("(worker_runs.started_at, worker_runs.num) < (?, ?)", position)
    )


def encode_cursor(item: RunItem) -> str:
    """Return the cursor of the page after this item."""
    return base64.urlsafe_b64encode(msgspec.json.encode((item.row.started_at, item.number))).decode()
