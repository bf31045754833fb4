"""The queries of lists: filters, pages, totals, search."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from sqlalchemy import ColumnElement, Select, and_, func, select, tuple_

from shopfloor.adapters.sqlite.rows import row_columns
from shopfloor.adapters.sqlite.schema import channels, found, orders, pins, run_counts, worker_runs
from shopfloor.errors import InvalidParameter
from shopfloor.ports import ANSWER, RunFilter, RunItem

_Number = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
_COUNTED = {"agent_id", "statuses", "worker_type", "channel_id", "name", "roots"}


def listing(wanted: RunFilter) -> Select[Any]:
    """Runs with what stands beside their rows. A search takes those that `find_runs` has found before."""
    query = select(*row_columns(listed=True), *_beside()).select_from(_joined()).where(*conditions(wanted))
    if wanted.search is None:
        return query.order_by(worker_runs.c.started_at.desc(), worker_runs.c.num.desc())
    # By number, as the table has them: sorting all hits of a common word would take long.
    return query.join(found, found.c.num == worker_runs.c.num).order_by(found.c.num.desc())


def one(run_id: str) -> Select[Any]:
    return _whole().where(worker_runs.c.id == run_id)


def answers(run_ids: Sequence[str]) -> Select[str, str]:
    """The answers to calls of these runs that no log has yet."""
    query = select(orders.c.run_id, orders.c.id).where(orders.c.run_id.in_(run_ids), orders.c.id.startswith(ANSWER))
    return query.order_by(orders.c.num)


def those(run_ids: Sequence[str], *, begun: bool = False) -> Select[Any]:
    """These runs; with `begun` those of them that have events."""
    query = _whole().where(worker_runs.c.id.in_(run_ids))
    return query.where(worker_runs.c.last_seq > 0) if begun else query


def _whole() -> Select[Any]:
    return select(*row_columns(listed=False), *_beside()).select_from(_joined())


def _beside() -> list[ColumnElement[Any]]:
    return [channels.c.name.label("channel_name"), pins.c.worker_id.is_not(None).label("pinned")]


def _joined() -> Any:
    with_channel = worker_runs.outerjoin(channels, channels.c.id == worker_runs.c.channel_id)
    return with_channel.outerjoin(pins, pins.c.worker_id == worker_runs.c.id)


def conditions(wanted: RunFilter) -> list[ColumnElement[bool]]:
    runs = worker_runs.c
    made: list[ColumnElement[bool]] = [
        getattr(runs, name) == value
        for name in ("agent_id", "worker_type", "channel_id", "parent_run_id", "name")
        if (value := getattr(wanted, name)) is not None
    ]
    if wanted.statuses is not None:
        single = len(wanted.statuses) == 1
        made.append(runs.status == wanted.statuses[0] if single else runs.status.in_(wanted.statuses))
    if wanted.roots is not None:
        made.append(runs.parent_run_id.is_(None) if wanted.roots else runs.parent_run_id.is_not(None))
    if wanted.started_after is not None:
        made.append(runs.started_at > wanted.started_after)
    if wanted.started_before is not None:
        made.append(runs.started_at < wanted.started_before)
    return made


def total(wanted: RunFilter) -> Select[Any]:
    """How many there are: from the kept counts where these are enough."""
    asked = {name for name in RunFilter.__struct_fields__ if getattr(wanted, name) is not None}
    # In the counts, '' stands for none at all.
    if asked <= _COUNTED and "" not in (wanted.agent_id, wanted.channel_id):
        counts = run_counts.c
        query = select(func.coalesce(func.sum(counts.n), 0))
        for name in asked - {"statuses"}:
            query = query.where(getattr(counts, name) == getattr(wanted, name))
        return query if wanted.statuses is None else query.where(counts.status.in_(wanted.statuses))
    query = select(func.count()).select_from(worker_runs).where(*conditions(wanted))
    if wanted.search is None:
        return query
    if asked == {"search"}:
        return select(func.count()).select_from(found)
    return query.where(worker_runs.c.num.in_(select(found.c.num)))


def after_cursor(query: Select[Any], wanted: RunFilter, cursor: str) -> Select[Any]:
    """The page that begins behind the run that the cursor names."""
    try:
        place = msgspec.json.decode(base64.urlsafe_b64decode(cursor), type=tuple[str, _Number])
    except (msgspec.MsgspecError, binascii.Error, ValueError) as error:
        raise InvalidParameter(
            f"{cursor!r} is not a cursor", hint="leave it out, or take it from the answer before"
        ) from error
    runs = worker_runs.c
    if wanted.search is not None:
        return query.where(found.c.num < place[1])
    return query.where(and_(tuple_(runs.started_at, runs.num) < tuple_(*place)))


def cursor_of(item: RunItem) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode((item.row.started_at, item.number))).decode()
