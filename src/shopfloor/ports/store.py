"""Store: the views of logs (rows, timelines, archives, search index), and durable data such as pins and tombstones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Protocol

import msgspec

from shopfloor.errors import ShopfloorError
from shopfloor.limits import STATS_RUNS
from shopfloor.views import (
    FleetEvent,
    Notification,
    ProviderObservation,
    RunRow,
    SearchChunk,
    StatChange,
    StoredStats,
    TimelineRow,
)

RunOrder = Literal["newest", "oldest", "cost", "duration"]
"""The order of a list: by start, or by the cost with sub-runs or the duration, highest first and unknown last."""


class RunFilter(msgspec.Struct, frozen=True, kw_only=True):
    """A filter of runs. Fields that are None do not filter; statuses are the internal ones."""

    agent_id: str | None = None
    statuses: tuple[str, ...] | None = None
    worker_type: str | None = None
    channel_id: str | None = None
    parent_run_id: str | None = None
    roots: bool | None = None
    """True for runs without a parent, False for runs with a parent."""
    name: str | None = None
    """Name of the worker."""
    open_on_host: str | None = None
    """Only runs that have not ended and whose newest attempt is on this host."""
    id_prefix: str | None = None
    """The first characters of a run id."""
    started_after: str | None = None
    """Exclusive. UTC with milliseconds, as in logs."""
    started_before: str | None = None
    """Exclusive. UTC with milliseconds, as in logs."""
    ended_after: str | None = None
    """Exclusive, as `started_after`. A run that has not ended does not match."""
    ended_before: str | None = None
    """Exclusive."""
    model: str | None = None
    """The model that wrote the newest message."""
    provider: str | None = None
    """The provider of the newest session or model."""
    error_code: str | None = None
    error_group: str | None = None
    """Only runs that failed with a message of this group: without times, ids and long numbers, as in statistics."""
    min_cost_usd: float | None = None
    """Inclusive. The cost of the run and its sub-runs; a run without a known cost does not match."""
    max_cost_usd: float | None = None
    """Inclusive."""
    min_duration_ms: int | None = None
    """Inclusive. A run that has not ended does not match."""
    max_duration_ms: int | None = None
    """Inclusive."""
    search: str | None = None
    """Words and "quoted phrases", all of which must match: anywhere in the task, also inside of words, or as complete
    words in any text of the run. The last word may be incomplete. The first characters of a run id match too."""


class RunItem(msgspec.Struct, frozen=True, kw_only=True):
    """A run as listed: its row and the related data of the store."""

    row: RunRow
    number: int
    """Number of the row. Numbers grow with each new run; cursors refer to them."""
    event_count: int
    has_transcript: bool
    pinned: bool
    channel_name: str | None
    snippet: str | None = None
    """For a search: the text around the first hit, with hits between `HIT_BEGIN` and `HIT_END`."""
    search_stopped_at: int | None = None
    """The event at which indexing for search stopped, because the run has more text than is indexed."""
    answered: tuple[str, ...] = ()
    """Ids of calls that have been answered, but whose answer is not in the log yet."""

    @property
    def pending_requests(self) -> list[str] | None:
        """The questions and calls that the run waits for, one line each; None if nothing in it waits."""
        # A branch may wait for a person while another one works.
        is_waiting = self.row.status == "waiting" or self.row.waiting_since is not None
        return self.row.waits.lines(answered=self.answered) if is_waiting else None


class LaterRun(msgspec.Struct, frozen=True):
    """A run that repeats, continues or forks another run."""

    run_id: str
    kind: Literal["rerun", "reply", "fork"]


class WaitingRuns(msgspec.Struct, frozen=True, kw_only=True):
    """Runs that wait for a person, the longest wait first."""

    pending: list[RunItem]
    """Runs with a call that a person or a client has to answer and has not answered, in any of their branches."""
    failed: list[RunItem]
    """Runs that failed for a reason that only a person can remove. Not dismissed, and no run is based on them."""
    calls: int
    """The number of unanswered calls of all runs."""
    failures: int
    """The number of such failures."""


class RunPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of a list of runs."""

    items: list[RunItem]
    total: int
    next: str | None = None
    """The cursor of the next page; None on the last page."""


class TimelineItem(msgspec.Struct, frozen=True, kw_only=True):
    """A row of a run's timeline."""

    id: int
    seq: int
    event_type: str
    data: dict[str, Any]
    created_at: str


class Channel(msgspec.Struct, frozen=True, kw_only=True):
    """The channel that runs came from."""

    id: str
    name: str | None


class ViewState(msgspec.Struct, frozen=True, kw_only=True):
    """How far a run's views are: its row, and the state from which its timeline continues."""

    row: RunRow
    state: bytes


class OpenRun(msgspec.Struct, frozen=True):
    """A run that has not ended, and the host of its newest attempt."""

    id: str
    host: str | None


class ViewUpdate(msgspec.Struct, frozen=True, kw_only=True):
    """Changes to the views of a run by its next events. Has no effect if the row already contains these events."""

    row: RunRow
    state: bytes
    timeline: list[TimelineRow]
    archive: bytes | None = None
    """Gzipped JSON; set at the outcome, if the log has messages."""
    search: list[SearchChunk] = []
    """Parts of the run's text that are new or changed."""
    search_stopped_at: int | None = None
    """The event at which the text became too long to be indexed."""
    fleet_events: list[FleetEvent] = []
    """The fleet events that the new events cause."""
    notifications: list[Notification] = []
    """What hooks are notified of the new events. Stored as deliveries, once, as fleet events are."""
    stats: list[StatChange] = []
    """The changes of statistics that the new events cause."""
    observations: list[ProviderObservation] = []
    """What the new events say about providers."""


class StatsDays(msgspec.Struct, frozen=True):
    """The days of statistics, as quarters of an hour since 1970: those where a day begins, and the end of the last."""

    starts: tuple[int, ...]
    today: tuple[int, int]
    """The first quarter of an hour of today, and of tomorrow."""
    needs_person_after: str | None = None
    """Count failures after this time, as `Store.waiting` selects them, as waiting; None: none."""
    max_runs: int = STATS_RUNS
    """How many runs statistics with a filter that has no sums are computed from, at most."""


class Store(Protocol):
    """The database of runs."""

    async def list_runs(
        self,
        run_filter: RunFilter,
        /,
        *,
        limit: int,
        offset: int = 0,
        cursor: str | None = None,
        order: RunOrder = "newest",
    ) -> RunPage:
        """Return runs, newest first unless `order` says otherwise, without `row.result`.

        With a cursor, `offset` is ignored. Raises `InvalidParameter` for an invalid cursor, or one of another order.
        """
        ...

    async def waiting(self, *, failed_after: str, limit: int) -> WaitingRuns:
        """Return the runs that wait for a person, at most `limit` of each kind; failures only after this time."""
        ...

    async def open_roots(self, run_filter: RunFilter, /) -> list[OpenRun]:
        """Return the matching roots that have started and not ended, and wait for no person, oldest first.

        A root waits for a person if any run of its tree has an unanswered call.
        """
        ...

    async def later_runs(self, run_id: str) -> list[LaterRun]:
        """Return the runs that repeat, continue or fork a run, newest first, at most `CONTINUED_RUNS`."""
        ...

    async def count_by_status(self, run_filter: RunFilter, /) -> dict[str, int]:
        """Return how many runs match, by status. The statuses of the filter are ignored."""
        ...

    async def stats(self, run_filter: RunFilter, days: StatsDays, /) -> StoredStats:
        """Return the sums for statistics of the matching runs: of what happened on the days, whenever the runs started.

        A filter by start selects runs, as in a list. Sums by worker and for roots are kept; for any other filter they
        are computed from the matching runs. Raises `InvalidParameter` if these are more than `STATS_RUNS`.
        """
        ...

    async def get_run(self, run_id: str) -> RunItem | None: ...

    async def get_runs(self, run_ids: Sequence[str]) -> list[RunItem]:
        """Return the runs that exist, in any order."""
        ...

    async def timeline(self, run_id: str, *, limit: int, after: int = 0) -> list[TimelineItem]:
        """Return the rows with an id above `after`, oldest first, at most `limit`."""
        ...

    async def archive(self, run_id: str) -> bytes | None:
        """Return the gzipped transcript."""
        ...

    async def channels(self) -> list[Channel]: ...

    async def pin(self, run_id: str, *, pinned: bool) -> bool:
        """Pin or unpin a run. Return False if there is no such run."""
        ...

    async def dismiss(self, run_id: str) -> bool:
        """Record that a failed run no longer waits for a person. Return False if there is no such run."""
        ...

    async def start_waits(self, since: str, *, limit: int) -> list[float]:
        """Return how many seconds each run was queued that started after `since`, for the `limit` newest of them.

        Runs that were not queued are left out.
        """
        ...

    # The rest is used to keep the views.

    async def view_states(self, run_ids: Sequence[str]) -> dict[str, ViewState]:
        """Return how far the views of these runs are. Runs without events are left out."""
        ...

    async def open_runs(self) -> list[str]:
        """Return the runs that have not ended, by their rows."""
        ...

    async def count_open_in_tree(self, root_run_id: str) -> int:
        """Count the runs of a tree that have not ended by their rows, including the root."""
        ...

    async def runs_needing_host(self) -> list[OpenRun]:
        """Return the open runs that need a host: started, and not waiting for an answer."""
        ...

    async def due_runs(self, now: str) -> list[str]:
        """Return the runs that have a wait which ends at `now` or before."""
        ...

    async def overdue_parents(self) -> list[str]:
        """Return the runs that wait although a sub-run that they wait for has ended.

        The process that ended the sub-run resumes them, unless it dies before.
        """
        ...

    async def recent_durations(self, name: str, *, limit: int) -> list[int]:
        """Return the durations in milliseconds of the newest completed runs of a worker, at most `limit`."""
        ...

    async def apply(self, changes: Sequence[ViewUpdate], *, feed_position: int | None = None) -> None:
        """Apply changes in one transaction. Calls take effect in their order.

        A fleet event is stored once, under the next cursor, even if the views of its run were discarded since.

        `feed_position` is stored in the same transaction: the position up to which `LogFeed.opened_logs` has been
        processed.
        """
        ...

    async def known_runs(self) -> set[str]:
        """Return every run that has a row."""
        ...

    async def deleted_run_ids(self) -> set[str]:
        """Return the deleted runs, which a rebuild leaves out."""
        ...

    async def add_tombstone(self, run_id: str) -> None:
        """Record that a run is deleted, and change nothing else."""
        ...

    async def partially_deleted_runs(self) -> list[str]:
        """Return the runs that have a tombstone and still a row or an idempotency key.

        A crash has interrupted their deletion.
        """
        ...

    async def delete(self, run_id: str) -> None:
        """Delete row, timeline, archive, search text, fleet events, hooks and pending deliveries of a run."""
        ...

    async def drop_archive(self, run_id: str) -> None: ...

    async def expired(self, before: str, *, since: str = "", limit: int) -> list[tuple[str, str]]:
        """Return runs without a pin that ended before `before` and not before `since`.

        Each is a pair of id and end, oldest first.
        """
        ...

    async def truncate_views(self, run_id: str, last_seq: int) -> None:
        """Discard the views of a run whose log was truncated to `last_seq`, if they are past it.

        Pins and dismissals stay, and so do fleet events, which may have been sent. Those of later events of the log are
        stored.
        """
        ...

    async def discard_views(self, run_id: str) -> None:
        """Discard the views of a run, to make them from its log again. Pin, dismissal and fleet events stay."""
        ...

    async def clear_views(self) -> None:
        """Delete every view and the feed position, for a rebuild.

        Pins, dismissals, channels, tombstones and fleet events stay.
        """
        ...

    async def feed_position(self) -> int:
        """Return the position up to which `LogFeed.opened_logs` has been processed; 0 for a new store."""
        ...

    async def compact(self) -> None:
        """Return free space to the file system."""
        ...

    async def check(self) -> None:
        """Check the whole store. Raises `DatabaseDamaged` if it is corrupt."""
        ...

    def failure(self) -> ShopfloorError | None:
        """Return why the store cannot be used any more, if it was lost or found damaged. Sends no query."""
        ...

    async def close(self) -> None: ...
