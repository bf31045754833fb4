"""Store: rows, timelines, archives and search, all of them views of logs, and what is durable in its own right."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from shopfloor.errors import ShopfloorError
from shopfloor.views import RunRow, SearchChunk, TimelineRow


class RunFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which runs a list is of. What is None does not matter; statuses are the inside words."""

    agent_id: str | None = None
    statuses: tuple[str, ...] | None = None
    worker_type: str | None = None
    channel_id: str | None = None
    parent_run_id: str | None = None
    roots: bool | None = None
    """True for those that no run called, False for the others."""
    name: str | None = None
    """Of the worker."""
    started_after: str | None = None
    """Later than this, written as logs write it: UTC with milliseconds."""
    started_before: str | None = None
    """Earlier than this, written likewise."""
    search: str | None = None
    """Words and "quoted phrases" that must all be there: anywhere in the task, also as a part of a word, or as whole
    words in any text of the run. The last word may be unfinished. Of an id, its first characters are enough."""


class RunItem(msgspec.Struct, frozen=True, kw_only=True):
    """A run as lists show it: its row and what the store keeps beside it."""

    row: RunRow
    number: int
    """Of the row: it grows with each new run, and is the place that a cursor names."""
    event_count: int
    has_transcript: bool
    pinned: bool
    channel_name: str | None
    snippet: str | None = None
    """For a search: the text around the first hit, with hits between `HIT_BEGIN` and `HIT_END`."""
    search_stopped_at: int | None = None
    """The event at which indexing for search stopped, since the run has more text than is indexed."""
    answered: tuple[str, ...] = ()
    """The calls that somebody has answered and whose answer no log has yet."""

    @property
    def pending_requests(self) -> list[str] | None:
        """What the run waits for somebody to give, each on one line; None while it does not wait."""
        return self.row.waits.lines(answered=self.answered) if self.row.status == "waiting" else None


class RunPage(msgspec.Struct, frozen=True, kw_only=True):
    items: list[RunItem]
    total: int
    next: str | None = None
    """The cursor of the next page; None on the last."""


class TimelineItem(msgspec.Struct, frozen=True, kw_only=True):
    id: int
    seq: int
    event_type: str
    data: dict[str, Any]
    created_at: str


class Channel(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    name: str | None


class ViewState(msgspec.Struct, frozen=True, kw_only=True):
    """How far a run's views are: the row, and the state of its timeline's fold."""

    row: RunRow
    state: bytes


class OpenRun(msgspec.Struct, frozen=True):
    """A run that has not ended, and the host of its newest attempt."""

    id: str
    host: str | None


class ViewUpdate(msgspec.Struct, frozen=True, kw_only=True):
    """What the next events of a run do to its views. Applied once: what the row is past already changes nothing."""

    row: RunRow
    state: bytes
    timeline: list[TimelineRow]
    archive: bytes | None = None
    """Gzipped JSON, at the outcome, where the log has messages."""
    search: list[SearchChunk] = []
    """The pieces of the run's text that are new or have changed."""
    search_stopped_at: int | None = None
    """The event at which the text became too long to be indexed."""


class Store(Protocol):
    async def list_runs(self, wanted: RunFilter, *, limit: int, offset: int = 0, cursor: str | None = None) -> RunPage:
        """Newest first; `row.result` is left out.

        With a cursor the offset does not count. An unreadable cursor is an `InvalidParameter`.
        """
        ...

    async def get_run(self, run_id: str) -> RunItem | None: ...

    async def get_runs(self, run_ids: Sequence[str]) -> list[RunItem]:
        """Those of these runs that there are, in any order."""
        ...

    async def timeline(self, run_id: str, *, limit: int, after: int = 0) -> list[TimelineItem]:
        """The rows with an id over `after`, oldest first, at most `limit`."""
        ...

    async def archive(self, run_id: str) -> bytes | None:
        """The gzipped transcript."""
        ...

    async def channels(self) -> list[Channel]: ...

    async def pin(self, run_id: str, *, pinned: bool) -> bool:
        """Whether there is such a run."""
        ...

    # What keeps the views.

    async def view_states(self, run_ids: Sequence[str]) -> dict[str, ViewState]:
        """How far the views of runs are; those that have no event yet are left out."""
        ...

    async def open_runs(self) -> list[str]:
        """The runs whose rows say that they have not ended."""
        ...

    async def count_open_in_tree(self, root_run_id: str) -> int:
        """Count the runs of a tree whose rows say that they have not ended, with the root."""
        ...

    async def runs_needing_host(self) -> list[OpenRun]:
        """Those of them that need a host: begun, and not waiting for somebody outside."""
        ...

    async def due_runs(self, now: str) -> list[str]:
        """The runs of which a wait has ended by that time."""
        ...

    async def apply(self, changes: Sequence[ViewUpdate], *, feed_position: int | None = None) -> None:
        """Apply them in one transaction, and calls in their order.

        `feed_position` is stored with them: the one up to which the feed of logs is taken up.
        """
        ...

    async def known_runs(self) -> set[str]:
        """Every run that has a row."""
        ...

    async def deleted_run_ids(self) -> set[str]:
        """The runs that were deleted: a rebuild leaves them out."""
        ...

    async def add_tombstone(self, run_id: str) -> None:
        """Writes the tombstone, and nothing else."""
        ...

    async def partially_deleted_runs(self) -> list[str]:
        """The runs that have a tombstone and still a row or an idempotency key: a crash cut their deletion off."""
        ...

    async def delete(self, run_id: str) -> None:
        """Row, timeline, archive and search of a run."""
        ...

    async def drop_archive(self, run_id: str) -> None: ...

    async def expired(self, before: str, *, since: str = "", limit: int) -> list[tuple[str, str]]:
        """Runs that ended before that time, at `since` or later, and are not pinned: id and end, oldest first."""
        ...

    async def truncate_views(self, run_id: str, last_seq: int) -> None:
        """The log has lost its end, and `last_seq` is its last event: views that are past it go; a pin stays."""
        ...

    async def clear_views(self) -> None:
        """Deletes every view, for a rebuild, and forgets the mark; pins, channels and tombstones stay."""
        ...

    async def feed_position(self) -> int:
        """The mark up to which the feed of logs is taken up; 0 for a new store."""
        ...

    async def compact(self) -> None:
        """Gives freed space back."""
        ...

    async def check(self) -> None:
        """Look through the whole store; raises `DatabaseDamaged` where it is not sound."""
        ...

    def failure(self) -> ShopfloorError | None:
        """Why the store cannot be used any more, if it was lost or found damaged; asks no query."""
        ...

    async def close(self) -> None: ...
