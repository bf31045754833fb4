"""The queries of lists: filters, pages, totals, search."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from sqlalchemy import ColumnElement, Select, Text, and_, func, literal_column, select, text, tuple_, union

from shopfloor.adapters.sqlite.rows import row_columns
from shopfloor.adapters.sqlite.schema import channels, orders, pins, run_counts, worker_runs, worker_search
from shopfloor.errors import InvalidParameter
from shopfloor.limits import SNIPPET_WORDS
from shopfloor.ports import ANSWER, RunFilter, RunItem
from shopfloor.views import HIT_BEGIN, HIT_END, beginning_of_id

_Number = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
_WORD = re.compile(r"[^\W_]+")
_FOUND_NUMBER: ColumnElement[int] = literal_column("worker_search.rowid")
# The text may have the characters that mark hits: so others mark them first, which are no characters at all.
_MARKED = f"snippet(worker_search, 0, '\ufdd0', '\ufdd1', '…', {SNIPPET_WORDS})"
_UNMARKED = f"replace(replace({_MARKED}, '{HIT_BEGIN}', ''), '{HIT_END}', '')"
_SNIPPET: ColumnElement[str] = literal_column(
    f"replace(replace({_UNMARKED}, '\ufdd0', '{HIT_BEGIN}'), '\ufdd1', '{HIT_END}')", Text
)
_COUNTED = {"agent_id", "statuses", "worker_type", "channel_id", "name", "roots"}


def listing(wanted: RunFilter) -> Select[Any]:
    """Runs with what stands beside their rows."""
    every = select(*row_columns(listed=True), *_beside()).select_from(_joined())
    query = every.where(*conditions(wanted))
    if wanted.search is None:
        return query.order_by(worker_runs.c.started_at.desc(), worker_runs.c.num.desc())
    # By number, as the index has them: sorting all hits of a common word would take seconds.
    if (run_id := beginning_of_id(wanted.search)) is not None:
        here = select(_SNIPPET).select_from(worker_search).where(worker_runs.c.num == _FOUND_NUMBER)
        snippet = here.where(_matches(wanted.search)).correlate(worker_runs).scalar_subquery()
        # The numbers first: otherwise snippets are made of all hits, to sort them.
        fits = select(worker_runs.c.num).where(*conditions(wanted), _has_words_or_id(wanted.search, run_id))
        found = every.add_columns(snippet.label("snippet")).where(worker_runs.c.num.in_(fits.correlate(None)))
        return found.order_by(worker_runs.c.num.desc())
    found = query.add_columns(_SNIPPET.label("snippet")).join(worker_search, worker_runs.c.num == _FOUND_NUMBER)
    return found.where(_matches(wanted.search)).order_by(_FOUND_NUMBER.desc())


def one(run_id: str) -> Select[Any]:
    return _whole().where(worker_runs.c.id == run_id)


def answers(run_id: str) -> Select[Any]:
    """What somebody has answered of a run and no log has taken up."""
    return select(orders.c.id).where(orders.c.run_id == run_id, orders.c.id.startswith(ANSWER)).order_by(orders.c.num)


def begun(run_ids: Sequence[str]) -> Select[Any]:
    """Those of these runs that have events."""
    return _whole().where(worker_runs.c.id.in_(run_ids), worker_runs.c.last_seq > 0)


def _whole() -> Select[Any]:
    return select(*row_columns(listed=False), *_beside()).select_from(_joined())


def _beside() -> list[ColumnElement[Any]]:
    return [channels.c.name.label("channel_name"), pins.c.worker_id.is_not(None).label("pinned")]


def _joined() -> Any:
    with_channel = worker_runs.outerjoin(channels, channels.c.id == worker_runs.c.channel_id)
    return with_channel.outerjoin(pins, pins.c.worker_id == worker_runs.c.id)


def conditions(wanted: RunFilter) -> list[ColumnElement[bool]]:
    runs = worker_runs.c
    found: list[ColumnElement[bool]] = [
        getattr(runs, name) == value
        for name in ("agent_id", "worker_type", "channel_id", "parent_run_id", "name")
        if (value := getattr(wanted, name)) is not None
    ]
    if wanted.statuses is not None:
        single = len(wanted.statuses) == 1
        found.append(runs.status == wanted.statuses[0] if single else runs.status.in_(wanted.statuses))
    if wanted.roots is not None:
        found.append(runs.parent_run_id.is_(None) if wanted.roots else runs.parent_run_id.is_not(None))
    if wanted.started_after is not None:
        found.append(runs.started_at > wanted.started_after)
    if wanted.started_before is not None:
        found.append(runs.started_at < wanted.started_before)
    return found


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
    if (run_id := beginning_of_id(wanted.search)) is not None:
        return query.where(_has_words_or_id(wanted.search, run_id))
    if asked == {"search"}:
        return select(func.count()).select_from(worker_search).where(_matches(wanted.search))
    # All hits at once: to ask for each run whether it is one takes seconds.
    return query.where(worker_runs.c.num.in_(_numbers(wanted.search)))


def _numbers(search: str) -> Select[Any]:
    return select(_FOUND_NUMBER).select_from(worker_search).where(_matches(search))


def _matches(search: str) -> ColumnElement[bool]:
    """All the words, each as it is: nothing of what somebody types is syntax. No words match nothing.

    The last one may be unfinished, if it has more than one character: half of all words begin with some letter.
    """
    found = _WORD.findall(search)
    words = " ".join(f'"{word}"' for word in found) or '""'
    words += "*" if found and len(found[-1]) > 1 else ""
    return text("worker_search MATCH :words").bindparams(words=words)  # type: ignore[return-value]


def _has_words_or_id(search: str, run_id: str) -> ColumnElement[bool]:
    """`run_id` is how an id begins. No other condition can stand beside MATCH with an OR: so two queries are joined."""
    runs = worker_runs.alias("by_id").c
    # `g` comes after all that an id can go on with.
    by_id = select(runs.num).where(runs.id >= run_id, runs.id < f"{run_id}g")
    return worker_runs.c.num.in_(union(_numbers(search), by_id))


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
        number = _FOUND_NUMBER if beginning_of_id(wanted.search) is None else runs.num
        return query.where(number < place[1])
    return query.where(and_(tuple_(runs.started_at, runs.num) < tuple_(*place)))


def cursor_of(item: RunItem) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode((item.row.started_at, item.number))).decode()
