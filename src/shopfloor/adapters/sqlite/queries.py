"""Queries for runs as SQL text and parameters: filters, pages, counts."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from sqlite3 import Connection
from typing import Annotated, Any, Final, Literal, NamedTuple

import msgspec

from shopfloor.adapters.limits import SORTED_RUNS
from shopfloor.adapters.sqlite.intake import Mark
from shopfloor.adapters.sqlite.rows import row_columns
from shopfloor.decoding import decode_json
from shopfloor.errors import InvalidParameter
from shopfloor.ports import ANSWER_ID_PREFIX, RunFilter, RunItem, RunOrder
from shopfloor.views import RunRow

_Number = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
_COUNTED_FIELDS: Final = {"agent_id", "statuses", "worker_type", "channel_id", "name", "roots"}
_EQUALITY_FIELDS: Final = (
    *("agent_id", "worker_type", "channel_id", "parent_run_id", "name", "model", "provider", "error_code"),
)
_BOUNDS: Final = (
    ("min_cost_usd", "coalesce(worker_runs.cost_usd, -1)", ">="),
    ("max_cost_usd", "coalesce(worker_runs.cost_usd, -1)", "<="),
    ("min_duration_ms", "coalesce(worker_runs.duration_ms, -1)", ">="),
    ("max_duration_ms", "coalesce(worker_runs.duration_ms, -1)", "<="),
)
_JOINED: Final = (
    "channels.name, pins.worker_id IS NOT NULL FROM worker_runs"
    " LEFT JOIN channels ON channels.id = worker_runs.channel_id"
    " LEFT JOIN pins ON pins.worker_id = worker_runs.id"
)
MARK_STATEMENTS: Final[dict[Mark, str]] = {
    "pin": "INSERT INTO pins (worker_id) VALUES (?) ON CONFLICT DO NOTHING",
    "unpin": "DELETE FROM pins WHERE worker_id = ?",
    "dismiss": "INSERT INTO dismissals (worker_id) VALUES (?) ON CONFLICT DO NOTHING",
}
_NEEDS_PERSON: Final = (
    "worker_runs.needs_person_since > ?"
    " AND NOT EXISTS (SELECT 1 FROM dismissals WHERE dismissals.worker_id = worker_runs.id)"
    # As in the index; without the `+`, the affinity of the column would exclude the index.
    " AND NOT EXISTS (SELECT 1 FROM worker_runs AS later WHERE later.based_on IS NOT NULL"
    " AND json_extract(later.based_on, '$.run_id') = +worker_runs.id)"
)
_SELECT_LISTED: Final = f"SELECT {row_columns(listed=True)}, {_JOINED}"
_SELECT_FULL: Final = f"SELECT {row_columns(listed=False)}, {_JOINED}"


class Query(NamedTuple):
    """A statement with its parameters, to unpack into `execute`."""

    text: str
    parameters: Sequence[Any] = ()


Condition = tuple[str, Sequence[Any]]
"""An SQL condition with its parameters."""


HAS_PENDING_CALL: Final[Condition] = ("worker_runs.waiting_since IS NOT NULL", ())


def placeholders(values: Sequence[Any]) -> str:
    """Return a parenthesized list with one placeholder per value."""
    return f"({', '.join('?' * len(values))})"


class Order(NamedTuple):
    """An order of a list: the expression that an index has, and its direction."""

    key: str
    is_descending: bool
    has_text_key: bool

    def clause(self, *, by_index: bool) -> str:
        """Return the expressions for `ORDER BY`. Without `by_index`, the index of the order is not used."""
        direction = "DESC" if self.is_descending else "ASC"
        return f"{'' if by_index else '+'}{self.key} {direction}, worker_runs.num {direction}"


ORDERS: Final[dict[RunOrder, Order]] = {
    "newest": Order("worker_runs.started_at", is_descending=True, has_text_key=True),
    "oldest": Order("worker_runs.started_at", is_descending=False, has_text_key=True),
    "cost": Order("coalesce(worker_runs.cost_usd, -1)", is_descending=True, has_text_key=False),
    "duration": Order("coalesce(worker_runs.duration_ms, -1)", is_descending=True, has_text_key=False),
}


def list_query(
    run_filter: RunFilter,
    *,
    limit: int,
    offset: int = 0,
    cursor: str | None = None,
    order: RunOrder = "newest",
    matches: int = 0,
) -> Query:
    """Return the query for a page of runs. With a search, call `find_runs` in the same transaction first.

    `matches` is how many runs match, which decides about the index for an order by cost or duration. Raises
    `InvalidParameter` if the cursor is invalid.
    """
    is_search = run_filter.search is not None
    # Hits are ordered by run number, the order of the table: sorting all hits of a common word would take long.
    is_by_number = is_search and order == "newest"
    join = " JOIN found ON found.num = worker_runs.num" if is_search else ""
    by_index = ORDERS[order].has_text_key or (not is_search and matches > SORTED_RUNS)
    # Few runs wait for a person or are open on a host, and their indexes find them.
    by_index = by_index and run_filter.needs_person_after is None and run_filter.has_pending_call is None
    by_index = by_index and run_filter.open_on_host is None
    order_by = "found.num DESC" if is_by_number else ORDERS[order].clause(by_index=by_index)
    # The indexes of the filters would lead to a sort of all matches.
    filters = conditions(run_filter, by_index=ORDERS[order].has_text_key or not by_index)
    if cursor is not None:
        filters.append(_after(cursor, order, is_by_number=is_by_number))
    where, parameters = where_clause(filters)
    return Query(f"{_SELECT_LISTED}{join}{where} ORDER BY {order_by} LIMIT ? OFFSET ?", [*parameters, limit, offset])


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


def conditions(run_filter: RunFilter, *, by_index: bool = True) -> list[Condition]:
    """Return the conditions of a filter, except its search. Without `by_index`, their indexes are not used."""
    column = "worker_runs." if by_index else "+worker_runs."
    filters: list[Condition] = [
        (f"{column}{name} = ?", (value,))
        for name in _EQUALITY_FIELDS
        if (value := getattr(run_filter, name)) is not None
    ]
    if run_filter.based_on is not None:
        # As in the index.
        text = "worker_runs.based_on IS NOT NULL AND json_extract(worker_runs.based_on, '$.run_id') = ?"
        filters.append((text, (run_filter.based_on,)))
    if run_filter.open_on_host is not None:
        filters.append(("worker_runs.completed_at IS NULL AND worker_runs.host = ?", (run_filter.open_on_host,)))
    if run_filter.has_pending_call is not None:
        filters.append(HAS_PENDING_CALL)
    if run_filter.needs_person_after is not None:
        filters.append(needs_person_condition(run_filter.needs_person_after))
    if (statuses := run_filter.statuses) is not None:
        comparison = "= ?" if len(statuses) == 1 else f"IN {placeholders(statuses)}"
        filters.append((f"{column}status {comparison}", statuses))
    if run_filter.roots is not None:
        filters.append((f"{column}parent_run_id IS {'' if run_filter.roots else 'NOT '}NULL", ()))
    if run_filter.started_after is not None:
        filters.append((f"{column}started_at > ?", (run_filter.started_after,)))
    if run_filter.started_before is not None:
        filters.append((f"{column}started_at < ?", (run_filter.started_before,)))
    for name, expression, comparison in _BOUNDS:
        if (value := getattr(run_filter, name)) is not None:
            filters.append((f"{expression} {comparison} ?", (value,)))
            if comparison == "<=":
                # Below 0 are the runs whose cost or duration is unknown.
                filters.append((f"{expression} >= 0", ()))
    return filters


def needs_person_condition(after: str) -> Condition:
    """Return the condition that a run failed after this time and waits for a person."""
    return _NEEDS_PERSON, (after,)


def where_clause(filters: Sequence[Condition]) -> tuple[str, list[Any]]:
    """Return the clause for conditions that all must match, and its parameters."""
    text = " AND ".join([condition for condition, _ in filters])
    return f" WHERE {text}" if text else "", [value for _, values in filters for value in values]


def fields_of(run_filter: RunFilter) -> set[str]:
    """Return the names of the fields that filter."""
    return {name for name in RunFilter.__struct_fields__ if getattr(run_filter, name) is not None}


def count_query(run_filter: RunFilter) -> Query:
    """Return the query for the number of matching runs, from the table of counts if it covers the filter."""
    filtered_fields = fields_of(run_filter)
    # In the counts, '' means NULL.
    if filtered_fields <= _COUNTED_FIELDS and "" not in (run_filter.agent_id, run_filter.channel_id):
        filters: list[Condition] = [
            (f"{name} = ?", (getattr(run_filter, name),)) for name in filtered_fields - {"statuses"}
        ]
        if run_filter.statuses is not None:
            filters.append((f"status IN {placeholders(run_filter.statuses)}", run_filter.statuses))
        where, parameters = where_clause(filters)
        return Query(f"SELECT coalesce(sum(n), 0) FROM run_counts{where}", parameters)
    if filtered_fields == {"search"}:
        return Query("SELECT count(*) FROM found")
    found: list[Condition] = [] if run_filter.search is None else [("num IN (SELECT num FROM found)", ())]
    where, parameters = where_clause(conditions(run_filter) + found)
    return Query(f"SELECT count(*) FROM worker_runs{where}", parameters)


def _after(cursor: str, order: RunOrder, *, is_by_number: bool) -> Condition:
    """Return the condition that a run comes after the one in the cursor."""
    try:
        content = base64.urlsafe_b64decode(cursor)
        if order == "newest":
            key, number = decode_json(content, tuple[str, _Number])
        elif ORDERS[order].has_text_key:
            _, key, number = decode_json(content, tuple[Literal["oldest"], str, _Number])
        else:
            found, key, number = decode_json(content, tuple[Literal["cost", "duration"], float, _Number])
            if found != order:
                raise ValueError(f"a cursor of the order {found}")
    except (msgspec.MsgspecError, binascii.Error, ValueError) as error:
        raise InvalidParameter(
            f"{cursor!r} is not a cursor of this list", hint="use `next` of the previous page, or omit the cursor"
        ) from error
    if is_by_number:
        return "found.num < ?", (number,)
    comparison = "<" if ORDERS[order].is_descending else ">"
    return f"({ORDERS[order].key}, worker_runs.num) {comparison} (?, ?)", (key, number)


def encode_cursor(item: RunItem, order: RunOrder) -> str:
    """Return the cursor of the page after this item."""
    position: tuple[object, ...] = (item.row.started_at, item.number)
    if order != "newest":
        position = (order, sort_key(item.row, order), item.number)
    return base64.urlsafe_b64encode(msgspec.json.encode(position)).decode()


def sort_key(row: RunRow, order: RunOrder) -> str | float:
    """Return what a run is ordered by; -1 if it is unknown."""
    if ORDERS[order].has_text_key:
        return row.started_at
    value = row.spending.tree.cost_usd if order == "cost" else row.duration_ms
    return -1.0 if value is None else float(value)


def with_answers(connection: Connection, items: list[RunItem]) -> list[RunItem]:
    """Return the runs with the calls that were answered but whose answer no log has yet."""
    waiting = [item.row.id for item in items if item.row.awaits]
    if not waiting:
        return items
    answered: dict[str, list[str]] = {}
    for run_id, message_id in connection.execute(*pending_answers_query(waiting)):
        answered.setdefault(run_id, []).append(message_id.removeprefix(ANSWER_ID_PREFIX))
    return [msgspec.structs.replace(item, answered=tuple(answered.get(item.row.id, ()))) for item in items]
