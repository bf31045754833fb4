"""From logs to rows: every log's events are folded into the views, in batches, and never at a run's cost."""

from __future__ import annotations

import gzip
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial

import anyio
import anyio.to_thread
import msgspec

from shopfloor.decoding import json_decoder
from shopfloor.engine.error_mapping import is_temporary
from shopfloor.errors import InvalidEvent
from shopfloor.limits import (
    ANNOUNCEMENT_BYTES,
    INGEST_BATCH_SECONDS,
    INGEST_CACHED_LOG_BYTES,
    INGEST_EVENTS,
    INGEST_INTERVAL_SECONDS,
    INGEST_POLL_SECONDS,
    INGEST_RETRY_SECONDS,
    INGEST_RUNS,
    INGEST_TURN_SECONDS,
)
from shopfloor.log import Entry, Event, RunCompleted, decode
from shopfloor.ports import Bus, LogFeed, LogUpdate, RunDeleted, RunItem, RunsSubscription, Store, ViewState, ViewUpdate
from shopfloor.views import (
    Archive,
    ArchiveEntry,
    RunRow,
    SearchState,
    Timeline,
    archive,
    row_fold,
    search_fold,
    timeline_fold,
)

_encode = msgspec.json.Encoder().encode
_OUTCOME = RunCompleted.event_type


class _FoldState(msgspec.Struct, frozen=True):
    """The states of the folds that a row does not hold itself."""

    timeline: Timeline
    search: SearchState


_NEW = _FoldState(Timeline(), SearchState())
_decode_state = json_decoder(_FoldState).decode


class _Followed:
    """A log that has not ended, and how far its views are."""

    def __init__(self, row: RunRow, state: _FoldState = _NEW) -> None:
        self.row = row
        self.state = state
        self.seq = row.last_seq
        """Of the last event that was understood. Lines after it are read again: a repair may take them away."""
        self.short: list[Entry] | None = None if self.seq else []
        """All of the log so far, as long as it is short."""

    def fold(self, entries: list[Entry], archived: Callable[[], bytes | None]) -> ViewUpdate | None:
        """What these entries change. `archived` gives the archive of a long log that has ended."""
        events = list(_events(entries))
        if not events:
            return None
        short = None if self.short is None else [*self.short, *entries]
        row = row_fold(self.row, events)
        packed = None
        if row.is_ended:
            packed = archived() if short is None else pack(archive(_events(short)))
        self.seq, self.row, waits = events[-1].seq, row, self.row.waits
        is_short = short is not None and sum(len(entry.raw) for entry in short) <= INGEST_CACHED_LOG_BYTES
        self.short = short if is_short and not row.is_ended else None
        timeline, told = timeline_fold(self.state.timeline, events, waits)
        search, pieces = search_fold(self.state.search, row, events)
        self.state = _FoldState(timeline, search)
        return ViewUpdate(
            row=row,
            state=b"" if row.is_ended else _encode(self.state),
            timeline=told,
            archive=packed,
            search=pieces,
            search_stopped_at=search.stopped_at,
        )


def pack(entries: list[ArchiveEntry]) -> bytes | None:
    """Compress an archive; None where it has no entries."""
    # A fixed time, so that the same log gives the same bytes.
    return gzip.compress(_encode(entries), 6, mtime=0) if entries else None


def _archive_in(archives: Mapping[str, bytes | None], run_id: str) -> bytes | None:
    if run_id not in archives:
        raise _Unreadable
    return archives[run_id]


class _Unreadable(Exception):
    """A log is gone since it was looked at, or cannot be read just now."""


class Ingest:
    """Keeps the views of every log up to date, whoever writes the logs."""

    def __init__(
        self,
        feed: LogFeed,
        store: Store,
        bus: Bus,
        *,
        forget_at: int = ANNOUNCEMENT_BYTES,
        poll_seconds: float = INGEST_POLL_SECONDS,
    ) -> None:
        self._feed = feed
        self._store = store
        self._bus = bus
        self._forget_at = forget_at
        """From which mark on the feed is told to forget which logs were opened."""
        self._look_seconds = poll_seconds
        """How often all logs that have not ended are looked at."""
        self._followed: dict[str, _Followed] = {}
        self._mark = 0
        self._forgotten_at = 0
        """The mark when the feed forgot last."""
        self._is_behind = False
        """Whether logs had more events than there was time for."""
        self._gone: set[str] = set()
        """Runs whose deletion was reported lately."""
        self._listeners: list[_Listener] = []

    async def catch_up(self, *, everything: bool = False) -> int:
        """Takes up all that the logs hold now; gives the number of events. `everything` looks at every log."""
        await self._begin(everything=everything)
        events = 0
        while taken := await self.step():
            events += taken
        return events

    async def run(self) -> None:
        """Goes on until it is cancelled. A store that cannot be written is waited for: the logs have it all."""
        with self._bus.subscribe_all() as live:
            while True:
                try:
                    await self._begin(everything=True)
                    while True:
                        if not await self.step():
                            await self._forget_opened()
                        await self._take_published_for(live, 0.0 if self._is_behind else self._look_seconds)
                except Exception as error:
                    if not is_temporary(error):
                        raise
                    await anyio.sleep(INGEST_RETRY_SECONDS)

    async def _take_published_for(self, live: RunsSubscription, seconds: float) -> None:
        """Take up what is published, once at least, until it is time to look at all logs that have not ended."""
        until = anyio.current_time() + seconds
        while True:
            await live.wait(max(until - anyio.current_time(), 0.0))
            # What comes together shares a transaction, and the first does not wait for long.
            await anyio.sleep(INGEST_BATCH_SECONDS)
            if published := live.drain():
                await self._take_published(published)
                await anyio.sleep(INGEST_INTERVAL_SECONDS)
            if anyio.current_time() >= until:
                return

    async def _forget_opened(self) -> None:
        """Have the feed forget which logs were opened when they have become many."""
        if self._mark - self._forgotten_at < self._forget_at:
            return
        # First in the store: should this process end in between, all of them are looked at once more.
        await self._store.apply([], mark=0)
        mark = await self._feed.forget_opened_logs(self._mark)
        if mark == self._mark:
            await self._store.apply([], mark=mark)
        self._mark = self._forgotten_at = mark

    async def _begin(self, *, everything: bool) -> None:
        # From what the store has: where this was cancelled before, it may have folded events that were not stored.
        followed = [*self._followed]
        self._followed.clear()
        self._mark = await self._store.mark()
        await self._take_up([*await self._store.open_runs(), *followed])
        # A store that has taken up nothing is new: the feed tells only of the logs that were opened last.
        if everything or not self._mark:
            known = await self._store.known_runs() | await self._store.deleted_run_ids()
            # Rows are numbered in the order in which runs began.
            for run_id in await self._feed.run_ids(known):
                self._follow(run_id, RunRow(id=run_id))

    async def step(self) -> int:
        """Look at the logs that were opened, and at all that have not ended. Gives the number of events."""
        opened_logs, mark = await self._feed.opened_logs(self._mark)
        await self._take_up(opened_logs)
        taken = await self._look([*self._followed], named=frozenset(opened_logs))
        if mark != self._mark:
            await self._store.apply([], mark=mark)
            self._mark = mark
        return taken

    async def _take_published(self, published: Mapping[str, list[Entry]]) -> int:
        """Take up published events that continue a row; look at the logs of the others."""
        # Of a run that begins here nothing is stored yet.
        for run_id, entries in published.items():
            if entries and entries[0].seq == 1:
                self._follow(run_id, RunRow(id=run_id))
        await self._take_up([*published])
        found: dict[str, list[Entry]] = {}
        behind: list[str] = []
        for run_id, entries in published.items():
            if (followed := self._followed.get(run_id)) is None:
                continue
            new = [entry for entry in entries if entry.seq > followed.seq]
            if new and new[0].seq == followed.seq + 1:
                found[run_id] = new
            elif new or not entries:
                behind.append(run_id)
        await self._keep(await self._fold(found))
        return sum(map(len, found.values())) + await self._look(behind, named=frozenset(behind))

    async def _look(self, run_ids: Sequence[str], *, named: Collection[str]) -> int:
        """Take up what the logs of these runs have; give the number of events. Those `named` may be deleted."""
        changes, events, left = await self._batch(run_ids, named)
        taken = events
        # A log that is written all the time would hold back the rows of every other run.
        until = anyio.current_time() + INGEST_TURN_SECONDS
        while left and anyio.current_time() < until:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._keep, changes)
                # There is more: it is read and folded while this is stored.
                changes, events, left = await self._batch(left, named)
            taken += events
        await self._keep(changes)
        self._is_behind = bool(left)
        return taken

    async def _batch(self, run_ids: Sequence[str], named: Collection[str]) -> tuple[list[ViewUpdate], int, list[str]]:
        """About as much as goes into one transaction, the number of events, and the runs that are left."""
        places = {run_id: one.seq for run_id in run_ids if (one := self._followed.get(run_id)) is not None}
        updates = await self._feed.updates(places, limit=INGEST_EVENTS) if places else {}
        found = {run_id: one.entries for run_id, one in updates.items() if one.entries}
        again = {
            run_id for run_id, one in updates.items() if not one.entries and await self._is_cut(run_id, one, named)
        }
        changes = await self._fold(found)
        # A log of which nothing was understood, or whose whole could not be read, is left to the next look.
        done = {run_id for run_id in found if run_id not in self._followed}
        again |= {run_id for run_id in found.keys() - done if self._followed[run_id].seq > places[run_id]}
        events = sum(len(entries) for run_id, entries in found.items() if run_id in done or run_id in again)
        # With fewer than were asked for, all logs were looked at that can be read.
        more = places.keys() - updates.keys() if events >= INGEST_EVENTS else set[str]()
        return changes, events, [run_id for run_id in places if run_id in again or run_id in more]

    async def _is_cut(self, run_id: str, updates: LogUpdate, named: Collection[str]) -> bool:
        """See to a log that has no more events; tell whether it has lost its end, so that its views are made anew."""
        followed = self._followed[run_id]
        if updates.reset is not None:
            # A power cut, or a disk that took no more, may have taken events that the views have.
            await self._store.truncate_views(run_id, updates.reset.last)
            self._followed[run_id] = _Followed(RunRow(id=run_id))
            return True
        if updates.is_missing:
            if not followed.seq:
                del self._followed[run_id]
            if run_id in named:
                await self._tell_gone(run_id)
        elif followed.row.outside and not updates.has_writer:
            # It waits, and no process writes it. Whoever opens it announces that.
            del self._followed[run_id]
        return False

    async def _fold(self, found: Mapping[str, list[Entry]]) -> list[ViewUpdate]:
        archives: dict[str, bytes | None] = {}
        for run_id, entries in found.items():
            if self._followed[run_id].short is None and any(entry.type == _OUTCOME for entry in entries):
                with suppress(_Unreadable):
                    archives[run_id] = await self._archive_of(run_id, entries[-1].seq)
        return await anyio.to_thread.run_sync(self._fold_all, found, archives) if found else []

    def _fold_all(self, found: Mapping[str, list[Entry]], archives: Mapping[str, bytes | None]) -> list[ViewUpdate]:
        changes: list[ViewUpdate] = []
        for run_id, entries in found.items():
            followed = self._followed[run_id]
            # A long log that cannot be read as a whole just now is left to the next look.
            with suppress(_Unreadable):
                if change := followed.fold(entries, partial(_archive_in, archives, run_id)):
                    changes.append(change)
            if followed.row.is_ended:
                del self._followed[run_id]
        return changes

    async def _archive_of(self, run_id: str, last: int) -> bytes | None:
        """The archive of a long log, up to the event `last`. It is read in parts: it may not fit into memory."""
        made, seq = Archive(), 0
        while seq < last:
            updates = (await self._feed.updates({run_id: seq}, limit=INGEST_EVENTS)).get(run_id)
            if updates is None or not updates.entries:
                raise _Unreadable
            await anyio.to_thread.run_sync(lambda entries: made.feed(_events(entries)), updates.entries)
            seq = updates.entries[-1].seq
        return await anyio.to_thread.run_sync(lambda: pack(made.finish()))

    async def _keep(self, changes: list[ViewUpdate]) -> None:
        if changes:
            await self._store.apply(changes)
            await self.publish_rows(*(change.row.id for change in changes))

    def _follow(self, run_id: str, row: RunRow, state: _FoldState = _NEW) -> None:
        if run_id not in self._followed:
            self._followed[run_id] = _Followed(row, state)

    async def _take_up(self, run_ids: Sequence[str]) -> None:
        """Follows the logs of runs from where their views are, those that have not ended."""
        new = [one for one in run_ids if one not in self._followed]
        for first in range(0, len(new), INGEST_RUNS):
            some = new[first : first + INGEST_RUNS]
            known = await self._store.folded(some)
            for run_id in some:
                folded = known.get(run_id)
                if folded is None:
                    self._follow(run_id, RunRow(id=run_id))
                elif not folded.row.is_ended:
                    await self._go_on(folded)

    async def _go_on(self, folded: ViewState) -> None:
        row = folded.row
        try:
            self._follow(row.id, row, _decode_state(folded.state) if folded.state else _NEW)
        except msgspec.MsgspecError:
            # An older version kept this state, without the fold of search: the views are made anew.
            await self._store.truncate_views(row.id, 0)
            self._follow(row.id, RunRow(id=row.id))

    # For whoever shows lists.

    @asynccontextmanager
    async def subscribe(self) -> AsyncGenerator[AsyncIterator[list[RunItem | RunDeleted]]]:
        listener = _Listener()
        self._listeners.append(listener)
        try:
            yield listener.items()
        finally:
            self._listeners.remove(listener)

    async def publish_rows(self, *run_ids: str) -> None:
        # Only for those who listen: a row is not read back otherwise, and all that were written are read at once.
        for item in await self._store.get_runs(run_ids) if self._listeners else ():
            self._put(item.row.id, item)

    async def _tell_gone(self, run_id: str) -> None:
        """Report once that a run is deleted: it has neither a log nor a row. The bus and the feed both name it."""
        if self._listeners and run_id not in self._gone and await self._store.get_run(run_id) is None:
            if len(self._gone) >= INGEST_RUNS:
                self._gone.clear()
            self._gone.add(run_id)
            self._put(run_id, RunDeleted(run_id))

    def _put(self, run_id: str, updates: RunItem | RunDeleted) -> None:
        for listener in self._listeners:
            listener.put(run_id, updates)


class _Listener:
    """Changes that one subscriber has not seen yet: of each run the newest state only, so that they stay few."""

    def __init__(self) -> None:
        self._pending: dict[str, RunItem | RunDeleted] = {}
        self._news = anyio.Event()

    def put(self, run_id: str, updates: RunItem | RunDeleted) -> None:
        self._pending[run_id] = updates
        self._news.set()

    async def items(self) -> AsyncIterator[list[RunItem | RunDeleted]]:
        while True:
            await self._news.wait()
            self._news = anyio.Event()
            items, self._pending = list(self._pending.values()), {}
            yield items


def _events(entries: Iterable[Entry]) -> Iterable[Event]:
    for entry in entries:
        try:
            yield decode(entry.raw, entry.type)
        except InvalidEvent:
            # No envelope to be read; the file has it, and `verify` names it.
            continue
