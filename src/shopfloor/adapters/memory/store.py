"""The store in plain dicts and lists. No method awaits anything, so each is a transaction."""

from __future__ import annotations

import base64
import operator
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Literal, get_args

import msgspec

from shopfloor.adapters.limits import FLEET_EVENTS_KEPT
from shopfloor.adapters.memory.fleet_events import FleetEventList
from shopfloor.adapters.memory.hooks import MemoryHooks
from shopfloor.adapters.memory.stats import compute_stats
from shopfloor.decoding import decode_json
from shopfloor.errors import InvalidParameter, ShopfloorError
from shopfloor.limits import CONTINUED_RUNS
from shopfloor.ports import (
    ANSWER_ID_PREFIX,
    Channel,
    ControlMessage,
    LaterRun,
    OpenRun,
    ProviderRecord,
    RunFilter,
    RunItem,
    RunOrder,
    RunPage,
    StatsDays,
    TimelineItem,
    ViewState,
    ViewUpdate,
    WaitingRuns,
    observe,
)
from shopfloor.views import (
    FAILURE,
    RunRow,
    RunState,
    StatChange,
    StoredStats,
    Term,
    normalize_text,
    parse_query,
    run_id_prefix,
    snippet,
    split_words,
)


class _StoredRun(msgspec.Struct):
    """The views of a run. `task` is normalized; `words` are the words of each search chunk, with spaces around them."""

    row: RunRow
    number: int
    state: bytes
    timeline: list[TimelineItem]
    archive: bytes | None
    chunks: dict[int, str]
    words: dict[int, str]
    task: str
    search_stopped_at: int | None
    stats: list[tuple[str, bool, StatChange]]
    """With the name of the worker, and whether the run is a root."""


class _Search(msgspec.Struct, frozen=True):
    """A query: its terms, or a prefix of a run id."""

    terms: tuple[Term, ...]
    run_id: str | None

    def matches(self, run: _StoredRun) -> bool:
        """Return whether the run has all terms. A query without terms matches nothing."""
        by_id = self.run_id is not None and run.row.id.startswith(self.run_id)
        return by_id or (bool(self.terms) and all(_has_term(run, term) for term in self.terms))


class MemoryStore:
    """Implements `Store`."""

    def __init__(self, *, fleet_events_kept: int = FLEET_EVENTS_KEPT) -> None:
        self.fleet_events = FleetEventList(fleet_events_kept)
        self.hooks = MemoryHooks()
        self.providers: dict[str, ProviderRecord] = {}
        """What is known of each provider."""
        self.control_messages: dict[int, ControlMessage] = {}
        """The control messages of the queue, which owns them."""
        self._runs: dict[str, _StoredRun] = {}
        self._channels: dict[str, str | None] = {}
        self._pinned: set[str] = set()
        self._dismissed: set[str] = set()
        self._tombstones: set[str] = set()
        self._feed_position = 0
        self._fleet_positions: dict[str, int] = {}
        """How far the fleet events of runs are stored whose views were discarded."""
        self._last_number = 0
        self._last_id = 0

    # Reading, for the APIs.

    async def list_runs(
        self,
        wanted: RunFilter,
        *,
        limit: int,
        offset: int = 0,
        cursor: str | None = None,
        order: RunOrder = "newest",
    ) -> RunPage:
        search = None if wanted.search is None else _parse_search(wanted.search)
        sort_key, shape = _sort_key(order, is_search=search is not None)
        matches = self._matching(wanted)
        matches.sort(key=sort_key, reverse=order != "oldest")
        candidates = matches[offset:]
        if cursor is not None:
            after = _read_cursor(cursor, shape)
            is_after = operator.gt if order == "oldest" else operator.lt
            candidates = [run for run in matches if is_after(sort_key(run), after)]
        page = candidates[:limit]
        return RunPage(
            # Lists do not show results, which can be long.
            items=[self._item(run, msgspec.structs.replace(run.row, result=None), search) for run in page],
            total=len(matches),
            next=_write_cursor(sort_key(page[-1])) if page and len(candidates) > limit else None,
        )

    def _matching(self, wanted: RunFilter) -> list[_StoredRun]:
        search = None if wanted.search is None else _parse_search(wanted.search)
        return [run for run in self._runs.values() if _matches_filter(run, wanted, search)]

    async def waiting(self, *, failed_after: str, limit: int) -> WaitingRuns:
        runs = [*self._runs.values()]
        pending = sorted(
            (run for run in runs if self._unanswered(run.row)),
            key=lambda run: (run.row.waiting_since or "", run.number),
        )
        failed = sorted(
            (run for run in runs if self._needs_person(run.row, failed_after)),
            key=lambda run: (run.row.needs_person_since or "", run.number),
        )
        return WaitingRuns(
            pending=[self._item(run, msgspec.structs.replace(run.row, result=None)) for run in pending[:limit]],
            failed=[self._item(run, msgspec.structs.replace(run.row, result=None)) for run in failed[:limit]],
            calls=sum(len(self._unanswered(run.row)) for run in pending),
            failures=len(failed),
        )

    def _unanswered(self, row: RunRow) -> list[str]:
        """Return since when each of the calls waits that a person or a client has not answered."""
        if row.waiting_since is None:
            return []
        answered = self._answered_call_ids(row)
        return [row.waits.since[call] for call in row.waits.person_calls if call not in answered]

    async def open_roots(self, wanted: RunFilter) -> list[OpenRun]:
        waiting = {row.root_run_id or row.id for run in self._runs.values() if self._unanswered(row := run.row)}
        rows = [
            run.row
            for run in sorted(self._matching(wanted), key=_sort_key("oldest", is_search=False)[0])
            if run.row.status in ("running", "waiting") and run.row.parent_run_id is None
        ]
        return [OpenRun(row.id, row.host) for row in rows if (row.root_run_id or row.id) not in waiting]

    async def later_runs(self, run_id: str) -> list[LaterRun]:
        rows = [run.row for run in sorted(self._runs.values(), key=lambda run: -run.number)]
        found = [(row.id, row.based_on) for row in rows if row.based_on is not None and row.based_on.run_id == run_id]
        return [LaterRun(later, based_on.kind) for later, based_on in found[:CONTINUED_RUNS]]

    async def count_by_status(self, wanted: RunFilter) -> dict[str, int]:
        matches = self._matching(msgspec.structs.replace(wanted, statuses=None))
        return {status: sum(run.row.status == status for run in matches) for status in get_args(RunState)}

    async def stats(self, wanted: RunFilter, days: StatsDays) -> StoredStats:
        matches, after = self._matching(wanted), days.needs_person_after
        failed = [run.row for run in matches if after is not None and self._needs_person(run.row, after)]
        waits = [at for run in matches for at in self._unanswered(run.row)]
        waits += [row.needs_person_since for row in failed if row.needs_person_since is not None]
        return compute_stats([(run.row, run.stats) for run in matches], wanted, days, waits)

    def ancestors(self, run_id: str) -> tuple[str, ...]:
        """Return the runs above a run, the parent first."""
        found: list[str] = []
        while (run := self._runs.get(run_id)) and run.row.parent_run_id and run.row.parent_run_id not in found:
            run_id = run.row.parent_run_id
            found.append(run_id)
        return tuple(found)

    async def get_run(self, run_id: str) -> RunItem | None:
        return next(iter(await self.get_runs([run_id])), None)

    async def get_runs(self, run_ids: Sequence[str]) -> list[RunItem]:
        return [self._item(run, run.row) for run_id in run_ids if (run := self._runs.get(run_id))]

    def _answered_call_ids(self, row: RunRow) -> tuple[str, ...]:
        ids = [message.id for message in self.control_messages.values() if message.run_id == row.id and row.awaits]
        return tuple(
            message_id.removeprefix(ANSWER_ID_PREFIX) for message_id in ids if message_id.startswith(ANSWER_ID_PREFIX)
        )

    async def timeline(self, run_id: str, *, limit: int, after: int = 0) -> list[TimelineItem]:
        run = self._runs.get(run_id)
        return [item for item in run.timeline if item.id > after][:limit] if run else []

    async def archive(self, run_id: str) -> bytes | None:
        run = self._runs.get(run_id)
        return run.archive if run else None

    async def channels(self) -> list[Channel]:
        return [Channel(id=channel_id, name=name) for channel_id, name in sorted(self._channels.items())]

    async def pin(self, run_id: str, *, pinned: bool) -> bool:
        if run_id not in self._runs:
            return False
        (self._pinned.add if pinned else self._pinned.discard)(run_id)
        return True

    async def dismiss(self, run_id: str) -> bool:
        if run_id not in self._runs:
            return False
        self._dismissed.add(run_id)
        return True

    def _needs_person(self, row: RunRow, after: str) -> bool:
        """Return whether a run failed after this time and waits for a person."""
        return (
            row.needs_person_since is not None
            and row.needs_person_since > after
            and row.id not in self._dismissed
            and not any(run.row.based_on and run.row.based_on.run_id == row.id for run in self._runs.values())
        )

    # Maintenance of the views.

    async def view_states(self, run_ids: Sequence[str]) -> dict[str, ViewState]:
        known = {run_id: self._runs[run_id] for run_id in run_ids if run_id in self._runs}
        return {run_id: ViewState(row=run.row, state=run.state) for run_id, run in known.items() if run.row.last_seq}

    async def open_runs(self) -> list[str]:
        return [run_id for run_id, run in self._runs.items() if not run.row.is_ended]

    async def count_open_in_tree(self, root_run_id: str) -> int:
        return sum(not run.row.is_ended and run.row.root_run_id == root_run_id for run in self._runs.values())

    async def runs_needing_host(self) -> list[OpenRun]:
        rows = [run.row for run in self._runs.values()]
        return [OpenRun(row.id, row.host) for row in rows if not row.is_ended and row.last_seq and not row.outside]

    async def start_waits(self, since: str, *, limit: int) -> list[float]:
        rows = [run.row for run in self._runs.values() if run.row.status != "queued" and run.row.started_at > since]
        newest = sorted((row for row in rows if row.queued_at), key=lambda row: row.started_at, reverse=True)
        return [_seconds_between(row.queued_at or "", row.started_at) for row in newest[:limit]]

    async def due_runs(self, now: str) -> list[str]:
        rows = [run.row for run in self._runs.values()]
        return [row.id for row in rows if row.wake_at is not None and row.wake_at <= now]

    async def overdue_parents(self) -> list[str]:
        def has_ended(run_id: str) -> bool:
            return run_id in self._runs and self._runs[run_id].row.is_ended

        rows = [run.row for run in self._runs.values() if run.row.status == "waiting"]
        return [row.id for row in rows if any(has_ended(child) for child in row.waits.runs.values())]

    async def recent_durations(self, name: str, *, limit: int) -> list[int]:
        runs = sorted(self._runs.values(), key=_sort_key("newest", is_search=False)[0], reverse=True)
        rows = [run.row for run in runs if run.row.name == name and run.row.status == "completed"]
        return [row.duration_ms for row in rows if row.duration_ms is not None][:limit]

    async def apply(self, changes: Sequence[ViewUpdate], *, feed_position: int | None = None) -> None:
        for change in changes:
            self._apply(change)
        if feed_position is not None:
            self._feed_position = feed_position

    async def known_runs(self) -> set[str]:
        return set(self._runs)

    async def deleted_run_ids(self) -> set[str]:
        return set(self._tombstones)

    async def add_tombstone(self, run_id: str) -> None:
        self._tombstones.add(run_id)

    async def delete(self, run_id: str) -> None:
        self._runs.pop(run_id, None)
        self._fleet_positions.pop(run_id, None)
        self.fleet_events.delete_run(run_id)
        self.hooks.delete_run(run_id)
        self._pinned.discard(run_id)
        self._dismissed.discard(run_id)

    async def drop_archive(self, run_id: str) -> None:
        if run := self._runs.get(run_id):
            run.archive = None

    async def expired(self, before: str, *, since: str = "", limit: int) -> list[tuple[str, str]]:
        ends = [
            (run.row.completed_at, run.number, run_id)
            for run_id, run in self._runs.items()
            if run.row.completed_at is not None
            and since <= run.row.completed_at < before
            and run_id not in self._pinned
        ]
        return [(run_id, ended) for ended, _, run_id in sorted(ends)[:limit]]

    async def truncate_views(self, run_id: str, last_seq: int) -> None:
        run = self._runs.get(run_id)
        if run is not None and run.row.last_seq > last_seq:
            await self.discard_views(run_id)
        if self._fleet_positions.get(run_id, 0) > last_seq:
            self._fleet_positions[run_id] = last_seq

    async def discard_views(self, run_id: str) -> None:
        if run := self._runs.pop(run_id, None):
            self._fleet_positions[run_id] = max(self._fleet_positions.get(run_id, 0), run.row.last_seq)

    async def clear_views(self) -> None:
        for run_id in [*self._runs]:
            await self.discard_views(run_id)
        self._feed_position = 0

    async def feed_position(self) -> int:
        return self._feed_position

    async def compact(self) -> None:
        """Do nothing: Python frees the memory."""

    async def check(self) -> None:
        """Do nothing: memory cannot be damaged."""

    def failure(self) -> ShopfloorError | None:
        return None

    async def partially_deleted_runs(self) -> list[str]:
        return [run_id for run_id in self._runs if run_id in self._tombstones]

    async def close(self) -> None:
        """Do nothing. Calling twice is fine."""

    def _apply(self, change: ViewUpdate) -> None:
        row = change.row
        run = self._runs.get(row.id)
        if row.id in self._tombstones or (run and row.last_seq <= run.row.last_seq):
            return
        if row.channel_id is not None:
            known = self._channels.get(row.channel_id)
            self._channels[row.channel_id] = known if row.channel_name is None else row.channel_name
        if run is None:
            self._last_number += 1
            run = _StoredRun(RunRow(), self._last_number, b"", [], None, {}, {}, "", None, [])
            self._runs[row.id] = run
        for item in change.timeline:
            # Another process may already have applied the start of this change.
            if item.seq > run.row.last_seq:
                self._last_id += 1
                run.timeline.append(
                    TimelineItem(
                        id=self._last_id,
                        seq=item.seq,
                        event_type=item.event_type,
                        data=item.data,
                        created_at=item.created_at,
                    )
                )
        is_root = row.parent_run_id is None
        run.stats += [(row.name, is_root, stat) for stat in change.stats if stat.seq > run.row.last_seq]
        stored_seq = max(run.row.last_seq, self._fleet_positions.get(row.id, 0))
        self.fleet_events.append([event for event in change.fleet_events if event.seq > stored_seq])
        self.hooks.insert([item for item in change.notifications if item.seq > stored_seq])
        self.providers.update(observe(self.providers, change.observations))
        run.row, run.state = row, change.state
        run.archive = change.archive if change.archive is not None else run.archive
        run.task = normalize_text(row.task)
        for chunk in change.search:
            run.chunks[chunk.number] = chunk.text
            run.words[chunk.number] = f" {' '.join(split_words(normalize_text(chunk.text)))} "
        run.search_stopped_at = change.search_stopped_at

    def _item(self, run: _StoredRun, row: RunRow, search: _Search | None = None) -> RunItem:
        return RunItem(
            row=row,
            number=run.number,
            event_count=len(run.timeline),
            has_transcript=run.archive is not None,
            pinned=row.id in self._pinned,
            channel_name=self._channels.get(row.channel_id) if row.channel_id is not None else None,
            snippet=snippet(search.terms, row.task, run.chunks.values()) if search else None,
            search_stopped_at=run.search_stopped_at,
            answered=self._answered_call_ids(row),
        )


def _matches_filter(run: _StoredRun, wanted: RunFilter, search: _Search | None) -> bool:
    row = run.row
    return (
        (wanted.agent_id is None or row.agent_id == wanted.agent_id)
        and (wanted.statuses is None or row.status in wanted.statuses)
        and (wanted.worker_type is None or row.worker_type == wanted.worker_type)
        and (wanted.channel_id is None or row.channel_id == wanted.channel_id)
        and (wanted.parent_run_id is None or row.parent_run_id == wanted.parent_run_id)
        and (wanted.roots is None or (row.parent_run_id is None) is wanted.roots)
        and (wanted.name is None or row.name == wanted.name)
        and (wanted.id_prefix is None or row.id.startswith(wanted.id_prefix))
        and (wanted.started_after is None or row.started_at > wanted.started_after)
        and (wanted.started_before is None or row.started_at < wanted.started_before)
        and (wanted.ended_after is None or (row.completed_at or "") > wanted.ended_after)
        and (wanted.ended_before is None or (row.completed_at is not None and row.completed_at < wanted.ended_before))
        and (wanted.model is None or row.model == wanted.model)
        and (wanted.provider is None or row.provider == wanted.provider)
        and (wanted.error_code is None or row.error_code == wanted.error_code)
        and (wanted.open_on_host is None or (row.host == wanted.open_on_host and not row.is_ended))
        and (wanted.error_group is None or any(_is_failure(stat, wanted.error_group) for _, _, stat in run.stats))
        and _is_between(row.spending.tree.cost_usd, wanted.min_cost_usd, wanted.max_cost_usd)
        and _is_between(row.duration_ms, wanted.min_duration_ms, wanted.max_duration_ms)
        and (search is None or search.matches(run))
    )


def _is_failure(change: StatChange, group: str) -> bool:
    return change.metric == FAILURE and change.detail == group


def _is_between(value: float | None, lowest: float | None, highest: float | None) -> bool:
    """Return whether a value is within the bounds. An unknown value is only without bounds."""
    if value is None:
        return lowest is None and highest is None
    return (lowest is None or value >= lowest) and (highest is None or value <= highest)


def _sort_key(order: RunOrder, *, is_search: bool) -> tuple[Callable[[_StoredRun], Any], Any]:
    """Return the function for the key of a run in this order, and the type of the key."""
    match order:
        case "newest" if is_search:
            return lambda run: (run.number,), tuple[int]
        case "newest":
            return lambda run: (run.row.started_at, run.number), tuple[str, int]
        case "oldest":
            return lambda run: (order, run.row.started_at, run.number), tuple[Literal["oldest"], str, int]
        case "cost":
            return lambda run: (order, _or_unknown(run.row.spending.tree.cost_usd), run.number), _COST_KEY
        case "duration":
            return lambda run: (order, _or_unknown(run.row.duration_ms), run.number), _DURATION_KEY


_COST_KEY = tuple[Literal["cost"], float, int]
_DURATION_KEY = tuple[Literal["duration"], float, int]


def _or_unknown(value: float | None) -> float:
    return -1 if value is None else value


def _write_cursor(sort_key: Any) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(sort_key)).decode()


def _read_cursor(cursor: str, shape: Any) -> Any:
    try:
        return decode_json(base64.b64decode(cursor, altchars=b"-_", validate=True), shape)
    except (ValueError, msgspec.DecodeError) as error:
        raise InvalidParameter(
            f"{cursor!r} is not a cursor of this list", hint="use `next` of the previous page, or omit the cursor"
        ) from error


def _parse_search(query: str) -> _Search:
    return _Search(parse_query(query), run_id_prefix(query))


def _has_term(run: _StoredRun, term: Term) -> bool:
    wanted = f" {' '.join(term.words)}" + ("" if term.is_prefix else " ")
    return term.literal in run.task or (bool(term.words) and any(wanted in words for words in run.words.values()))


def _seconds_between(start: str, end: str) -> float:
    seconds = (datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds()
    return round(max(0.0, seconds), 3)
