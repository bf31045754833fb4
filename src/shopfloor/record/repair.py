"""Repair of a log: find the torn bytes that a crash left at its end and move them to a file beside it."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator
from itertools import count, takewhile
from pathlib import Path

import msgspec

from shopfloor.errors import InvalidEvent
from shopfloor.limits import PROBE_CHUNK_BYTES, READ_CHUNK_BYTES
from shopfloor.log import Event, decode
from shopfloor.record.fs import open_for_append

_log = logging.getLogger("shopfloor.record")


class Repair(msgspec.Struct, frozen=True):
    """A torn tail that was moved out of a log."""

    torn_path: Path
    size: int


class Tail(msgspec.Struct, frozen=True):
    """The offset at which the complete lines of a log end, and the last event among them."""

    end: int
    last: Event | None


def find_tail(descriptor: int, size: int) -> Tail:
    """Find the last line that is complete and decodes to an event.

    A power cut can leave more than a torn line: pages that were never written read as zeros. So lines are
    skipped from the end of the file until one is an event.
    """
    end = line_start(descriptor, size)
    while end:
        start = line_start(descriptor, end - 1)
        with contextlib.suppress(InvalidEvent):
            return Tail(end, decode(os.pread(descriptor, end - 1 - start, start)))
        end = start
    return Tail(0, None)


def line_start(descriptor: int, before: int) -> int:
    """Return the offset after the last LF before the offset `before`, or 0 without an LF."""
    high = before
    while high:
        low = max(0, high - PROBE_CHUNK_BYTES)
        found = os.pread(descriptor, high - low, low).rfind(b"\n")
        if found >= 0:
            return low + found + 1
        high = low
    return 0


def move_torn_tail(descriptor: int, path: Path, end: int, size: int) -> Repair:
    """Move the bytes after `end` into a file beside the log. The copy is on disk before the log is truncated."""
    torn_path = _unused_torn_path(path)
    copy = open_for_append(torn_path, new=True)
    try:
        offset = end
        while offset < size:
            offset += os.write(copy, os.pread(descriptor, min(READ_CHUNK_BYTES, size - offset), offset))
        os.fsync(copy)
    finally:
        os.close(copy)
    os.ftruncate(descriptor, end)
    _log.warning("%s ended with an incomplete line of %d bytes; moved it to %s", path.name, size - end, torn_path.name)
    return Repair(torn_path, size - end)


def torn_files(path: Path) -> list[Path]:
    """Return the files that torn tails of this log were moved to.

    The names are tried in order, since listing a folder of a million files would be slow.
    """
    return list(takewhile(Path.exists, _torn_paths(path)))


def _unused_torn_path(path: Path) -> Path:
    return next(name for name in _torn_paths(path) if not name.exists())


def _torn_paths(path: Path) -> Iterator[Path]:
    """Iterate over the candidates: `<run-id>.torn`, then `<run-id>.torn-2` and so on.

    No candidate ends in .jsonl, so that none is taken for a log.
    """
    yield path.with_suffix(".torn")
    yield from (path.with_suffix(f".torn-{number}") for number in count(2))
