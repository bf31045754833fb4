"""Readers of a log: lazy, from any `seq`, during writes, and tolerant of the damage that a crash leaves."""

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
from shopfloor.error_factories import storage_error
from shopfloor.errors import FileMissing
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
    """Bytes in a log that are not an event, or an event of an unknown type, which readers still return."""

    offset: int
    reason: str


ProblemHandler = Callable[[Problem], None]


_LAST_SEQ = 2**53
"""A larger `seq` is damage, since no log has so many events; readers reject it, so that their callers need not."""


class _Head(msgspec.Struct):
    seq: Annotated[int, msgspec.Meta(le=_LAST_SEQ)]
    type: str


_decode_head = json_decoder(_Head).decode
_MARK_BYTES = 256
_OUTCOME = RunCompleted.event_type
_match_seq = re.compile(rb'\{"seq":(\d+),').match


class _Mark(msgspec.Struct, frozen=True):
    """The last line that was read: its offsets and its first bytes.

    The first bytes contain `seq` and timestamp, which distinguish the line from any other written at that offset later.
    """

    start: int
    end: int
    data: bytes


class _Chunk(msgspec.Struct, frozen=True):
    """The result of one poll, and the position after it."""

    entries: list[Entry | Reset]
    offset: int
    seq: int
    mark: _Mark


class ReadCache:
    """Parsed chunks shared by cursors, so that a hundred watchers of a run parse its log once.

    Holds the newest chunks, and full ones only: each cursor reads the end of a growing log by itself.
    """

    def __init__(self, max_chunks: int = SHARED_CHUNKS) -> None:
        self._max_chunks = max_chunks
        self._chunks: OrderedDict[tuple[int, ...], _Chunk] = OrderedDict()

    def __len__(self) -> int:
        return len(self._chunks)

    def get(self, key: tuple[int, ...]) -> _Chunk | None:
        return self._chunks.get(key)

    def put(self, key: tuple[int, ...], chunk: _Chunk) -> None:
        self._chunks[key] = chunk
        if len(self._chunks) > self._max_chunks:
            self._chunks.popitem(last=False)


class Cursor:
    """A position in a log. `poll()` reads the complete lines after it, about a chunk at a time, and moves forward."""

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
        self._on_problem = on_problem or _warn
        self._read_cache = read_cache
        try:
            # O_NONBLOCK: opening a named pipe in place of a file would otherwise block forever.
            self.descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        except FileNotFoundError as error:
            raise FileMissing(f"file {path} does not exist", hint="name a transcript file or a run id") from error
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
        """Return the next events; an empty list if there are no new ones. Cursors share the list: do not change it.

        The list is `[Reset]` if the log was truncated before the position of this cursor.
        """
        if not self._is_position_valid():
            reset = self._rewind()
            if reset:
                return reset
        if self._read_cache is None:
            return self._read()
        key = (*self._file, self._offset, self.seq)
        chunk = self._read_cache.get(key)
        if chunk is not None and self._is_unchanged(chunk.mark):
            self._offset, self.seq, self._mark = chunk.offset, chunk.seq, chunk.mark
            return chunk.entries
        start, entries = self._offset, self._read()
        if self._mark and READ_CHUNK_BYTES // 2 < self._offset - start <= SHARED_CHUNK_BYTES:
            self._read_cache.put(key, _Chunk(entries, self._offset, self.seq, self._mark))
        return entries

    def advance(self, entry: Entry) -> None:
        """Move behind the next event, which the caller got from its writer. The next `poll` checks that it is there."""
        line = entry.raw + b"\n"
        self.seq, start = entry.seq, self._offset
        self._offset += len(line)
        self._mark = _Mark(start, self._offset, line[:_MARK_BYTES])

    def _read(self) -> list[Entry | Reset]:
        entries: list[Entry | Reset] = []
        while not entries and (lines := self._read_lines()):
            for raw in lines:
                entry = self._parse_entry(raw)
                if entry is not None and entry.seq > self.seq:
                    entries.append(entry)
                    self.seq = entry.seq
                self._offset += len(raw) + 1
            last = lines[-1] + b"\n"
            self._mark = _Mark(self._offset - len(last), self._offset, last[:_MARK_BYTES])
        return entries

    def _is_position_valid(self) -> bool:
        """Return whether the last line read is still in the file: a repair or a power cut may have removed it."""
        return self.seq == 0 if self._mark is None else self._is_unchanged(self._mark)

    def _is_unchanged(self, mark: _Mark) -> bool:
        if not mark.end:
            return True
        is_complete = os.pread(self.descriptor, 1, mark.end - 1) == b"\n"
        return is_complete and os.pread(self.descriptor, len(mark.data), mark.start) == mark.data

    def _rewind(self) -> list[Entry | Reset]:
        """Find the position again by `seq`. Return a `Reset` if the log now ends before it."""
        last = find_tail(self.descriptor, os.fstat(self.descriptor).st_size).last
        end = last.seq if last else 0
        reset: list[Entry | Reset] = [Reset(end)] if end < self.seq else []
        self.seq = min(self.seq, end)
        self._offset = self._find_offset(self.seq)
        self._mark = _Mark(self._offset, self._offset, b"")
        return reset

    def _read_lines(self) -> list[bytes]:
        """Return the complete lines from the offset on, about a chunk of them, without their LFs.

        An incomplete line is not kept but read again next time: its writer may still remove it.
        """
        size = self._chunk_bytes
        while True:
            chunk = os.pread(self.descriptor, size, self._offset)
            end = chunk.rfind(b"\n")
            if end >= 0:
                return chunk[:end].split(b"\n")
            if len(chunk) < size or (size > LOG_LINE_BYTES and not self._skip_oversized_line()):
                return []
            size = self._chunk_bytes if size > LOG_LINE_BYTES else min(size * 4, LOG_LINE_BYTES + 1)

    def _skip_oversized_line(self) -> bool:
        """Skip bytes that are too many for a line. Return False if they extend to the end of the file."""
        after = self._next_line(self._offset)
        if os.pread(self.descriptor, 1, after - 1) != b"\n":
            return False
        self._on_problem(Problem(self._offset, f"{after - self._offset:,} bytes without a line end"))
        self._offset = after
        return True

    def _parse_entry(self, raw: bytes) -> Entry | None:
        try:
            head = _decode_head(raw)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            self._on_problem(Problem(self._offset, f"not an event: {error}"))
            return None
        if head.type not in PAYLOAD_TYPES:
            self._on_problem(Problem(self._offset, f"unknown event type {head.type!r}"))
        return Entry(head.seq, head.type, raw)

    def _find_offset(self, after: int) -> int:
        """Return the offset of a line at or shortly before the first line with a `seq` over `after`, by bisection."""
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
        """Return offset and `seq` of the first readable line that starts after `start` and before `end`."""
        while (offset := self._next_line(start)) < end:
            match = _match_seq(os.pread(self.descriptor, 32, offset))
            if match:
                return offset, int(match[1])
            with contextlib.suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                line = os.pread(self.descriptor, self._next_line(offset) - offset, offset)
                return offset, _decode_head(line).seq
            start = offset
        return None

    def _next_line(self, offset: int) -> int:
        """Return the offset after the first LF at or after `offset`, or the end of the file without an LF."""
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
    """Discard the problem: for readers of a single event, to whom problems elsewhere do not matter."""


def read(
    path: Path,
    *,
    after: int = 0,
    before: int | None = None,
    limit: int | None = None,
    on_problem: ProblemHandler | None = None,
) -> Iterator[Entry]:
    """Iterate over the events with `after < seq < before` that the log holds now, at most `limit` of them.

    Raises `FileMissing` if the file does not exist or is not a regular file.
    """
    left = limit if limit is not None else -1
    # For a single event a small chunk is enough.
    size = PROBE_CHUNK_BYTES if limit == 1 else READ_CHUNK_BYTES
    with Cursor(path, after, on_problem=on_problem, chunk_bytes=size) as cursor:
        while left and (entries := cursor.poll()):
            for entry in entries:
                if isinstance(entry, Reset) or not left or (before is not None and entry.seq >= before):
                    return
                yield entry
                left -= 1


def last_entry(path: Path) -> Entry | None:
    """Return the last complete event of a log, in a time that does not depend on the length of the log."""
    with Cursor(path, on_problem=_ignore) as cursor:
        tail = find_tail(cursor.descriptor, os.fstat(cursor.descriptor).st_size)
        if tail.last is None:
            return None
        start = line_start(cursor.descriptor, tail.end - 1)
        return Entry(tail.last.seq, tail.last.type, os.pread(cursor.descriptor, tail.end - 1 - start, start))


def complete_bytes(path: Path) -> int:
    """Return the size of the complete lines of a log. Lines that are not events count too."""
    with Cursor(path, on_problem=_ignore) as cursor:
        return line_start(cursor.descriptor, os.fstat(cursor.descriptor).st_size)


def follow(
    path: Path, *, after: int = 0, done: Callable[[], bool] | None = None, on_problem: ProblemHandler | None = None
) -> Iterator[Entry | Reset]:
    """Iterate over the events after `after` and then over new ones, until the outcome or until `done()` is true.

    Blocks while there are no new events.
    """
    pause = FOLLOW_POLL_MIN_SECONDS
    last = last_entry(path)
    if last is not None and last.type == _OUTCOME and last.seq <= after:
        return
    with Cursor(path, after, on_problem=on_problem) as cursor:
        while True:
            # Called before reading, so that events written before the writer ended are still returned.
            is_done = done is not None and done()
            entries = cursor.poll()
            for entry in entries:
                yield entry
                if isinstance(entry, Entry) and entry.type == _OUTCOME:
                    return
            if entries:
                pause = FOLLOW_POLL_MIN_SECONDS
            elif is_done:
                return
            else:
                time.sleep(pause)
                pause = min(pause * 1.5, FOLLOW_POLL_MAX_SECONDS)
