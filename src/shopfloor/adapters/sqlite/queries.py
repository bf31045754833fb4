"""Queries for runs as SQL text and parameters: filters, pages, counts."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from sqlite3 import Connection
from typing import Annotated, Any, Final, Literal, NamedTuple, get_args

import msgspec

from shopfloor.adapters.limits import SORTED_RUNS
from shopfloor.adapters.sqlite.intake import Mark
from shopfloor.adapters.sqlite.rows import row_columns
from shopfloor.decoding import decode_json
from shopfloor.errors import InvalidParameter
from shopfloor.limits import CONTINUED_RUNS
from shopfloor.ports import ANSWER_ID_PREFIX, LaterRun, RunFilter, RunItem, RunOrder
from shopfloor.views import FAILURE, RunRow, RunState

_Number = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
_Range = Literal["id", "error_group", "ended", "cost", "duration"]
_FAILED_IN_GROUP: Final = f"SELECT num FROM run_stats WHERE metric = '{FAILURE}' AND detail = ?"
_COUNTED_FIELDS: Final = {"agent_id", "statuses", "worker_type", "channel_id", "name", "roots"}
_EQUALITY_FIELDS: Final = (
    *("agent_id", "worker_type", "channel_id", "parent_run_id", "name", "model", "provider", "error_code"),
)
_RANGES: Final[dict[_Range, tuple[tuple[str, str], ...]]] = {
    "id": (("id_prefix", "{prefix}worker_runs.id >= ? AND {prefix}worker_runs.id < ? || 'g'"),),
    "error_group": (("error_group", "{prefix}worker_runs.num IN (" + _FAILED_IN_GROUP + ")"),),
    "ended": (
        ("ended_after", "{prefix}worker_runs.completed_at > ?"),
        ("ended_before", "{prefix}worker_runs.completed_at < ?"),
    ),
    # Below 0 are the runs whose cost or duration is unknown.
    "cost": (
        ("min_cost_usd", "{prefix}coalesce(worker_runs.cost_usd, -1) >= ?"),
        ("max_cost_usd", "{prefix}coalesce(worker_runs.cost_usd, -1) BETWEEN 0 AND ?"),
    ),
    "duration": (
        ("min_duration_ms", "{prefix}coalesce(worker_runs.duration_ms, -1) >= ?"),
        ("max_duration_ms", "{prefix}coalesce(worker_runs.duration_ms, -1) BETWEEN 0 AND ?"),
    ),
}
"""The conditions on ranges of an index, by the field of the filter. `prefix` is `+` to not use the index."""
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
HALF_DELETED: Final = (
    "SELECT id FROM worker_runs WHERE id IN (SELECT worker_id FROM tombstones)"
    " UNION SELECT run_id FROM dispatch_keys WHERE run_id IN (SELECT worker_id FROM tombstones)"
)
START_WAITS: Final = (
    "SELECT max(0.0, round((julianday(started_at) - julianday(queued_at)) * 86400, 3)) FROM worker_runs"
    " WHERE started_at > ? AND status <> 'queued' AND queued_at IS NOT NULL ORDER BY started_at DESC, num DESC LIMIT ?"
)
EXPIRED: Final = (
    "SELECT id, completed_at FROM worker_runs WHERE completed_at < ? AND completed_at >= ?"
    " AND id NOT IN (SELECT worker_id FROM pins) ORDER BY completed_at, num LIMIT ?"
)
OVERDUE_PARENTS: Final = (
    "SELECT DISTINCT parent.id FROM worker_runs AS parent, json_each(parent.waits, '$.runs') AS called"
    " JOIN worker_runs AS child ON child.id = called.value"
    " WHERE parent.completed_at IS NULL AND parent.status = 'waiting' AND child.completed_at IS NOT NULL"
)
RECENT_DURATIONS: Final = (
    "SELECT duration_ms FROM worker_runs WHERE name = ? AND status = 'completed' AND duration_ms IS NOT NULL"
    " ORDER BY started_at DESC, num DESC LIMIT ?"
)
SELECT_LISTED: Final = f"SELECT {row_columns(listed=True)}, {_JOINED}"
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


def find_range(connection: Connection, run_filter: RunFilter) -> _Range | None:
    """Return the range of a filter that has few runs, so that its index finds them; None if there is none."""
    for name, filters in _range_conditions(run_filter).items():
        where, parameters = where_clause(filters)
        query = f"SELECT count(*) FROM (SELECT 1 FROM worker_runs{where} LIMIT {SORTED_RUNS + 1})"
        if connection.execute(query, parameters).fetchone()[0] <= SORTED_RUNS:
            return name
    return None


def _range_conditions(run_filter: RunFilter, *, by_index: bool = True) -> dict[_Range, list[Condition]]:
    """Return the conditions on ranges by their index."""
    found: dict[_Range, list[Condition]] = {}
    for name, fields in _RANGES.items():
        for field, text in fields:
            if (value := getattr(run_filter, field)) is not None:
                condition = text.format(prefix="" if by_index else "+"), (value,) * text.count("?")
                found.setdefault(name, []).append(condition)
    return found


def list_query(
    run_filter: RunFilter,
    *,
    limit: int,
    offset: int = 0,
    cursor: str | None = None,
    order: RunOrder = "newest",
    matches: int = 0,
    by_range: _Range | None = None,
) -> Query:
    """Return the query for a page of runs. With a search, call `find_runs` in the same transaction first.

    `matches` is how many runs match, which decides about the index for an order by cost or duration. `by_range` is the
    range that has few runs. Raises `InvalidParameter` if the cursor is invalid.
    """
    is_search = run_filter.search is not None
    # Hits are ordered by run number, the order of the table: sorting all hits of a common word would take long.
    is_by_number = is_search and order == "newest"
    join = " JOIN found ON found.num = worker_runs.num" if is_search else ""
    by_index = by_range is None and (ORDERS[order].has_text_key or (not is_search and matches > SORTED_RUNS))
    # Few runs are open on a host, and their index finds them.
    by_index = by_index and run_filter.open_on_host is None
    order_by = "found.num DESC" if is_by_number else ORDERS[order].clause(by_index=by_index)
    # The indexes of the filters would lead to a sort of all matches.
    filters = conditions(run_filter, by_index=ORDERS[order].has_text_key or not by_index, by_range=by_range)
    if cursor is not None:
        filters.append(_after(cursor, order, is_by_number=is_by_number))
    where, parameters = where_clause(filters)
    return Query(f"{SELECT_LISTED}{join}{where} ORDER BY {order_by} LIMIT ? OFFSET ?", [*parameters, limit, offset])


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


def conditions(run_filter: RunFilter, *, by_index: bool = True, by_range: _Range | None = None) -> list[Condition]:
    """Return the conditions of a filter, except its search.

    Without `by_index`, their indexes are not used; with `by_range`, only the index of this range.
    """
    column = "worker_runs." if by_index and by_range is None else "+worker_runs."
    filters: list[Condition] = [
        (f"{column}{name} = ?", (value,))
        for name in _EQUALITY_FIELDS
        if (value := getattr(run_filter, name)) is not None
    ]
    if run_filter.open_on_host is not None:
        filters.append(("worker_runs.completed_at IS NULL AND worker_runs.host = ?", (run_filter.open_on_host,)))
    if (statuses := run_filter.statuses) is not None:
        comparison = "= ?" if len(statuses) == 1 else f"IN {placeholders(statuses)}"
        filters.append((f"{column}status {comparison}", statuses))
    if run_filter.roots is not None:
        filters.append((f"{column}parent_run_id IS {'' if run_filter.roots else 'NOT '}NULL", ()))
    if run_filter.started_after is not None:
        filters.append((f"{column}started_at > ?", (run_filter.started_after,)))
    if run_filter.started_before is not None:
        filters.append((f"{column}started_at < ?", (run_filter.started_before,)))
    with_index, without_index = _range_conditions(run_filter), _range_conditions(run_filter, by_index=False)
    for name, found in with_index.items():
        filters += found if name == by_range or (by_index and by_range is None) else without_index[name]
    return filters


def where_clause(filters: Sequence[Condition]) -> tuple[str, list[Any]]:
    """Return the clause for conditions that all must match, and its parameters."""
    text = " AND ".join([condition for condition, _ in filters])
    return f" WHERE {text}" if text else "", [value for _, values in filters for value in values]


def fields_of(run_filter: RunFilter) -> set[str]:
    """Return the names of the fields that filter."""
    return {name for name in RunFilter.__struct_fields__ if getattr(run_filter, name) is not None}


def read_later_runs(connection: Connection, run_id: str) -> list[LaterRun]:
    """Return the runs that are based on a run, newest first."""
    # As in the index.
    condition = "based_on IS NOT NULL AND json_extract(based_on, '$.run_id') = ?"
    text = f"SELECT id, json_extract(based_on, '$.kind') FROM worker_runs WHERE {condition} ORDER BY num DESC LIMIT ?"
    return [LaterRun(*found) for found in connection.execute(text, (run_id, CONTINUED_RUNS))]


def count_query(run_filter: RunFilter, by_range: _Range | None = None) -> Query:
    """Return the query for the number of matching runs, from the table of counts if it covers the filter.

    `by_range` is the range that has few runs.
    """
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
    return Query(*_counted("count(*)", run_filter, by_range))


def count_by_status(connection: Connection, run_filter: RunFilter) -> dict[str, int]:
    """Return how many runs match, by status. With a search, call `find_runs` before."""
    run_filter = msgspec.structs.replace(run_filter, statuses=None)
    # The table of counts, or an index with the status before the start.
    fields = fields_of(run_filter)
    if fields <= _COUNTED_FIELDS or fields <= {"agent_id", "roots", "started_after", "started_before"}:
        by_status = {status: msgspec.structs.replace(run_filter, statuses=(status,)) for status in get_args(RunState)}
        counts = {status: connection.execute(*count_query(wanted)) for status, wanted in by_status.items()}
        return {status: count.fetchone()[0] for status, count in counts.items()}
    # A sum for each, which takes less time than to sort the runs by their status.
    sums = ", ".join([f"coalesce(sum(status = '{status}'), 0)" for status in get_args(RunState)])
    query = _counted(sums, run_filter, find_range(connection, run_filter))
    return dict(zip(get_args(RunState), connection.execute(*query).fetchone(), strict=True))


def _counted(columns: str, run_filter: RunFilter, by_range: _Range | None) -> Query:
    """Return a query that counts the matching runs. `by_range` is the range that has few runs."""
    ranges = _range_conditions(run_filter)
    if by_range is None and "ended" in ranges:
        # Its index has all columns of filters.
        by_range = "ended"
    if by_range is None and not fields_of(run_filter) & {*_EQUALITY_FIELDS, "search"}:
        # The indexes of costs and durations have the columns of the other filters.
        by_range = next(iter(ranges), None)
    found: list[Condition] = [] if run_filter.search is None else [("num IN (SELECT num FROM found)", ())]
    where, parameters = where_clause([*conditions(run_filter, by_range=by_range), *found])
    return Query(f"SELECT {columns} FROM worker_runs{where}", parameters)


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
