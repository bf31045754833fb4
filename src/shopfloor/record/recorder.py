"""The one writer of a log: disk first, then everybody else."""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from pathlib import Path
from time import time
from types import TracebackType

import msgspec

from shopfloor.errors import (
    InvalidEvent,
    LogClosed,
    LogExists,
    StorageError,
    storage_error,
)
from shopfloor.limits import LINE_BUFFER_BYTES, SUBSCRIBER_EVENTS
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
from shopfloor.record.durability import Durability, group_commit
from shopfloor.record.fanout import FanOut, SubscriberStats, Subscription
from shopfloor.record.fs import directory_sync, force_to_disk, open_for_append, try_lock
from shopfloor.record.repair import Repair, Tail, find_tail, move_torn_tail

_END = ord("\n")
_OUTCOME = RunCompleted.event_type
_DURABLE_AT_ONCE: dict[Durability, tuple[str, ...]] = {
    Durability.OS: (),
    Durability.GROUP: (_OUTCOME, "step."),
    Durability.EVENT: ("",),
}
"""How the types of those events begin that are forced to disk before they are acknowledged."""

_KINDS: dict[Durability, dict[type, tuple[Check, str, bool, bool]]] = {
    durability: {
        cls: (CHECKS[cls], name, name.startswith(at_once), name == _OUTCOME) for name, cls in PAYLOAD_TYPES.items()
    }
    for durability, at_once in _DURABLE_AT_ONCE.items()
}
"""All that `append` asks of a payload's class, for one look: its check, its type, is it durable at once, an outcome?"""


class RecorderStats(msgspec.Struct, frozen=True):
    events: int
    size: int
    subscribers: list[SubscriberStats]


class Recorder:
    """Appends the events of one run to its file. Safe from any number of threads and tasks at once.

    `append` returns when the event has reached the recorder's durability level; only then does anybody else see it.
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
        self._kinds = _KINDS[durability]
        # The line that is being written. One buffer for all, which is faster than a new one for each.
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
        self._names = directory_sync(os.path.dirname(os.path.abspath(self.path)))  # noqa: PTH100, PTH120 - for every run
        self._new_name = 0 if size else self._names.ticket()
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
        # In one attribute, so that no interruption can leave them at odds.
        self._written: tuple[int, int, bool] = (seq, tail.end, ended)
        self._newest = last.timestamp if last and TIMESTAMP.fullmatch(last.timestamp) else ""
        self._fanout = FanOut(seq)

    @property
    def seq(self) -> int:
        """The `seq` of the last event; 0 while there is none."""
        return self._written[0]

    @property
    def has_ended(self) -> bool:
        """Whether the last event is the outcome."""
        return self._written[2]

    def waits_for_disk(self, payload: Payload) -> bool:
        """Whether `append` of this payload waits until it is forced to disk."""
        return payload.event_type.startswith(_DURABLE_AT_ONCE[self._durability])

    def append(
        self,
        payload: Payload,
        *,
        path: str = "",
        iteration: int = 0,
        child_run_id: str | None = None,
        at: str | None = None,
    ) -> Entry:
        """Writes one event and tells the subscribers. On an error nothing was written and no `seq` is used up.
        `at` is its time, where somebody else knows it better than our clock (see `event_time`)."""
        if self._mask is not None:
            payload = apply_mask(self._mask, payload)
        try:
            check, event_type, durable, outcome = self._kinds[type(payload)]
        except KeyError:
            raise unknown_payload_error(payload) from None
        check(payload, path, iteration, child_run_id)
        with self._lock:
            if not self._ready:
                self._prepare(payload)
            # Until this event is done with: an exception that comes from outside, as Ctrl-C does, leaves it so.
            self._ready = False
            seq, size, _ = self._written
            seq += 1
            since, until, timestamp = self._clock
            if not since <= (now := time()) < until:
                timestamp = self._tick(now)
            if at is not None or timestamp < self._newest:
                timestamp, payload = event_time(self._newest, timestamp, at, payload)
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
            raw = b"" + line  # what `bytes(line)` is, in half the time
            line.append(_END)
            length = len(line)
            if length > LINE_BUFFER_BYTES:
                self._line = bytearray()
                check_size(event, length)
            try:
                # The disk may fill up in the middle of a line: then this gives less than was asked, and no error.
                short = os.write(self._descriptor, line) != length
                if short or durable:
                    self._settle(short=short)
            except OSError as error:
                raise self._undo(error) from error
            self._written, self._newest = (seq, size + length, outcome), timestamp
            if not self._unsynced and self._grouped and not durable:
                self._unsynced = True
                group_commit.add(self)
            entry = Entry(seq, event_type, raw)
            self._fanout.publish(entry)
            self._ready = not outcome
            # After it, so that neither misses the other: forcing to disk may have failed meanwhile.
            if self._failure is not None:
                self._ready = False
        return entry

    def _tick(self, now: float) -> str:
        """The text of this millisecond, which the next events may share."""
        ms = int(now * 1000)
        text = format_timestamp(ms)
        self._clock = (ms / 1000, (ms + 1) / 1000, text)
        return text

    def _prepare(self, payload: Payload) -> None:
        """What need not be asked for every event: may this one be written, and is there something to mend first?"""
        seq, size, ended = self._written
        if self._descriptor < 0:
            raise LogClosed(f"the log of {self.run_id} is closed")
        check_next(self.run_id, seq, payload, has_ended=ended)
        if self._failure is not None or os.fstat(self._descriptor).st_size != size:
            self._mend()

    def _settle(self, *, short: bool) -> None:
        if short:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        now = os.fstat(self._descriptor)
        if now.st_nlink == 0 or now.st_size <= self._written[1]:
            raise OSError(errno.EIO, "somebody deleted or cut the file")
        self._force()
        self._unsynced = False

    def _force(self) -> None:
        force_to_disk(self._descriptor)
        if self._new_name:
            # What is on disk under a name that is not would be lost with it.
            self._names.sync(self._new_name)
            self._new_name = 0

    def _undo(self, error: OSError) -> StorageError:
        """Takes back what was written of a line that is not to count."""
        try:
            self._cut_back()
        except OSError as worse:
            self._failure = worse
        return storage_error(error, f"cannot write to {self.path}")

    def _cut_back(self) -> None:
        size, written = os.fstat(self._descriptor).st_size, self._written[1]
        if size < written:
            raise OSError(errno.EIO, "somebody cut the file")
        os.ftruncate(self._descriptor, written)

    def _mend(self) -> None:
        """After a failure or an interruption: takes back what does not count, before anything else is written."""
        try:
            self._cut_back()
            self._force()
        except OSError as error:
            raise storage_error(error, f"cannot write to {self.path}") from error
        self._failure = None

    def sync_pending(self) -> None:
        """Forces to disk what was written since the last time. Called by the group commit's thread."""
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
        """Force everything that was written to disk. Raises a `StorageError` where the disk refuses."""
        self.sync_pending()
        with self._lock:
            if self._failure is not None:
                self._mend()

    @property
    def is_on_disk(self) -> bool:
        """Whether all that was written is on disk, as far as this durability goes."""
        return not (self._unsynced or self._syncing or self._failure)

    def subscribe(self, name: str | None = None, capacity: int = SUBSCRIBER_EVENTS) -> Subscription:
        """Live events from the next one on."""
        with self._lock:
            return self._fanout.subscribe(name, capacity)

    def stats(self) -> RecorderStats:
        return RecorderStats(*self._written[:2], self._fanout.stats())

    def close(self) -> None:
        """Forces the log to disk, lets go of it and ends the subscriptions. Twice is fine."""
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
