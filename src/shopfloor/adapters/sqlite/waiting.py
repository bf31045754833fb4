"""What waits for a person: unanswered calls, and failures that only a person can remove."""

from __future__ import annotations

from sqlite3 import Connection
from typing import Final

from shopfloor.adapters.sqlite.queries import (
    SELECT_LISTED,
    Condition,
    Query,
    conditions,
    where_clause,
    with_answers,
)
from shopfloor.adapters.sqlite.rows import decode_run_item
from shopfloor.ports import ANSWER_ID_PREFIX, OpenRun, RunFilter, RunItem, WaitingRuns
from shopfloor.views import RATE_LIMIT

_CALLS: Final = "json_each(worker_runs.waits, '$.since') AS call"
_IS_UNANSWERED: Final = (
    "NOT EXISTS (SELECT 1 FROM json_each(worker_runs.waits, '$.kinds') AS kind"
    f" WHERE kind.key = call.key AND kind.value = '{RATE_LIMIT}')"
    " AND NOT EXISTS (SELECT 1 FROM orders"
    f" WHERE orders.run_id = worker_runs.id AND orders.id = '{ANSWER_ID_PREFIX}' || call.key)"
)
# The index of this column has the few runs with a pending call, answered or not.
_HAS_CALL: Final = "worker_runs.waiting_since IS NOT NULL"
_HAS_UNANSWERED_CALL: Final = f"{_HAS_CALL} AND EXISTS (SELECT 1 FROM {_CALLS} WHERE {_IS_UNANSWERED})"
_NEEDS_PERSON: Final = (
    "worker_runs.needs_person_since > ?"
    " AND NOT EXISTS (SELECT 1 FROM dismissals WHERE dismissals.worker_id = worker_runs.id)"
    # As in the index; without the `+`, the affinity of the column would exclude the index.
    " AND NOT EXISTS (SELECT 1 FROM worker_runs AS later WHERE later.based_on IS NOT NULL"
    " AND json_extract(later.based_on, '$.run_id') = +worker_runs.id)"
)
_ROOT_ID: Final = "coalesce(worker_runs.root_run_id, worker_runs.id)"
_IS_OPEN_ROOT: Final = (
    "worker_runs.completed_at IS NULL AND +worker_runs.parent_run_id IS NULL"
    " AND +worker_runs.status IN ('running', 'waiting')"
    f" AND {_ROOT_ID} NOT IN (SELECT {_ROOT_ID} FROM worker_runs WHERE {_HAS_UNANSWERED_CALL})"
)


def count_calls(connection: Connection, filters: list[Condition]) -> tuple[int, str | None]:
    """Return the number of unanswered calls of the matching runs, and when the first of them was made."""
    where, values = where_clause([(f"{_HAS_CALL} AND {_IS_UNANSWERED}", ()), *filters])
    query = f"SELECT count(*), min(call.value) FROM worker_runs CROSS JOIN {_CALLS}{where}"
    return connection.execute(query, values).fetchone()


def count_failures(connection: Connection, after: str, filters: list[Condition]) -> tuple[int, str | None]:
    """Return how many matching failures after this time wait for a person, and the time of the first."""
    where, values = where_clause([(_NEEDS_PERSON, (after,)), *filters])
    return connection.execute(f"SELECT count(*), min(needs_person_since) FROM worker_runs{where}", values).fetchone()


def read_waiting(connection: Connection, failed_after: str, limit: int) -> WaitingRuns:
    """Return the runs that wait for a person, the longest wait first."""

    def read(condition: str, order: str, *values: str) -> list[RunItem]:
        query = f"{SELECT_LISTED} WHERE {condition} ORDER BY worker_runs.{order}, worker_runs.num LIMIT ?"
        return [decode_run_item(row, listed=True) for row in connection.execute(query, (*values, limit))]

    return WaitingRuns(
        pending=with_answers(connection, read(_HAS_UNANSWERED_CALL, "waiting_since")),
        failed=read(_NEEDS_PERSON, "needs_person_since", failed_after),
        calls=count_calls(connection, [])[0],
        failures=count_failures(connection, failed_after, [])[0],
    )


def read_open_roots(connection: Connection, run_filter: RunFilter) -> list[OpenRun]:
    """Return the matching open roots that wait for no person. With a search, call `find_runs` before."""
    query = open_roots_query(run_filter)
    return [OpenRun(run_id, host) for run_id, host in connection.execute(*query)]


def open_roots_query(run_filter: RunFilter) -> Query:
    """Return the query for the matching open roots that wait for no person."""
    where, values = where_clause([(_IS_OPEN_ROOT, ()), *matching(run_filter)])
    return Query(f"SELECT id, host FROM worker_runs{where} ORDER BY +started_at, num", values)


def matching(run_filter: RunFilter) -> list[Condition]:
    """Return the conditions of a filter, which do not use its indexes: few runs wait, and their index finds them."""
    in_found: list[Condition] = [] if run_filter.search is None else [("num IN (SELECT num FROM temp.found)", ())]
    return [*conditions(run_filter, by_index=False), *in_found]
