"""Reading a log: lazily, from any `seq`, while somebody writes it, and whatever a crash left in it."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import stat
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Annotated

import msgspec

from shopfloor.decoding import json_decoder
from shopfloor.errors import FileMissing, storage_error
from shopfloor.limits import (
    FOLLOW_POLL_MAX_SECONDS,
    FOLLOW_POLL_MIN_SECONDS,
    LOG_LINE_BYTES,
    PROBE_CHUNK_BYTES,
    READ_CHUNK_BYTES,
    SHARED_CHUNK_BYTES,
    SHARED_CHUNKS,
)
from shopfloor.log import PAYLOAD_TYPES, Entry, Reset, RunCompleted
from shopfloor.record.repair import find_tail, line_start

_log = logging.getLogger("shopfloor.record")


class Problem(msgspec.Struct, frozen=True):
    """Something in a log that was not understood. An event that has one is passed on all the same."""

    offset: int
    reason: str


ProblemHandler = Callable[[Problem], None]


_LAST_SEQ = 2**53
"""No log has so many events: a larger number is damage, and nothing that others would have to cope with."""


class _Head(msgspec.Struct):
    seq: Annotated[int, msgspec.Meta(le=_LAST_SEQ)]
    type: str


_decode_head = json_decoder(_Head).decode
_MARK_BYTES = 256
_OUTCOME = RunCompleted.event_type
_find_seq = re.compile(rb'\{"seq":(\d+),').match


class _Mark(msgspec.Struct, frozen=True):
    """The last line that was read: where it is, and how it begins.

    Its number and its time tell it from any other line that may come to stand there.
    """

    start: int
    end: int
    data: bytes


class _Chunk(msgspec.Struct, frozen=True):
    """What a poll gave, and where it led."""

    entries: list[Entry | Reset]
    offset: int
    seq: int
    mark: _Mark


class ReadCache:
    """What cursors have read, for others that come the same way: a hundred watchers of a run parse it once.

    The newest chunks, and whole ones only: what is being written is read by each for itself.
    """

    def __init__(self, max_chunks: int = SHARED_CHUNKS) -> None:
        self._most = max_chunks
        self._chunks: OrderedDict[tuple[int, ...], _Chunk] = OrderedDict()

    def __len__(self) -> int:
        return len(self._chunks)

    def find(self, place: tuple[int, ...]) -> _Chunk | None:
        return self._chunks.get(place)

    def put(self, place: tuple[int, ...], chunk: _Chunk) -> None:
        self._chunks[place] = chunk
        if len(self._chunks) > self._most:
            self._chunks.popitem(last=False)


class Cursor:
    """A place in a log. `poll()` gives the whole lines after it, about a chunk at a time, and moves on."""

    def __init__(
        self,
        path: Path,
        after: int = 0,
        *,
        on_problem: ProblemHandler | None = None,
        read_cache: ReadCache | None = None,
        chunk_bytes: int = READ_CHUNK_BYTES,
    ) -> None:
        self.path = path
        self.seq = after
        self._chunk_bytes = chunk_bytes
        self._report = on_problem or _warn
        self._shared = read_cache
        try:
            # Not waiting: a pipe in the place of a file would be waited for, for ever.
            self.descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        except FileNotFoundError as error:
            raise FileMissing(f"there is no file {path}") from error
        except OSError as error:
            raise storage_error(error, f"cannot read {path}", reading=True) from error
        status = os.fstat(self.descriptor)
        mode, self._file = status.st_mode, (status.st_dev, status.st_ino)
        if not stat.S_ISREG(mode):
            self.close()
            raise FileMissing(f"{path} is a {'folder' if stat.S_ISDIR(mode) else 'device'}, not a transcript")
        self._offset = 0
        self._mark: _Mark | None = None

    def poll(self) -> list[Entry | Reset]:
        """The next events; an empty list where there are none for now. The list may be others' too: read it only."""
        if not self._stands():
            reset = self._rewind()
            if reset:
                return reset
        if self._shared is None:
            return self._read()
        place = (*self._file, self._offset, self.seq)
        chunk = self._shared.find(place)
        if chunk is not None and self._holds(chunk.mark):
            self._offset, self.seq, self._mark = chunk.offset, chunk.seq, chunk.mark
            return chunk.entries
        began, entries = self._offset, self._read()
        if self._mark and READ_CHUNK_BYTES // 2 < self._offset - began <= SHARED_CHUNK_BYTES:
            self._shared.put(place, _Chunk(entries, self._offset, self.seq, self._mark))
        return entries

    def advance(self, entry: Entry) -> None:
        """Move behind an event that its writer gave us: the next. Whether it stands there is checked by `poll`."""
        line = entry.raw + b"\n"
        self.seq, start = entry.seq, self._offset
        self._offset += len(line)
        self._mark = _Mark(start, self._offset, line[:_MARK_BYTES])

    def _read(self) -> list[Entry | Reset]:
        entries: list[Entry | Reset] = []
        while not entries and (lines := self._lines()):
            for raw in lines:
                entry = self._entry(raw)
                if entry is not None and entry.seq > self.seq:
                    entries.append(entry)
                    self.seq = entry.seq
                self._offset += len(raw) + 1
            last = lines[-1] + b"\n"
            self._mark = _Mark(self._offset - len(last), self._offset, last[:_MARK_BYTES])
        return entries

    def _stands(self) -> bool:
        """Whether what we read last still stands before our place: a repair or a power cut may have taken it."""
        return self.seq == 0 if self._mark is None else self._holds(self._mark)

    def _holds(self, mark: _Mark) -> bool:
        if not mark.end:
            return True
        whole = os.pread(self.descriptor, 1, mark.end - 1) == b"\n"
        return whole and os.pread(self.descriptor, len(mark.data), mark.start) == mark.data

    def _rewind(self) -> list[Entry | Reset]:
        """Finds our place anew, by `seq`; or the end of the log, where it ends before that."""
        last = find_tail(self.descriptor, os.fstat(self.descriptor).st_size).last
        end = last.seq if last else 0
        reset: list[Entry | Reset] = [Reset(end)] if end < self.seq else []
        self.seq = min(self.seq, end)
        self._offset = self._find(self.seq)
        self._mark = _Mark(self._offset, self._offset, b"")
        return reset

    def _lines(self) -> list[bytes]:
        """The whole lines from the offset on, about a chunk of them, without their ends.

        A half line is read again next time rather than kept: its writer may yet take it back.
        """
        size = self._chunk_bytes
        while True:
            chunk = os.pread(self.descriptor, size, self._offset)
            end = chunk.rfind(b"\n")
            if end >= 0:
                return chunk[:end].split(b"\n")
            if len(chunk) < size or (size > LOG_LINE_BYTES and not self._pass_over()):
                return []
            size = self._chunk_bytes if size > LOG_LINE_BYTES else min(size * 4, LOG_LINE_BYTES + 1)

    def _pass_over(self) -> bool:
        """Goes past bytes that are too many for a line; False where they go on to the end of the file."""
        after = self._next_line(self._offset)
        if os.pread(self.descriptor, 1, after - 1) != b"\n":
            return False
        self._report(Problem(self._offset, f"{after - self._offset:,} bytes are no line"))
        self._offset = after
        return True

    def _entry(self, raw: bytes) -> Entry | None:
        try:
            head = _decode_head(raw)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            self._report(Problem(self._offset, f"not an event: {error}"))
            return None
        if head.type not in PAYLOAD_TYPES:
            self._report(Problem(self._offset, f"unknown event type {head.type!r}"))
        return Entry(head.seq, head.type, raw)

    def _find(self, after: int) -> int:
        """The offset of a line at or shortly before the first whose `seq` is over `after`, by bisecting."""
        if after <= 0:
            return 0
        low, high = 0, os.fstat(self.descriptor).st_size
        while high - low > PROBE_CHUNK_BYTES:
            middle = (low + high) // 2
            found = self._first_seq(middle, high)
            if found and found[1] <= after:
                low = found[0]
            else:
                high = middle
        return low

    def _first_seq(self, start: int, end: int) -> tuple[int, int] | None:
        """Offset and `seq` of the first readable line that begins after `start` and before `end`."""
        while (offset := self._next_line(start)) < end:
            match = _find_seq(os.pread(self.descriptor, 32, offset))
            if match:
                return offset, int(match[1])
            with contextlib.suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                line = os.pread(self.descriptor, self._next_line(offset) - offset, offset)
                return offset, _decode_head(line).seq
            start = offset
        return None

    def _next_line(self, offset: int) -> int:
        """The offset after the first LF at or after `offset`; the end of the file where there is none."""
        while chunk := os.pread(self.descriptor, PROBE_CHUNK_BYTES, offset):
            found = chunk.find(b"\n")
            if found >= 0:
                return offset + found + 1
            offset += len(chunk)
        return offset

    def close(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def __enter__(self) -> Cursor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _warn(problem: Problem) -> None:
    _log.warning("at byte %d: %s", problem.offset, problem.reason)


def _ignore(problem: Problem) -> None:
    """For whoever looks at one event only: the others' problems are none of its business."""


def read(
    path: Path,
    *,
    after: int = 0,
    before: int | None = None,
    limit: int | None = None,
    on_problem: ProblemHandler | None = None,
) -> Iterator[Entry]:
    """The events with `after < seq < before` that the log holds now, at most `limit` of them."""
    left = limit if limit is not None else -1
    # Of a single event's neighbours nobody wants to know.
    size = PROBE_CHUNK_BYTES if limit == 1 else READ_CHUNK_BYTES
    with Cursor(path, after, on_problem=on_problem, chunk_bytes=size) as cursor:
        while left and (entries := cursor.poll()):
            for entry in entries:
                if isinstance(entry, Reset) or not left or (before is not None and entry.seq >= before):
                    return
                yield entry
                left -= 1


def last_entry(path: Path) -> Entry | None:
    """The last whole event of a log, however long the log is."""
    with Cursor(path, on_problem=_ignore) as cursor:
        tail = find_tail(cursor.descriptor, os.fstat(cursor.descriptor).st_size)
        if tail.last is None:
            return None
        start = line_start(cursor.descriptor, tail.end - 1)
        return Entry(tail.last.seq, tail.last.type, os.pread(cursor.descriptor, tail.end - 1 - start, start))


def complete_bytes(path: Path) -> int:
    """How many bytes of a log are whole lines. Those that nobody understands count too: they are its bytes."""
    with Cursor(path, on_problem=_ignore) as cursor:
        return line_start(cursor.descriptor, os.fstat(cursor.descriptor).st_size)


def follow(
    path: Path, *, after: int = 0, done: Callable[[], bool] | None = None, on_problem: ProblemHandler | None = None
) -> Iterator[Entry | Reset]:
    """The events after `after`, and then those that come, until the outcome or until `done` says so."""
    pause = FOLLOW_POLL_MIN_SECONDS
    last = last_entry(path)
    if last is not None and last.type == _OUTCOME and last.seq <= after:
        return
    with Cursor(path, after, on_problem=on_problem) as cursor:
        while True:
            # Asked before reading: what was written before the writer went away is still given.
            over = done is not None and done()
            entries = cursor.poll()
            for entry in entries:
                yield entry
                if isinstance(entry, Entry) and entry.type == _OUTCOME:
                    return
            if entries:
                pause = FOLLOW_POLL_MIN_SECONDS
            elif over:
                return
            else:
                time.sleep(pause)
                pause = min(pause * 1.5, FOLLOW_POLL_MAX_SECONDS)
