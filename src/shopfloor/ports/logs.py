"""Logs: where a run's events go."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Protocol

import msgspec

from shopfloor.limits import SUB_RUN_DEPTH
from shopfloor.log import Delta, Entry, Payload, decode
from shopfloor.ports.store import RunItem
from shopfloor.record import Masking, Reset


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
        """Returns when the log's authority has the event. `at` is its time, where it is not that of writing."""
        ...

    @property
    def on_disk(self) -> bool:
        """Whether a power cut would take nothing of what was appended."""
        ...

    async def force(self) -> None:
        """Returns when all that was appended is on disk."""
        ...

    def append_now(self, payload: Payload) -> Entry:
        """Append without the event loop, from any thread."""
        ...

    def tell(self, delta: Delta) -> None:
        """Passes on text as it is being typed, to whoever follows with deltas. It is not kept."""
        ...


class LogCopy(Protocol):
    """The bytes of a log at one moment."""

    @property
    def size(self) -> int: ...

    def pieces(self) -> AsyncIterator[bytes]:
        """All of them, a piece at a time; to be called once. Fewer where the log has lost its end meanwhile."""
        ...


class LogReader(Protocol):
    """Logs as anybody may read them, whoever writes them."""

    async def page(self, run_id: str, *, after: int = 0, before: int | None = None, limit: int) -> list[Entry] | None:
        """The events with `after < seq < before`, the first `limit` of them; None where there is no such log.

        With `before` and no `after`, it is the last `limit` of them: the page that stands above it.
        """
        ...

    def is_attended(self, run_id: str, host: str | None) -> bool:
        """Whether a process works on the run: one writes its log, or `host`, of its newest attempt, is alive."""
        ...

    def batches(self, run_id: str, *, after: int = 0) -> AsyncIterator[list[Entry]]:
        """What the log holds after `after`, in order, read a piece at a time. Raises `RunNotFound`."""
        ...

    async def copy(self, run_id: str) -> LogCopy | None:
        """The log's bytes as they are now, up to the end of its last whole line; None where there is no such log."""
        ...

    def follow(
        self, run_id: str, *, after: int = 0, deltas: bool = False, patient: bool = False
    ) -> AsyncIterator[list[Entry | Reset | Delta]]:
        """What the log holds after `after` and then what comes, in order, none twice, in batches as they are there.

        An empty batch says that nothing came for a while, so that whoever sends can show that it lives. It ends with
        the outcome, or when whoever wrote the log is gone without one; a patient follower waits for somebody to go
        on with it, and for a log that is not there yet. Raises `RunNotFound` where there is no log.

        With `deltas` it also gives, where this process has them, pieces of messages that are being made. Each comes
        after the event that it follows, and before the message that it is a piece of; some may be missing.
        """
        ...


class Gone(msgspec.Struct, frozen=True):
    """A run that was deleted."""

    run_id: str


class Changes(Protocol):
    """Live changes of rows, for whoever shows lists."""

    def subscribe(self) -> AbstractAsyncContextManager[AsyncIterator[list[RunItem | Gone]]]:
        """The rows that changed, newest state, as they change; for a slow reader changes of one run are joined."""
        ...

    async def tell(self, *run_ids: str) -> None:
        """Passes on rows that have changed in what their logs do not say, as a pin."""
        ...


class Logs(Protocol):
    @property
    def masks(self) -> bool:
        """Whether something is masked in what is recorded."""
        ...

    def open(self, run_id: str, *, parent_run_id: str | None = None) -> AbstractAsyncContextManager[Log]:
        """The log of a run, made if there is none, repaired if a crash tore it."""
        ...

    def room(self) -> int:
        """Bytes that can still be written before runs have to end; less than 0 where they have to now."""
        ...


async def parent_of(logs: LogReader, run_id: str) -> str | None:
    """The run that called this one, from its log."""
    entries = await logs.page(run_id, limit=1)
    return decode(entries[0].raw).parent_run_id if entries else None


async def child_towards(logs: LogReader, run_id: str, below: str) -> str | None:
    """The run that `run_id` called and that leads to the run `below`; None where `below` is not in its tree."""
    child = below
    for _ in range(SUB_RUN_DEPTH):
        parent = await parent_of(logs, child)
        if parent is None or parent == run_id:
            return child if parent is not None else None
        child = parent
    return None
