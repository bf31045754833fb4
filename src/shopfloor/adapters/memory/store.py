"""The store in plain dicts and lists. No method waits for anything, so each is a transaction by itself."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import msgspec

from shopfloor.decoding import decode_json
from shopfloor.errors import InvalidParameter, ShopfloorError
from shopfloor.ports import (
    ANSWER_ID_PREFIX,
    Channel,
    ControlMessage,
    OpenRun,
    RunFilter,
    RunItem,
    RunPage,
    TimelineItem,
    ViewState,
    ViewUpdate,
)
from shopfloor.views import RunRow, Term, normalize_text, parse_query, run_id_prefix, snippet, split_words

_ListPlace = tuple[str, int]
_SearchPlace = tuple[int]


class _Kept(msgspec.Struct):
    """A run, as it is kept. `task` is the folded task; `words` are those of each piece, with blanks around them."""

    row: RunRow
    number: int
    state: bytes
    timeline: list[TimelineItem]
    archive: bytes | None
    pieces: dict[int, str]
    words: dict[int, str]
    task: str
    search_stopped_at: int | None


class _Search(msgspec.Struct, frozen=True):
    """A query: terms, or how a run's id begins."""

    terms: tuple[Term, ...]
    run_id: str | None

    def finds(self, kept: _Kept) -> bool:
        """Whether the run has all terms. A query without a term finds nothing."""
        by_id = self.run_id is not None and kept.row.id.startswith(self.run_id)
        return by_id or (bool(self.terms) and all(_has(kept, term) for term in self.terms))


class MemoryStore:
    def __init__(self) -> None:
        self.orders: dict[int, ControlMessage] = {}
        """What its queue keeps."""
        self._runs: dict[str, _Kept] = {}
        self._channels: dict[str, str | None] = {}
        self._pinned: set[str] = set()
        self._buried: set[str] = set()
        self._mark = 0
        self._last_number = 0
        self._last_id = 0

    # What faces read.

    async def list_runs(self, wanted: RunFilter, *, limit: int, offset: int = 0, cursor: str | None = None) -> RunPage:
        searched = None if wanted.search is None else _search(wanted.search)
        place = _search_place if searched is not None else _list_place
        fits = [kept for kept in self._runs.values() if _fits(kept, wanted, searched)]
        fits.sort(key=place, reverse=True)
        rest = fits[offset:]
        if cursor is not None:
            after = _read_cursor(cursor, _SearchPlace if searched is not None else _ListPlace)
            rest = [kept for kept in fits if place(kept) < after]
        shown = rest[:limit]
        return RunPage(
            # A result can be long, and no list shows it.
            items=[self._item(kept, msgspec.structs.replace(kept.row, result=None), searched) for kept in shown],
            total=len(fits),
            next=_write_cursor(place(shown[-1])) if shown and len(rest) > limit else None,
        )

    async def get_run(self, run_id: str) -> RunItem | None:
        return next(iter(await self.get_runs([run_id])), None)

    async def get_runs(self, run_ids: Sequence[str]) -> list[RunItem]:
        return [self._item(kept, kept.row) for run_id in run_ids if (kept := self._runs.get(run_id))]

    def _answers(self, row: RunRow) -> tuple[str, ...]:
        ids = [order.id for order in self.orders.values() if order.run_id == row.id and row.awaits]
        return tuple(one.removeprefix(ANSWER_ID_PREFIX) for one in ids if one.startswith(ANSWER_ID_PREFIX))

    async def timeline(self, run_id: str, *, limit: int, after: int = 0) -> list[TimelineItem]:
        kept = self._runs.get(run_id)
        return [item for item in kept.timeline if item.id > after][:limit] if kept else []

    async def archive(self, run_id: str) -> bytes | None:
        kept = self._runs.get(run_id)
        return kept.archive if kept else None

    async def channels(self) -> list[Channel]:
        return [Channel(id=channel_id, name=name) for channel_id, name in sorted(self._channels.items())]

    async def pin(self, run_id: str, *, pinned: bool) -> bool:
        if run_id not in self._runs:
            return False
        (self._pinned.add if pinned else self._pinned.discard)(run_id)
        return True

    # What keeps the views.

    async def folded(self, run_ids: Sequence[str]) -> dict[str, ViewState]:
        known = {run_id: self._runs[run_id] for run_id in run_ids if run_id in self._runs}
        return {
            run_id: ViewState(row=kept.row, state=kept.state) for run_id, kept in known.items() if kept.row.last_seq
        }

    async def open_runs(self) -> list[str]:
        return [run_id for run_id, kept in self._runs.items() if not kept.row.is_ended]

    async def count_open_in_tree(self, root_run_id: str) -> int:
        return sum(not kept.row.is_ended and kept.row.root_run_id == root_run_id for kept in self._runs.values())

    async def runs_needing_host(self) -> list[OpenRun]:
        rows = [kept.row for kept in self._runs.values()]
        return [OpenRun(row.id, row.host) for row in rows if not row.is_ended and row.last_seq and not row.outside]

    async def due_runs(self, now: str) -> list[str]:
        rows = [kept.row for kept in self._runs.values()]
        return [row.id for row in rows if row.wake_at is not None and row.wake_at <= now]

    async def apply(self, changes: Sequence[ViewUpdate], *, mark: int | None = None) -> None:
        for change in changes:
            self._apply(change)
        if mark is not None:
            self._mark = mark

    async def known_runs(self) -> set[str]:
        return set(self._runs)

    async def deleted_run_ids(self) -> set[str]:
        return set(self._buried)

    async def add_tombstone(self, run_id: str) -> None:
        self._buried.add(run_id)

    async def delete(self, run_id: str) -> None:
        self._runs.pop(run_id, None)
        self._pinned.discard(run_id)

    async def drop_archive(self, run_id: str) -> None:
        if kept := self._runs.get(run_id):
            kept.archive = None

    async def expired(self, before: str, *, since: str = "", limit: int) -> list[tuple[str, str]]:
        ends = [
            (kept.row.completed_at, kept.number, run_id)
            for run_id, kept in self._runs.items()
            if kept.row.completed_at is not None
            and since <= kept.row.completed_at < before
            and run_id not in self._pinned
        ]
        return [(run_id, ended) for ended, _, run_id in sorted(ends)[:limit]]

    async def truncate_views(self, run_id: str, last_seq: int) -> None:
        kept = self._runs.get(run_id)
        if kept is not None and kept.row.last_seq > last_seq:
            del self._runs[run_id]

    async def clear_views(self) -> None:
        self._runs.clear()
        self._mark = 0

    async def mark(self) -> int:
        return self._mark

    async def compact(self) -> None:
        """Nothing to do: Python gives the space back."""

    async def check(self) -> None:
        """Memory is sound."""

    def failure(self) -> ShopfloorError | None:
        return None

    async def partially_deleted_runs(self) -> list[str]:
        return [run_id for run_id in self._runs if run_id in self._buried]

    async def close(self) -> None:
        """Nothing to do, any number of times."""

    def _apply(self, change: ViewUpdate) -> None:
        row = change.row
        kept = self._runs.get(row.id)
        if row.id in self._buried or (kept and row.last_seq <= kept.row.last_seq):
            return
        if row.channel_id is not None:
            known = self._channels.get(row.channel_id)
            self._channels[row.channel_id] = known if row.channel_name is None else row.channel_name
        if kept is None:
            self._last_number += 1
            kept = _Kept(RunRow(), self._last_number, b"", [], None, {}, {}, "", None)
            self._runs[row.id] = kept
        for told in change.timeline:
            # Somebody else may have folded the beginning of this change already.
            if told.seq > kept.row.last_seq:
                self._last_id += 1
                kept.timeline.append(
                    TimelineItem(
                        id=self._last_id,
                        seq=told.seq,
                        event_type=told.event_type,
                        data=told.data,
                        created_at=told.created_at,
                    )
                )
        kept.row, kept.state = row, change.state
        kept.archive = change.archive if change.archive is not None else kept.archive
        kept.task = normalize_text(row.task)
        for piece in change.search:
            kept.pieces[piece.number] = piece.text
            kept.words[piece.number] = f" {' '.join(split_words(normalize_text(piece.text)))} "
        kept.search_stopped_at = change.search_stopped_at

    def _item(self, kept: _Kept, row: RunRow, searched: _Search | None = None) -> RunItem:
        return RunItem(
            row=row,
            number=kept.number,
            event_count=len(kept.timeline),
            has_transcript=kept.archive is not None,
            pinned=row.id in self._pinned,
            channel_name=self._channels.get(row.channel_id) if row.channel_id is not None else None,
            snippet=snippet(searched.terms, row.task, kept.pieces.values()) if searched else None,
            search_stopped_at=kept.search_stopped_at,
            answered=self._answers(row),
        )


def _fits(kept: _Kept, wanted: RunFilter, searched: _Search | None) -> bool:
    row = kept.row
    return (
        (wanted.agent_id is None or row.agent_id == wanted.agent_id)
        and (wanted.statuses is None or row.status in wanted.statuses)
        and (wanted.worker_type is None or row.worker_type == wanted.worker_type)
        and (wanted.channel_id is None or row.channel_id == wanted.channel_id)
        and (wanted.parent_run_id is None or row.parent_run_id == wanted.parent_run_id)
        and (wanted.roots is None or (row.parent_run_id is None) is wanted.roots)
        and (wanted.name is None or row.name == wanted.name)
        and (wanted.started_after is None or row.started_at > wanted.started_after)
        and (wanted.started_before is None or row.started_at < wanted.started_before)
        and (searched is None or searched.finds(kept))
    )


def _list_place(kept: _Kept) -> _ListPlace:
    return kept.row.started_at, kept.number


def _search_place(kept: _Kept) -> _SearchPlace:
    return (kept.number,)


def _write_cursor(place: _ListPlace | _SearchPlace) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(place)).decode()


def _read_cursor(cursor: str, shape: Any) -> Any:
    try:
        return decode_json(base64.b64decode(cursor, altchars=b"-_", validate=True), shape)
    except (ValueError, msgspec.DecodeError) as error:
        raise InvalidParameter(f"{cursor!r} is not a cursor", hint="take `next` of the page before") from error


def _search(query: str) -> _Search:
    return _Search(parse_query(query), run_id_prefix(query))


def _has(kept: _Kept, term: Term) -> bool:
    wanted = f" {' '.join(term.words)}" + ("" if term.is_prefix else " ")
    return term.literal in kept.task or (bool(term.words) and any(wanted in words for words in kept.words.values()))
