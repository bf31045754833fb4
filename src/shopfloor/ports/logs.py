"""Logs: where a run's events go."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Protocol

import msgspec

from shopfloor.limits import SUB_RUN_DEPTH
from shopfloor.log import Delta, Entry, Masking, Payload, Reset, decode
from shopfloor.ports.store import RunItem


class Log(Protocol):
    """One run's log, open for writing by us alone."""

    @property
    def run_id(self) -> str: ...

    @property
    def seq(self) -> int:
        """Of the last event; 0 where there is none yet."""
        ...

    @property
    def mask(self) -> Masking | None:
        """What is kept out of it, for whoever joins or cuts text before it is written."""
        ...

    async def append(
        self,
        payload: Payload,
        *,
        path: str = "",
        iteration: int = 0,
        child_run_id: str | None = None,
        at: str | None = None,
    ) -> Entry:
        """Append an event and return its entry when the log's authority has it.

        The outcome and events `step.*` are durable then. `at` is the event's time, where it is not that of writing.
        Raises `InvalidEvent`, `RunEnded`, `LogClosed`, `StorageError`, and `LogBusy` where another host has taken the
        log over: the event is not in the log then.
        """
        ...

    @property
    def is_durable(self) -> bool:
        """Whether no crash, and no power cut, would lose an event that was appended."""
        ...

    async def make_durable(self) -> None:
        """Return when every event that was appended is durable."""
        ...

    def append_now(self, payload: Payload) -> Entry:
        """Append without the event loop, from any thread. May block while the storage does."""
        ...

    def publish_delta(self, delta: Delta) -> None:
        """Pass a piece of a message on to those who follow with deltas. It is not stored."""
        ...


class LogCopy(Protocol):
    """The bytes of a log at one moment."""

    @property
    def size(self) -> int: ...

    def chunks(self) -> AsyncIterator[bytes]:
        """All of them, a piece at a time; to be called once. Fewer where the log has lost its end or was deleted."""
        ...


class LogReader(Protocol):
    """Logs as anybody may read them, whoever writes them. What `append` has returned is readable in every process.

    Every method raises `InvalidRunId` for a text that is no run id.
    """

    async def page(self, run_id: str, *, after: int = 0, before: int | None = None, limit: int) -> list[Entry] | None:
        """The events with `after < seq < before`, the first `limit` of them; None where there is no such log.

        With `before` and no `after`, it is the last `limit` of them: the page that stands above it.
        """
        ...

    async def has_log(self, run_id: str) -> bool: ...

    async def has_writer(self, run_id: str) -> bool:
        """Whether a process has the log open for writing."""
        ...

    async def has_active_host(self, run_id: str, host: str | None) -> bool:
        """Whether a process works on the run: one writes its log, or `host`, of its newest attempt, is alive."""
        ...

    def batches(self, run_id: str, *, after: int = 0) -> AsyncIterator[list[Entry]]:
        """What the log holds after `after`, in order, read a piece at a time. Raises `RunNotFound`."""
        ...

    async def copy(self, run_id: str) -> LogCopy | None:
        """The log's bytes as they are now, up to the end of its last whole line; None where there is no such log."""
        ...

    def follow(
        self, run_id: str, *, after: int = 0, deltas: bool = False, wait_for_writer: bool = False
    ) -> AsyncIterator[list[Entry | Reset | Delta]]:
        """What the log holds after `after` and then what comes, in order, none twice, in batches as they are there.

        An empty batch says that nothing came for a while, so that whoever sends can show that it lives. It ends with
        the outcome, or when whoever wrote the log is gone without one; a patient follower waits for somebody to go
        on with it, and for a log that is not there yet. Raises `RunNotFound` where there is no log.

        With `deltas` it also gives, where this process has them, pieces of messages that are being made. Each comes
        after the event that it follows, and before the message that it is a piece of; some may be missing.
        """
        ...


class LogUpdate(msgspec.Struct, frozen=True, kw_only=True):
    """What a log has that its views do not have yet."""

    entries: list[Entry] = []
    """About a chunk of the events that follow; there may be more. Empty where there are none for now."""
    reset: Reset | None = None
    """Set where the log ends before the place that was asked for; `entries` is empty then. A log that has lost its end
    and has grown past that place again is not noticed."""
    is_missing: bool = False
    """Whether there is no such log."""
    has_writer: bool = False
    """Whether a process had the log open for writing before it was read."""


class LogFeed(Protocol):
    """What keeps views up to date asks of all logs, whoever writes them."""

    async def run_ids(self, known: Collection[str] = ()) -> list[str]:
        """Every run that has a log with an event in it, except those that are known, by when they began."""
        ...

    async def updates(self, places: Mapping[str, int], *, limit: int) -> dict[str, LogUpdate]:
        """What the logs of these runs have after the `seq` of each, about `limit` events altogether.

        A run that was not looked at, since there were enough events before it, is left out. So is a log that cannot be
        read just now.
        """
        ...

    async def opened_logs(self, after: int) -> tuple[list[str], int]:
        """The runs whose logs were opened or deleted after the mark `after`, and the mark of now.

        The mark 0 is before everything, and so is a mark that this storage never gave. Runs may be named that were
        named before. One process keeps the views of a storage: what it has forgotten is named to nobody.
        """
        ...

    async def forget_opened_logs(self, feed_position: int) -> int:
        """Forget the announcements up to `feed_position` if there is none after it; return the position to continue from."""
        ...


class RunDeleted(msgspec.Struct, frozen=True):
    """A run that was deleted."""

    run_id: str


class RowChanges(Protocol):
    """Live changes of rows, for whoever shows lists."""

    def subscribe(self) -> AbstractAsyncContextManager[AsyncIterator[list[RunItem | RunDeleted]]]:
        """The rows that changed, newest state, as they change; for a slow reader changes of one run are joined."""
        ...

    async def publish_rows(self, *run_ids: str) -> None:
        """Passes on rows that have changed in what their logs do not say, as a pin."""
        ...


class Logs(Protocol):
    @property
    def masks(self) -> bool:
        """Whether something is masked in what is recorded."""
        ...

    def open(self, run_id: str, *, parent_run_id: str | None = None) -> AbstractAsyncContextManager[Log]:
        """The log of a run, made if there is none, repaired if a crash tore it.

        Raises `LogBusy` where another process has it open for writing, `InvalidRunId`, `StorageError`.
        """
        ...

    async def delete(self, run_id: str) -> None:
        """Delete a log with everything that was set aside of it. Nothing where there is none."""
        ...

    async def announce_deletion(self, run_id: str) -> None:
        """Have `LogFeed.opened_logs` name a run whose log and row are gone. Does nothing on a full disk."""
        ...

    def headroom_bytes(self) -> int:
        """Bytes that can still be written before runs have to end; less than 0 where they have to now."""
        ...


async def parent_of(logs: LogReader, run_id: str) -> str | None:
    """The run that called this one, from its log."""
    entries = await logs.page(run_id, limit=1)
    return decode(entries[0].raw).parent_run_id if entries else None


async def child_on_path_to(logs: LogReader, run_id: str, below: str) -> str | None:
    """The run that `run_id` called and that leads to the run `below`; None where `below` is not in its tree."""
    child = below
    for _ in range(SUB_RUN_DEPTH):
        parent = await parent_of(logs, child)
        if parent is None or parent == run_id:
            return child if parent is not None else None
        child = parent
    return None
