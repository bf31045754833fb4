"""Ingest: folds the events of every log into the views of the store, in batches, without slowing down runs."""

from __future__ import annotations

import gzip
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from itertools import chain

import anyio
import anyio.to_thread
import msgspec

from shopfloor.decoding import json_decoder
from shopfloor.engine.error_mapping import is_temporary
from shopfloor.engine.replay_state import AGENT
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
    FleetEvent,
    FleetEventState,
    ProviderObservation,
    RunRow,
    SearchState,
    StatsState,
    Timeline,
    archive,
    fleet_event_step,
    is_copied,
    notifications_of,
    provider_observations,
    row_fold,
    search_fold,
    stats_fold,
    timeline_fold,
)

_encode = msgspec.json.Encoder().encode
_OUTCOME = RunCompleted.event_type


class _FoldState(msgspec.Struct, frozen=True):
    """The states of the folds that are not part of the row."""

    timeline: Timeline
    search: SearchState
    fleet: FleetEventState
    stats: StatsState


_NEW = _FoldState(Timeline(), SearchState(), FleetEventState(), StatsState())
_decode_state = json_decoder(_FoldState).decode


class _FollowedLog:
    """A log that has not ended, and the state of its views."""

    def __init__(self, row: RunRow, state: _FoldState = _NEW) -> None:
        self.row = row
        self.state = state
        self.seq = row.last_seq
        """The `seq` of the last event that could be decoded. Later lines are read again: a repair may remove them."""
        self.short: list[Entry] | None = None if self.seq else []
        """All entries so far, as long as the log is short; else None."""

    def fold(self, entries: list[Entry], archived: Callable[[], bytes | None]) -> ViewUpdate | None:
        """Fold entries into the views and return the update. `archived` returns the archive of a long, ended log."""
        events = list(_events(entries))
        if not events:
            return None
        short = None if self.short is None else [*self.short, *entries]
        row = row_fold(self.row, events)
        packed = None
        if row.is_ended:
            # The new events are decoded already; most runs are short enough to have no others.
            packed = archived() if self.short is None else pack(archive(chain(_events(self.short), events)))
        self.seq, self.row, waits = events[-1].seq, row, self.row.waits
        is_short = short is not None and sum(len(entry.raw) for entry in short) <= INGEST_CACHED_LOG_BYTES
        self.short = short if is_short and not row.is_ended else None
        timeline, timeline_rows = timeline_fold(self.state.timeline, events, waits)
        search, search_chunks = search_fold(self.state.search, row, events)
        fleet, fleet_events, observations, copies = _fleet_fold(self.state.fleet, events, row)
        stats, stat_changes = stats_fold(self.state.stats, events)
        self.state = _FoldState(timeline, search, fleet, stats)
        return ViewUpdate(
            row=row,
            state=b"" if row.is_ended else _encode(self.state),
            timeline=timeline_rows,
            archive=packed,
            search=search_chunks,
            search_stopped_at=search.stopped_at,
            fleet_events=fleet_events,
            notifications=notifications_of(row, [event for event in events if event.seq not in copies]),
            stats=[change for change in stat_changes if change.seq not in copies],
            observations=observations,
        )


def _fleet_fold(
    state: FleetEventState, events: list[Event], row: RunRow
) -> tuple[FleetEventState, list[FleetEvent], list[ProviderObservation], set[int]]:
    """Return the state, the fleet events, the observations, and the `seq` of the events that a fork copied."""
    fleet_events: list[FleetEvent] = []
    observations: list[ProviderObservation] = []
    copies: set[int] = set()
    run_provider = row.worker_type if row.kind == AGENT else None
    for event in events:
        if is_copied(state, event):
            copies.add(event.seq)
        else:
            observations += provider_observations(state, event, run_provider)
        state, more = fleet_event_step(state, event)
        fleet_events += more
    return state, fleet_events, observations, copies


def pack(entries: list[ArchiveEntry]) -> bytes | None:
    """Compress an archive; return None if it has no entries."""
    # A fixed time, so that the same log always produces the same bytes.
    return gzip.compress(_encode(entries), 6, mtime=0) if entries else None


def _require_archive(archives: Mapping[str, bytes | None], run_id: str) -> bytes | None:
    if run_id not in archives:
        raise _Unreadable
    return archives[run_id]


class _Unreadable(Exception):
    """A log was deleted meanwhile, or cannot be read at the moment."""


class Ingest:
    """The updater of the views of every log, whichever process writes the log."""

    def __init__(
        self,
        feed: LogFeed,
        store: Store,
        bus: Bus,
        *,
        forget_after_bytes: int = ANNOUNCEMENT_BYTES,
        poll_seconds: float = INGEST_POLL_SECONDS,
    ) -> None:
        self._feed = feed
        self._store = store
        self._bus = bus
        self._forget_after_bytes = forget_after_bytes
        """After how many bytes of announcements the feed may forget which logs were opened."""
        self._poll_seconds = poll_seconds
        """How often all logs that have not ended are read."""
        self._followed: dict[str, _FollowedLog] = {}
        self._feed_position = 0
        self._forgotten_position = 0
        """The feed position at the last `forget_opened_logs`."""
        self._is_behind = False
        """Whether the last pass left events unread for lack of time."""
        self._reported_deletions: set[str] = set()
        """Runs whose deletion was reported recently."""
        self._subscribers: list[_Subscriber] = []

    async def catch_up(self, *, everything: bool = False) -> int:
        """Ingest all events that the logs have now; return their number. `everything` reads every log."""
        await self._load_followed(everything=everything)
        events = 0
        while ingested := await self.step():
            events += ingested
        return events

    async def run(self) -> None:
        """Ingest until cancelled. Retries while the store cannot be written; nothing is lost, the logs have it all."""
        with self._bus.subscribe_all() as live:
            while True:
                try:
                    await self._load_followed(everything=True)
                    while True:
                        if not await self.step():
                            await self._forget_opened()
                        await self._ingest_published_for(live, 0.0 if self._is_behind else self._poll_seconds)
                except Exception as error:
                    if not is_temporary(error):
                        raise
                    await anyio.sleep(INGEST_RETRY_SECONDS)

    async def _ingest_published_for(self, live: RunsSubscription, seconds: float) -> None:
        """Ingest published events for this time, at least once."""
        until = anyio.current_time() + seconds
        while True:
            await live.wait(max(until - anyio.current_time(), 0.0))
            # Wait a little, so that events that are published together share a transaction.
            await anyio.sleep(INGEST_BATCH_SECONDS)
            if published := live.drain():
                await self._ingest_published(published)
                await anyio.sleep(INGEST_INTERVAL_SECONDS)
            if anyio.current_time() >= until:
                return

    async def _forget_opened(self) -> None:
        """Tell the feed to forget which logs were opened, once there are many."""
        if self._feed_position - self._forgotten_position < self._forget_after_bytes:
            return
        # The store first: if this process dies in between, all logs are read once more.
        await self._store.apply([], feed_position=0)
        feed_position = await self._feed.forget_opened_logs(self._feed_position)
        if feed_position == self._feed_position:
            await self._store.apply([], feed_position=feed_position)
        self._feed_position = self._forgotten_position = feed_position

    async def _load_followed(self, *, everything: bool) -> None:
        """Load the open runs from the store, and with `everything` all runs that the store does not know."""
        # Drop the states in memory: an earlier cancellation may have left events folded but not stored.
        followed = [*self._followed]
        self._followed.clear()
        self._feed_position = await self._store.feed_position()
        await self._follow_stored([*await self._store.open_runs(), *followed])
        # Without a feed position the store is new, and the feed only lists the logs that were opened recently.
        if everything or not self._feed_position:
            known = await self._store.known_runs() | await self._store.deleted_run_ids()
            # Rows are numbered in the order in which the runs started.
            for run_id in await self._feed.run_ids(known):
                self._follow(run_id, RunRow(id=run_id))

    async def step(self) -> int:
        """Read the logs that were opened and all that have not ended. Return the number of events."""
        opened_logs, feed_position = await self._feed.opened_logs(self._feed_position)
        await self._follow_stored(opened_logs)
        event_count = await self._read_logs([*self._followed], announced=frozenset(opened_logs))
        if feed_position != self._feed_position:
            await self._store.apply([], feed_position=feed_position)
            self._feed_position = feed_position
        return event_count

    async def _ingest_published(self, published: Mapping[str, list[Entry]]) -> int:
        """Ingest published events that directly follow a row; read the other logs. Return the number of events."""
        # The store has nothing yet of a run that starts now.
        for run_id, entries in published.items():
            if entries and entries[0].seq == 1:
                self._follow(run_id, RunRow(id=run_id))
        await self._follow_stored([*published])
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
        await self._store_updates(await self._fold(found))
        return sum(map(len, found.values())) + await self._read_logs(behind, announced=frozenset(behind))

    async def _read_logs(self, run_ids: Sequence[str], *, announced: Collection[str]) -> int:
        """Ingest new events from the logs of these runs; return their number.

        A missing log is reported as deleted only for `announced` runs, which the feed or the bus has named.
        """
        changes, events, remaining = await self._read_batch(run_ids, announced)
        event_count = events
        # With a time limit: a log that is written all the time must not delay the rows of the other runs.
        until = anyio.current_time() + INGEST_TURN_SECONDS
        while remaining and anyio.current_time() < until:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._store_updates, changes)
                # Read and fold the next batch while this one is stored.
                changes, events, remaining = await self._read_batch(remaining, announced)
            event_count += events
        await self._store_updates(changes)
        self._is_behind = bool(remaining)
        return event_count

    async def _read_batch(
        self, run_ids: Sequence[str], announced: Collection[str]
    ) -> tuple[list[ViewUpdate], int, list[str]]:
        """Return the updates of about one transaction, the number of events, and the runs that remain to be read."""
        positions = {run_id: log.seq for run_id in run_ids if (log := self._followed.get(run_id)) is not None}
        updates = await self._feed.updates(positions, limit=INGEST_EVENTS) if positions else {}
        found = {run_id: update.entries for run_id, update in updates.items() if update.entries}
        again = {
            run_id
            for run_id, update in updates.items()
            if not update.entries and await self._handle_no_entries(run_id, update, announced)
        }
        changes = await self._fold(found)
        # A log that did not advance (undecodable lines, or an unreadable archive) waits for the next pass.
        done = {run_id for run_id in found if run_id not in self._followed}
        again |= {run_id for run_id in found.keys() - done if self._followed[run_id].seq > positions[run_id]}
        events = sum(len(entries) for run_id, entries in found.items() if run_id in done or run_id in again)
        # With fewer events than the limit, the feed has read every readable log.
        more = positions.keys() - updates.keys() if events >= INGEST_EVENTS else set[str]()
        return changes, events, [run_id for run_id in positions if run_id in again or run_id in more]

    async def _handle_no_entries(self, run_id: str, update: LogUpdate, announced: Collection[str]) -> bool:
        """Handle a log without new events. Return whether the log was truncated, so that its views are rebuilt."""
        followed = self._followed[run_id]
        if update.reset is not None:
            # A power cut or a full disk may have removed events that the views already have.
            await self._store.truncate_views(run_id, update.reset.last)
            self._followed[run_id] = _FollowedLog(RunRow(id=run_id))
            return True
        if update.is_missing:
            if not followed.seq:
                del self._followed[run_id]
            if run_id in announced:
                await self._report_deleted(run_id)
        elif followed.row.outside and not update.has_writer:
            # The run waits and no process writes the log. The next process that opens the log announces that.
            del self._followed[run_id]
        return False

    async def _fold(self, found: Mapping[str, list[Entry]]) -> list[ViewUpdate]:
        archives: dict[str, bytes | None] = {}
        for run_id, entries in found.items():
            if self._followed[run_id].short is None and any(entry.type == _OUTCOME for entry in entries):
                with suppress(_Unreadable):
                    archives[run_id] = await self._build_archive(run_id, entries[-1].seq)
        return await anyio.to_thread.run_sync(self._fold_all, found, archives) if found else []

    def _fold_all(self, found: Mapping[str, list[Entry]], archives: Mapping[str, bytes | None]) -> list[ViewUpdate]:
        changes: list[ViewUpdate] = []
        for run_id, entries in found.items():
            followed = self._followed[run_id]
            # A long log that cannot be read completely now waits for the next pass.
            with suppress(_Unreadable):
                if change := followed.fold(entries, partial(_require_archive, archives, run_id)):
                    changes.append(change)
            if followed.row.is_ended:
                del self._followed[run_id]
        return changes

    async def _build_archive(self, run_id: str, last_seq: int) -> bytes | None:
        """Return the archive of a long log, up to `last_seq`. Reads in parts: the log may not fit into memory."""
        made, seq = Archive(), 0
        while seq < last_seq:
            update = (await self._feed.updates({run_id: seq}, limit=INGEST_EVENTS)).get(run_id)
            if update is None or not update.entries:
                raise _Unreadable
            await anyio.to_thread.run_sync(lambda entries: made.feed(_events(entries)), update.entries)
            seq = update.entries[-1].seq
        return await anyio.to_thread.run_sync(lambda: pack(made.finish()))

    async def _store_updates(self, changes: list[ViewUpdate]) -> None:
        if changes:
            await self._store.apply(changes)
            if any(change.fleet_events or change.observations for change in changes):
                self._bus.notify_fleet()
            await self.publish_rows(*(change.row.id for change in changes))

    def _follow(self, run_id: str, row: RunRow, state: _FoldState = _NEW) -> None:
        if run_id not in self._followed:
            self._followed[run_id] = _FollowedLog(row, state)

    async def _follow_stored(self, run_ids: Sequence[str]) -> None:
        """Follow the logs of these runs from where their stored views end, unless the runs have ended."""
        new = [run_id for run_id in run_ids if run_id not in self._followed]
        for first in range(0, len(new), INGEST_RUNS):
            batch = new[first : first + INGEST_RUNS]
            known = await self._store.view_states(batch)
            for run_id in batch:
                folded = known.get(run_id)
                if folded is None:
                    self._follow(run_id, RunRow(id=run_id))
                elif not folded.row.is_ended:
                    await self._follow_from(folded)

    async def _follow_from(self, folded: ViewState) -> None:
        row = folded.row
        try:
            self._follow(row.id, row, _decode_state(folded.state) if folded.state else _NEW)
        except msgspec.MsgspecError:
            # An older version stored this state, without one of the folds: rebuild the views.
            await self._store.discard_views(row.id)
            self._follow(row.id, RunRow(id=row.id))

    # Subscriptions to rows.

    @asynccontextmanager
    async def subscribe(self) -> AsyncGenerator[AsyncIterator[list[RunItem | RunDeleted]]]:
        """Yield an iterator over batches of changed rows and deletions."""
        subscriber = _Subscriber()
        self._subscribers.append(subscriber)
        try:
            yield subscriber.items()
        finally:
            self._subscribers.remove(subscriber)

    async def publish_rows(self, *run_ids: str) -> None:
        """Send the current rows of these runs to the subscribers."""
        # Without subscribers no row is read back; with them, all rows are read in one query.
        for item in await self._store.get_runs(run_ids) if self._subscribers else ():
            self._publish(item.row.id, item)

    async def _report_deleted(self, run_id: str) -> None:
        """Report a run without log and row as deleted. Only once, although both the bus and the feed name the run."""
        if self._subscribers and run_id not in self._reported_deletions and await self._store.get_run(run_id) is None:
            if len(self._reported_deletions) >= INGEST_RUNS:
                self._reported_deletions.clear()
            self._reported_deletions.add(run_id)
            self._publish(run_id, RunDeleted(run_id))

    def _publish(self, run_id: str, item: RunItem | RunDeleted) -> None:
        for subscriber in self._subscribers:
            subscriber.put(run_id, item)


class _Subscriber:
    """The changes that one subscriber has not received yet: only the newest of each run, which bounds their number."""

    def __init__(self) -> None:
        self._pending: dict[str, RunItem | RunDeleted] = {}
        self._has_items = anyio.Event()

    def put(self, run_id: str, item: RunItem | RunDeleted) -> None:
        self._pending[run_id] = item
        self._has_items.set()

    async def items(self) -> AsyncIterator[list[RunItem | RunDeleted]]:
        while True:
            await self._has_items.wait()
            self._has_items = anyio.Event()
            items, self._pending = list(self._pending.values()), {}
            yield items


def _events(entries: Iterable[Entry]) -> Iterable[Event]:
    for entry in entries:
        try:
            yield decode(entry.raw, entry.type)
        except InvalidEvent:
            # The envelope cannot be decoded. The line stays in the file, and `verify` reports it.
            continue
