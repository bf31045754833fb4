"""The single writer of a log: an event is written to the file first and published to subscribers afterwards."""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from enum import StrEnum
from pathlib import Path
from time import time
from types import TracebackType
from typing import Protocol

import msgspec

from shopfloor.error_factories import storage_error
from shopfloor.errors import InvalidEvent, LogClosed, LogExists, StorageError
from shopfloor.limits import GROUP_COMMIT_SECONDS, LINE_BUFFER_BYTES, SUBSCRIBER_EVENTS
from shopfloor.log import (
    CHECKS,
    ENCODE_ERRORS,
    PAYLOAD_TYPES,
    TIMESTAMP,
    Check,
    Entry,
    Line,
    MaskHook,
    Payload,
    RunCompleted,
    apply_mask,
    check_next,
    check_size,
    encode,
    encode_into,
    event_time,
    format_timestamp,
    log_busy,
    unknown_payload_error,
    validate_run_id,
)
from shopfloor.record.fanout import FanOut, SubscriberStats, Subscription
from shopfloor.record.fs import directory_sync, force_to_disk, open_for_append, try_lock
from shopfloor.record.repair import Repair, Tail, find_tail, move_torn_tail


class Durability(StrEnum):
    """How safe an event is when `Recorder.append` returns."""

    OS = "os"
    """Survives a crash of the process; the operating system decides when it reaches the disk."""
    GROUP = "group"
    """As `os`, and forced to disk at most 50 ms later; immediately at step boundaries and at the outcome."""
    EVENT = "event"
    """Forced to disk before the event is acknowledged."""


class Syncable(Protocol):
    """A file with writes that are not on disk yet."""

    def sync_pending(self) -> None: ...


class GroupCommit:
    """One thread per process that forces all pending writes to disk at an interval."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pending: set[Syncable] = set()
        self._has_pending = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, target: Syncable) -> None:
        """Sync `target` within `GROUP_COMMIT_SECONDS`. Does not block."""
        with self._lock:
            self._pending.add(target)
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="shopfloor-group-commit", daemon=True)
                self._thread.start()
        self._has_pending.set()

    def _run(self) -> None:
        pause = threading.Event()
        while True:
            self._has_pending.wait()
            pause.wait(GROUP_COMMIT_SECONDS)
            with self._lock:
                targets, self._pending = self._pending, set()
                self._has_pending.clear()
            for target in targets:
                target.sync_pending()


group_commit = GroupCommit()


_END = ord("\n")
_OUTCOME = RunCompleted.event_type
_SYNCED_TYPE_PREFIXES: dict[Durability, tuple[str, ...]] = {
    Durability.OS: (),
    Durability.GROUP: (_OUTCOME, "step."),
    Durability.EVENT: ("",),
}
"""Prefixes of the types of events that are forced to disk before they are acknowledged."""

_TYPE_INFO: dict[Durability, dict[type, tuple[Check, str, bool, bool]]] = {
    durability: {
        cls: (CHECKS[cls], name, name.startswith(prefixes), name == _OUTCOME) for name, cls in PAYLOAD_TYPES.items()
    }
    for durability, prefixes in _SYNCED_TYPE_PREFIXES.items()
}
"""For `append`, in one lookup per payload class: its check, its event type, whether it is synced at once, whether it is
the outcome."""


class RecorderStats(msgspec.Struct, frozen=True):
    """Counters of a recorder: events and bytes written, and its subscriptions."""

    events: int
    size: int
    subscribers: list[SubscriberStats]


class Recorder:
    """Appends the events of one run to its file. Safe for any number of threads and tasks.

    `append` returns when the event has reached the recorder's durability level; only then do subscribers see it. It
    raises `InvalidEvent`, `RunEnded`, `LogClosed` or `StorageError`; then nothing is written and no `seq` is used.
    The constructor locks the file and repairs it. It raises `LogBusy` if another process writes the log, and with `new`
    `LogExists` if the log exists. `repaired` describes what the repair moved.
    """

    def __init__(
        self,
        path: Path,
        run_id: str,
        *,
        parent_run_id: str | None = None,
        durability: Durability = Durability.GROUP,
        mask: MaskHook | None = None,
        new: bool = False,
    ) -> None:
        self.path = path
        self.run_id = validate_run_id(run_id)
        self.parent_run_id = parent_run_id and validate_run_id(parent_run_id)
        self.repaired: Repair | None = None
        self._durability = durability
        self._grouped = durability is Durability.GROUP
        self._type_info = _TYPE_INFO[durability]
        # The buffer of the line that is being written: reused, which is faster than a new one per line.
        self._line = bytearray()
        self._mask = mask
        self._lock = threading.Lock()
        self._sync_lock = threading.Lock()
        self._ready = False
        self._unsynced = False
        self._syncing = False
        self._failure: OSError | None = None
        self._clock = (0.0, 0.0, "")
        self._descriptor = self._open(new=new)
        try:
            self._resume(self._repair())
        except BaseException:
            os.close(self._descriptor)
            raise

    def _open(self, *, new: bool) -> int:
        try:
            descriptor = open_for_append(self.path, new=new)
        except FileExistsError as error:
            raise LogExists(f"the run {self.run_id} already has a log") from error
        except OSError as error:
            raise storage_error(error, f"cannot open {self.path}") from error
        if not try_lock(descriptor):
            os.close(descriptor)
            raise log_busy(self.run_id)
        return descriptor

    def _repair(self) -> Tail:
        size = os.fstat(self._descriptor).st_size
        self._directory_sync = directory_sync(os.path.dirname(os.path.abspath(self.path)))  # noqa: PTH100, PTH120 - for every run
        self._name_ticket = 0 if size else self._directory_sync.ticket()
        tail = find_tail(self._descriptor, size)
        if tail.end < size:
            try:
                self.repaired = move_torn_tail(self._descriptor, self.path, tail.end, size)
            except OSError as error:
                raise storage_error(error, f"cannot repair {self.path}") from error
        return tail

    def _resume(self, tail: Tail) -> None:
        last = tail.last
        if last and last.run_id != self.run_id:
            raise InvalidEvent(f"{self.path} is the log of {last.run_id}, not of {self.run_id}")
        if last:
            self.parent_run_id = last.parent_run_id
        seq, ended = (last.seq, last.type == _OUTCOME) if last else (0, False)
        # `seq`, size and `has_ended` in one attribute, so that no interruption can leave them inconsistent.
        self._written: tuple[int, int, bool] = (seq, tail.end, ended)
        self._newest_timestamp = last.timestamp if last and TIMESTAMP.fullmatch(last.timestamp) else ""
        self._fanout = FanOut(seq)

    @property
    def seq(self) -> int:
        """The `seq` of the last event; 0 while the log is empty."""
        return self._written[0]

    @property
    def has_ended(self) -> bool:
        """Whether the last event is the outcome."""
        return self._written[2]

    def waits_for_disk(self, payload: Payload) -> bool:
        """Return whether `append` of this payload blocks until the event is forced to disk."""
        return payload.event_type.startswith(_SYNCED_TYPE_PREFIXES[self._durability])

    def append(
        self,
        payload: Payload,
        *,
        path: str = "",
        iteration: int = 0,
        child_run_id: str | None = None,
        at: str | None = None,
    ) -> Entry:
        """Append one event at the time `at` (see `event_time`) or now. After an error nothing is written."""
        if self._mask is not None:
            payload = apply_mask(self._mask, payload)
        try:
            check, event_type, durable, outcome = self._type_info[type(payload)]
        except KeyError:
            raise unknown_payload_error(payload) from None
        check(payload, path, iteration, child_run_id)
        with self._lock:
            if not self._ready:
                self._prepare(payload)
            # False until this event is finished: after Ctrl-C in between, the next append repairs the file.
            self._ready = False
            seq, size, _ = self._written
            seq += 1
            since, until, timestamp = self._clock
            if not since <= (now := time()) < until:
                timestamp = self._format_now(now)
            if at is not None or timestamp < self._newest_timestamp:
                timestamp, payload = event_time(self._newest_timestamp, timestamp, at, payload)
            event = Line(
                seq=seq,
                run_id=self.run_id,
                parent_run_id=self.parent_run_id,
                child_run_id=child_run_id,
                type=event_type,
                path=path,
                iteration=iteration,
                timestamp=timestamp,
                payload=payload,
            )
            line = self._line
            try:
                encode_into(event, line)
            except ENCODE_ERRORS:
                line[:] = encode(event)
            raw = b"" + line  # same as `bytes(line)`, in half the time
            line.append(_END)
            length = len(line)
            if length > LINE_BUFFER_BYTES:
                self._line = bytearray()
                check_size(event, length)
            try:
                # If the disk fills up in the middle of a line, `write` returns a smaller count and raises no error.
                is_short = os.write(self._descriptor, line) != length
                if is_short or durable:
                    self._sync_line(is_short=is_short)
            except OSError as error:
                raise self._undo(error) from error
            self._written, self._newest_timestamp = (seq, size + length, outcome), timestamp
            if not self._unsynced and self._grouped and not durable:
                self._unsynced = True
                group_commit.add(self)
            entry = Entry(seq, event_type, raw)
            self._fanout.publish(entry)
            self._ready = not outcome
            # Checked after setting `_ready`, so that a concurrent failure of the sync thread is not lost.
            if self._failure is not None:
                self._ready = False
        return entry

    def _format_now(self, now: float) -> str:
        """Return the timestamp of this millisecond, and keep it for the next events of the same millisecond."""
        ms = int(now * 1000)
        text = format_timestamp(ms)
        self._clock = (ms / 1000, (ms + 1) / 1000, text)
        return text

    def _prepare(self, payload: Payload) -> None:
        """Do the checks that not every event needs: that the payload may follow, and that the file is intact."""
        seq, size, ended = self._written
        if self._descriptor < 0:
            raise LogClosed(f"the log of {self.run_id} is closed")
        check_next(self.run_id, seq, payload, has_ended=ended)
        if self._failure is not None or os.fstat(self._descriptor).st_size != size:
            self._recover()

    def _sync_line(self, *, is_short: bool) -> None:
        """Force the line that was just written to disk. Raises ENOSPC if only a part of the line was written."""
        if is_short:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        now = os.fstat(self._descriptor)
        if now.st_nlink == 0 or now.st_size <= self._written[1]:
            raise OSError(errno.EIO, "another process deleted or truncated the file")
        self._force()
        self._unsynced = False

    def _force(self) -> None:
        force_to_disk(self._descriptor)
        if self._name_ticket:
            # Content on disk is lost if the file's name is not on disk too.
            self._directory_sync.sync(self._name_ticket)
            self._name_ticket = 0

    def _undo(self, error: OSError) -> StorageError:
        """Truncate what was written of a failed line, and return the error to raise."""
        try:
            self._truncate_to_written()
        except OSError as truncate_error:
            self._failure = truncate_error
        return storage_error(error, f"cannot write to {self.path}")

    def _truncate_to_written(self) -> None:
        size, written = os.fstat(self._descriptor).st_size, self._written[1]
        if size < written:
            raise OSError(errno.EIO, "another process truncated the file")
        os.ftruncate(self._descriptor, written)

    def _recover(self) -> None:
        """Truncate incomplete bytes after a failure or an interruption, before anything else is written."""
        try:
            self._truncate_to_written()
            self._force()
        except OSError as error:
            raise storage_error(error, f"cannot write to {self.path}") from error
        self._failure = None

    def sync_pending(self) -> None:
        """Force to disk what was written since the last sync. Called by the thread of the group commit."""
        with self._sync_lock:
            if self._descriptor < 0 or not self._unsynced:
                return
            self._syncing, self._unsynced = True, False
            try:
                self._force()
            except OSError as error:
                self._failure = error
                self._ready = False
            finally:
                self._syncing = False

    def make_durable(self) -> None:
        """Force everything that was written to disk. Raises `StorageError` if that fails."""
        self.sync_pending()
        with self._lock:
            if self._failure is not None:
                self._recover()

    @property
    def is_on_disk(self) -> bool:
        """Whether everything written is as durable as the durability level demands."""
        return not (self._unsynced or self._syncing or self._failure)

    def subscribe(self, name: str | None = None, capacity: int = SUBSCRIBER_EVENTS) -> Subscription:
        """Subscribe to live events, from the next one on."""
        with self._lock:
            return self._fanout.subscribe(name, capacity)

    def stats(self) -> RecorderStats:
        return RecorderStats(*self._written[:2], self._fanout.stats())

    def close(self) -> None:
        """Force the log to disk, release it and end the subscriptions. Calling twice is fine."""
        with self._lock:
            if self._descriptor < 0:
                return
            if self._durability is not Durability.OS:
                self.sync_pending()
            with self._sync_lock:
                descriptor, self._descriptor = self._descriptor, -1
                self._ready = False
                with contextlib.suppress(OSError):
                    os.close(descriptor)
            self._fanout.close()

    def __enter__(self) -> Recorder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
