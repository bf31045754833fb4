"""From logs to rows: every log's events are folded into the views, in batches, and never at a run's cost."""

from __future__ import annotations

import gzip
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import anyio
import anyio.to_thread
import msgspec

from shopfloor.decoding import json_decoder
from shopfloor.engine.shortage import is_temporary
from shopfloor.errors import FileMissing, InvalidEvent, StorageError
from shopfloor.limits import ANNOUNCEMENT_BYTES, INGEST_EVENTS, INGEST_PAUSE_SECONDS, INGEST_RETRY_SECONDS, INGEST_RUNS
from shopfloor.log import Entry, Event, decode
from shopfloor.ports import Change, Folded, Gone, RunItem, Store
from shopfloor.record import Cursor, Problem, Reset, Storage, is_locked, read
from shopfloor.views import (
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


class _FoldState(msgspec.Struct, frozen=True):
    """The states of the folds that a row does not hold itself."""

    timeline: Timeline
    search: SearchState


_NEW = _FoldState(Timeline(), SearchState())
_decode_state = json_decoder(_FoldState).decode


class _Followed:
    """A log that has not ended, and how far its views are. It holds no file open: there may be thousands."""

    def __init__(self, path: Path, row: RunRow, state: _FoldState = _NEW) -> None:
        self.path = path
        self.row = row
        self.state = state
        self.cut: Reset | None = None
        """Where the log ends, once it is seen that it has lost events which the views have."""
        self.missing = False
        """Whether there is no such file, and never was as far as the views know."""
        self._read_size = -1
        """How large the file was when there was nothing more in it."""

    def poll(self) -> list[Event]:
        """The next events, about a chunk of them; an empty list where there are none for now."""
        try:
            size = self.path.stat().st_size
            if size != self._read_size:
                with Cursor(self.path, self.row.last_seq, report=_ignore) as cursor:
                    while items := cursor.poll():
                        if isinstance(items[0], Reset):
                            self.cut = items[0]
                            return []
                        if events := list(_events(cast("list[Entry]", items))):
                            return events
                self._read_size = size
        except FileNotFoundError:
            self.missing = not self.row.last_seq
        except (OSError, FileMissing, StorageError):
            # Deleted meanwhile, or not to be read just now: the next look may go better.
            pass
        return []

    def rests(self) -> bool:
        """Whether nothing will come until somebody opens it, which is announced: it waits, and nobody is at it."""
        try:
            return self.row.outside and not is_locked(self.path)
        except OSError:
            return False

    def fold(self, events: list[Event]) -> Change:
        row = row_fold(self.row, events)
        # A log that was read at once is at hand. Any other is read once more: no fold has to hold all of it.
        whole = events if not self.row.last_seq else _events(read(self.path, report=_ignore))
        entries = archive(whole) if row.ended else []
        self.row, waits = row, self.row.waits
        timeline, told = timeline_fold(self.state.timeline, events, waits)
        search, pieces = search_fold(self.state.search, row, events)
        self.state = _FoldState(timeline, search)
        return Change(
            row=row,
            state=b"" if row.ended else _encode(self.state),
            timeline=told,
            archive=pack(entries) if entries else None,
            search=pieces,
            search_stopped_at=search.stopped_at,
        )


def pack(entries: list[ArchiveEntry]) -> bytes:
    # A fixed time, so that the same log gives the same bytes.
    return gzip.compress(_encode(entries), 6, mtime=0)


class Ingest:
    """Keeps the views of every log in a storage up to date, whoever writes the logs."""

    def __init__(self, storage: Storage, store: Store, *, announcement_bytes: int = ANNOUNCEMENT_BYTES) -> None:
        self._announcement_bytes = announcement_bytes
        self._storage = storage
        self._store = store
        self._followed: dict[str, _Followed] = {}
        self._place = 0
        self._listeners: list[_Listener] = []

    async def catch_up(self, *, everything: bool = False) -> int:
        """Takes up all that the logs hold now; gives the number of events. `everything` looks at every file."""
        await self._begin(everything=everything)
        events = 0
        while taken := await self.step():
            events += taken
        return events

    async def run(self) -> None:
        """Goes on until it is cancelled. A store that cannot be written is waited for: the logs have it all."""
        while True:
            try:
                await self._begin(everything=True)
                while True:
                    taken = await self.step()
                    if not taken:
                        await self._forget_announced()
                    if taken < INGEST_EVENTS:
                        # Also where something came: what comes together shares a transaction.
                        await anyio.sleep(INGEST_PAUSE_SECONDS)
            except Exception as error:
                if not is_temporary(error):
                    raise
                # From what the store has, once more.
                self._followed.clear()
                await anyio.sleep(INGEST_RETRY_SECONDS)

    async def _forget_announced(self) -> None:
        """Empty the announcements when they have become many."""
        if self._place < self._announcement_bytes:
            return
        # First in the store: should this process end in between, all of the file is looked at once more.
        await self._store.apply([], place=1)
        place = self._storage.forget_announced(self._place)
        if place == self._place:
            await self._store.apply([], place=place)
        self._place = place

    async def _begin(self, *, everything: bool) -> None:
        self._place = await self._store.place()
        await self._take_up(await self._store.open_runs())
        # A store that has taken up nothing is new: the announcements tell only of the newest logs.
        if everything or not self._place:
            known = await self._store.known_runs() | await self._store.buried()
            for run_id in await anyio.to_thread.run_sync(self._oldest_first, known):
                self._follow(run_id, RunRow(id=run_id))

    def _oldest_first(self, known: set[str]) -> list[str]:
        """Runs that have no row, by when they began: rows are numbered in that order."""
        began: list[tuple[str, str]] = []
        for run_id in set(self._storage.run_ids()) - known:
            try:
                first = next(read(self._storage.log_path(run_id), limit=1, report=_ignore), None)
            except (FileMissing, StorageError):
                # No file, gone already, or not ours to read: that is no reason not to list the others.
                continue
            began += [(event.timestamp, run_id) for event in _events([first] if first else [])]
        return [run_id for _, run_id in sorted(began)]

    async def step(self) -> int:
        """What was announced, and what the open logs have got. Gives the number of events."""
        announced, place = self._storage.announced(self._place)
        await self._take_up(announced)
        await self._tell_gone(announced)
        changes, events = await self._batch()
        taken = events
        while events >= INGEST_EVENTS:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._keep, changes)
                # There is more: it is folded while this is stored.
                changes, events = await self._batch()
            taken += events
        if changes or place != self._place:
            await self._keep(changes, place)
            self._place = place
        return taken + (await self.step() if await self._take_back() else 0)

    async def _batch(self) -> tuple[list[Change], int]:
        return await anyio.to_thread.run_sync(self._fold) if self._followed else ([], 0)

    def _fold(self) -> tuple[list[Change], int]:
        """What the open logs have got, about as much as goes into one transaction, and the number of events."""
        changes: list[Change] = []
        taken = 0
        for run_id, followed in list(self._followed.items()):
            # Asked before reading: what was written before the writer went away is still read.
            rests = followed.rests()
            if events := followed.poll():
                try:
                    changes.append(followed.fold(events))
                except (OSError, FileMissing, StorageError):
                    # Gone since it was looked at, or not to be read just now.
                    continue
                taken += len(events)
            elif followed.missing or (rests and followed.cut is None):
                del self._followed[run_id]
            if followed.row.ended:
                self._followed.pop(run_id, None)
            if taken >= INGEST_EVENTS:
                break
        return changes, taken

    async def _keep(self, changes: list[Change], place: int | None = None) -> None:
        await self._store.apply(changes, place=place)
        await self.tell(*(change.row.id for change in changes))

    async def _take_back(self) -> int:
        """A power cut, or a disk that took no more, may have taken events that the views have: they are made anew."""
        cut = [(run_id, one, one.cut) for run_id, one in self._followed.items() if one.cut is not None]
        for run_id, followed, reset in cut:
            await self._store.take_back(run_id, reset.last)
            self._followed[run_id] = _Followed(followed.path, RunRow(id=run_id))
        return len(cut)

    def _follow(self, run_id: str, row: RunRow, state: _FoldState = _NEW) -> None:
        if run_id not in self._followed:
            self._followed[run_id] = _Followed(self._storage.log_path(run_id), row, state)

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
                elif not folded.row.ended:
                    await self._go_on(folded)

    async def _go_on(self, folded: Folded) -> None:
        row = folded.row
        try:
            self._follow(row.id, row, _decode_state(folded.state) if folded.state else _NEW)
        except msgspec.MsgspecError:
            # An older version kept this state, without the fold of search: the views are made anew.
            await self._store.take_back(row.id, 0)
            self._follow(row.id, RunRow(id=row.id))

    # For whoever shows lists.

    @asynccontextmanager
    async def subscribe(self) -> AsyncGenerator[AsyncIterator[list[RunItem | Gone]]]:
        listener = _Listener()
        self._listeners.append(listener)
        try:
            yield listener.items()
        finally:
            self._listeners.remove(listener)

    async def tell(self, *run_ids: str) -> None:
        # Only for those who listen: a row is not read back otherwise, and all that were written are read at once.
        for item in await self._store.get_runs(run_ids) if self._listeners else ():
            self._put(item.row.id, item)

    async def _tell_gone(self, announced: Sequence[str]) -> None:
        """Of what was announced, that which has neither a log nor a row was deleted, by whichever process."""
        if not self._listeners:
            return
        for run_id in announced:
            if not self._storage.log_path(run_id).exists() and await self._store.get_run(run_id) is None:
                self._put(run_id, Gone(run_id))

    def _put(self, run_id: str, news: RunItem | Gone) -> None:
        for listener in self._listeners:
            listener.put(run_id, news)


class _Listener:
    """Changes that one subscriber has not seen yet: of each run the newest state only, so that they stay few."""

    def __init__(self) -> None:
        self._pending: dict[str, RunItem | Gone] = {}
        self._news = anyio.Event()

    def put(self, run_id: str, news: RunItem | Gone) -> None:
        self._pending[run_id] = news
        self._news.set()

    async def items(self) -> AsyncIterator[list[RunItem | Gone]]:
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


def _ignore(problem: Problem) -> None:
    """Said where a log is shown, not where its rows are made."""
