"""Logs: writing and reading the events of runs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Protocol

import msgspec

from shopfloor.limits import SUB_RUN_DEPTH
from shopfloor.log import Delta, Entry, Masking, Payload, Reset, decode
from shopfloor.ports.store import RunItem


class Log(Protocol):
    """The log of one run, open for writing. No other process can write it meanwhile."""

    @property
    def run_id(self) -> str: ...

    @property
    def seq(self) -> int:
        """The `seq` of the last event; 0 if the log is empty."""
        ...

    @property
    def mask(self) -> Masking | None:
        """The masking of secrets. Code that joins or cuts text before writing it must mask the text itself."""
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
        """Append an event and return its entry when the storage of the log has it.

        The outcome and `step.*` events are durable at that point. `at` is the event's time, if it differs from the time
        of writing. Raises `InvalidEvent`, `RunEnded`, `LogClosed`, `StorageError`, and `LogBusy` if another host has
        taken the log over: the event is not in the log then.
        """
        ...

    @property
    def is_durable(self) -> bool:
        """Whether all appended events would survive a crash and a power cut."""
        ...

    async def make_durable(self) -> None:
        """Return when all appended events are durable."""
        ...

    def append_now(self, payload: Payload) -> Entry:
        """Append an event without the event loop, from any thread. Blocks while the storage does."""
        ...

    def publish_delta(self, delta: Delta) -> None:
        """Send a part of a message to followers with `deltas`. It is not stored."""
        ...


class LogCopy(Protocol):
    """The bytes of a log at one moment."""

    @property
    def size(self) -> int: ...

    def chunks(self) -> AsyncIterator[bytes]:
        """Yield the bytes in chunks.

        Call this once. Yields fewer than `size` if the log was truncated or deleted meanwhile.
        """
        ...


class LogReader(Protocol):
    """Read access to all logs. An event is readable in every process when `append` has returned.

    Every method raises `InvalidRunId` for a malformed run id.
    """

    async def page(self, run_id: str, *, after: int = 0, before: int | None = None, limit: int) -> list[Entry] | None:
        """Return the first `limit` events with `after < seq < before`, or None if there is no such log.

        With `before` and no `after`, return the last `limit` of them: the page that precedes `before`.
        """
        ...

    async def has_log(self, run_id: str) -> bool: ...

    async def has_writer(self, run_id: str) -> bool:
        """Return whether a process has the log open for writing."""
        ...

    async def has_active_host(self, run_id: str, host: str | None) -> bool:
        """Return whether a process executes the run. `host` is the host of the newest attempt.

        True if a process has the log open for writing, or if `host` is alive.
        """
        ...

    async def without_host(self, hosts: Mapping[str, str | None]) -> set[str]:
        """Return those of the runs that no process executes. `hosts` are the hosts of their newest attempts."""
        ...

    def batches(self, run_id: str, *, after: int = 0) -> AsyncIterator[list[Entry]]:
        """Yield the events after `after` in order, in batches. Raises `RunNotFound`."""
        ...

    async def copy(self, run_id: str) -> LogCopy | None:
        """Return the current bytes up to the end of the last complete line, or None if there is no such log."""
        ...

    def follow(
        self, run_id: str, *, after: int = 0, deltas: bool = False, wait_for_writer: bool = False
    ) -> AsyncIterator[list[Entry | Reset | Delta]]:
        """Yield the events after `after` and then new ones as they come, in order and without duplicates, in batches.

        An empty batch means that nothing came for a while, so that a caller can send a keep-alive. The iterator ends
        with the outcome, or when the writer is gone without one. With `wait_for_writer` it waits for another process to
        resume the run, and for a log that does not exist yet; without it, a missing log raises `RunNotFound`.

        With `deltas` it also yields parts of messages that are being generated, if they are in this process. Each delta
        comes after the event that it follows and before the message that it is a part of; some may be missing.
        """
        ...


class LogUpdate(msgspec.Struct, frozen=True, kw_only=True):
    """The events of a log that are not in its views yet."""

    entries: list[Entry] = []
    """A batch of the next events; there may be more. Empty if there are none for now."""
    reset: Reset | None = None
    """Set if the log ends before the requested `seq`; `entries` is empty then. A log that was truncated and has grown
    past that `seq` again is not noticed."""
    is_missing: bool = False
    """Whether there is no such log."""
    has_writer: bool = False
    """Whether a process had the log open for writing before it was read."""


class LogFeed(Protocol):
    """All logs, as needed to keep views up to date."""

    async def run_ids(self, known: Collection[str] = ()) -> list[str]:
        """Return all runs that have at least one event, except those in `known`, in the order of their start."""
        ...

    async def updates(self, positions: Mapping[str, int], /, *, limit: int) -> dict[str, LogUpdate]:
        """Return the events of each run after the `seq` in `positions`, about `limit` events in all.

        Runs that were not reached because of `limit`, and logs that cannot be read at the moment, are left out.
        """
        ...

    async def opened_logs(self, after: int) -> tuple[list[str], int]:
        """Return the runs whose logs were opened or deleted after the feed position `after`, and the current position.

        Position 0 precedes everything, and so does a position that this storage never returned. A run may be returned
        again. Only one process keeps the views of a storage, so a forgotten run is returned to no process.
        """
        ...

    async def forget_opened_logs(self, feed_position: int) -> int:
        """Forget the opened logs up to `feed_position`, if none was opened after it.

        Return the position to continue from.
        """
        ...


class RunDeleted(msgspec.Struct, frozen=True):
    """A run that was deleted."""

    run_id: str


class RowChanges(Protocol):
    """Live changes of rows, for viewers of lists."""

    def subscribe(self) -> AbstractAsyncContextManager[AsyncIterator[list[RunItem | RunDeleted]]]:
        """Subscribe to changed rows in their newest state. For a slow reader, changes of the same run are merged."""
        ...

    async def publish_rows(self, *run_ids: str) -> None:
        """Publish rows that changed in a part that is not in their logs, such as a pin."""
        ...


class Logs(Protocol):
    """Write access to all logs."""

    @property
    def masks(self) -> bool:
        """Whether secrets are masked in what is recorded."""
        ...

    def open(self, run_id: str, *, parent_run_id: str | None = None) -> AbstractAsyncContextManager[Log]:
        """Open the log of a run; create it if there is none, repair it if a crash tore it.

        Raises `LogBusy` if another process has it open for writing, `InvalidRunId`, `StorageError`.
        """
        ...

    async def delete(self, run_id: str) -> None:
        """Delete a log and its files that were set aside. Does nothing if there is no log."""
        ...

    async def announce_deletion(self, run_id: str) -> None:
        """Make `LogFeed.opened_logs` return a run whose log and row are deleted. Does nothing if the disk is full."""
        ...

    def headroom_bytes(self) -> int:
        """Return the bytes that can be written before runs have to end; negative if they have to end now."""
        ...


async def parent_of(logs: LogReader, run_id: str) -> str | None:
    """Return the run that called this one, as its log says."""
    entries = await logs.page(run_id, limit=1)
    return decode(entries[0].raw).parent_run_id if entries else None


async def child_on_path_to(logs: LogReader, run_id: str, below: str) -> str | None:
    """Return the direct child of `run_id` that leads to the run `below`, or None if `below` is not in its tree."""
    child = below
    for _ in range(SUB_RUN_DEPTH):
        parent = await parent_of(logs, child)
        if parent is None or parent == run_id:
            return child if parent is not None else None
        child = parent
    return None
