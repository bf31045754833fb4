"""The queries of lists, as text and parameters: filters, pages, totals, search."""

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
_COUNTED: Final = {"agent_id", "statuses", "worker_type", "channel_id", "name", "roots"}
_EQUAL: Final = ("agent_id", "worker_type", "channel_id", "parent_run_id", "name")
_BESIDE: Final = (
    "channels.name, pins.worker_id IS NOT NULL FROM worker_runs"
    " LEFT JOIN channels ON channels.id = worker_runs.channel_id"
    " LEFT JOIN pins ON pins.worker_id = worker_runs.id"
)
PIN: Final = "INSERT INTO pins (worker_id) VALUES (?) ON CONFLICT DO NOTHING"
UNPIN: Final = "DELETE FROM pins WHERE worker_id = ?"
_LISTED: Final = f"SELECT {row_columns(listed=True)}, {_BESIDE}"
_WHOLE: Final = f"SELECT {row_columns(listed=False)}, {_BESIDE}"


class Query(NamedTuple):
    """A statement with its parameters, as the driver's `execute` takes them."""

    text: str
    parameters: Sequence[Any] = ()


Condition = tuple[str, Sequence[Any]]
"""A condition with its parameters."""


def placeholders(values: Sequence[Any]) -> str:
    """A list of as many parameters as there are values."""
    return f"({', '.join('?' * len(values))})"


def list_query(wanted: RunFilter, *, limit: int, offset: int = 0, cursor: str | None = None) -> Query:
    """Runs with what stands beside their rows. A search takes those that `find_runs` has found before."""
    is_search = wanted.search is not None
    # By number, as the table has them: sorting all hits of a common word would take long.
    join, order = (
        (" JOIN found ON found.num = worker_runs.num", "found.num DESC")
        if is_search
        else ("", "worker_runs.started_at DESC, worker_runs.num DESC")
    )
    made = conditions(wanted)
    if cursor is not None:
        made.append(_after(cursor, is_search=is_search))
    where, parameters = _where(made)
    return Query(f"{_LISTED}{join}{where} ORDER BY {order} LIMIT ? OFFSET ?", [*parameters, limit, offset])


def one(run_id: str) -> Query:
    return Query(f"{_WHOLE} WHERE worker_runs.id = ?", (run_id,))


def pending_answers_query(run_ids: Sequence[str]) -> Query:
    """The answers to calls of these runs that no log has yet."""
    wanted = f"run_id IN {placeholders(run_ids)} AND id LIKE '{ANSWER_ID_PREFIX}%'"
    text = f"SELECT run_id, id FROM orders WHERE {wanted} ORDER BY num"
    return Query(text, run_ids)


def runs_query(run_ids: Sequence[str], *, begun: bool = False) -> Query:
    """These runs; with `begun` those of them that have events."""
    only_begun = " AND worker_runs.last_seq > 0" if begun else ""
    return Query(f"{_WHOLE} WHERE worker_runs.id IN {placeholders(run_ids)}{only_begun}", run_ids)


def conditions(wanted: RunFilter) -> list[Condition]:
    made: list[Condition] = [
        (f"worker_runs.{name} = ?", (value,)) for name in _EQUAL if (value := getattr(wanted, name)) is not None
    ]
    if (statuses := wanted.statuses) is not None:
        among = "= ?" if len(statuses) == 1 else f"IN {placeholders(statuses)}"
        made.append((f"worker_runs.status {among}", statuses))
    if wanted.roots is not None:
        made.append((f"worker_runs.parent_run_id IS {'' if wanted.roots else 'NOT '}NULL", ()))
    if wanted.started_after is not None:
        made.append(("worker_runs.started_at > ?", (wanted.started_after,)))
    if wanted.started_before is not None:
        made.append(("worker_runs.started_at < ?", (wanted.started_before,)))
    return made


def _where(made: Sequence[Condition]) -> tuple[str, list[Any]]:
    text = " AND ".join([condition for condition, _ in made])
    return f" WHERE {text}" if text else "", [value for _, values in made for value in values]


def total(wanted: RunFilter) -> Query:
    """How many there are: from the kept counts where these are enough."""
    asked = {name for name in RunFilter.__struct_fields__ if getattr(wanted, name) is not None}
    # In the counts, '' stands for none at all.
    if asked <= _COUNTED and "" not in (wanted.agent_id, wanted.channel_id):
        made: list[Condition] = [(f"{name} = ?", (getattr(wanted, name),)) for name in asked - {"statuses"}]
        if wanted.statuses is not None:
            made.append((f"status IN {placeholders(wanted.statuses)}", wanted.statuses))
        where, parameters = _where(made)
        return Query(f"SELECT coalesce(sum(n), 0) FROM run_counts{where}", parameters)
    if asked == {"search"}:
        return Query("SELECT count(*) FROM found")
    found: list[Condition] = [] if wanted.search is None else [("num IN (SELECT num FROM found)", ())]
    where, parameters = _where(conditions(wanted) + found)
    return Query(f"SELECT count(*) FROM worker_runs{where}", parameters)


def _after(cursor: str, *, is_search: bool) -> Condition:
    """That a run comes behind the one that the cursor names."""
    try:
        place = decode_json(base64.urlsafe_b64decode(cursor), tuple[str, _Number])
    except (msgspec.MsgspecError, binascii.Error, ValueError) as error:
        raise InvalidParameter(
            f"{cursor!r} is not a cursor", hint="leave it out, or take it from the answer before"
        ) from error
    return ("found.num < ?", place[1:]) if is_search else ("(worker_runs.started_at, worker_runs.num) < (?, ?)", place)


def encode_cursor(item: RunItem) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode((item.row.started_at, item.number))).decode()
