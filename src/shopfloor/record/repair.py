"""What a crash left at the end of a log, and setting it aside."""

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
    """A torn tail that was set aside."""

    torn_path: Path
    size: int


class Tail(msgspec.Struct, frozen=True):
    """Where the whole lines of a log end, and the last event among them."""

    end: int
    last: Event | None


def find_tail(descriptor: int, size: int) -> Tail:
    """The end of the last line that is whole and is an event.

    A power cut can leave more than a torn line: pages that were never written read as zeros. So lines are
    given up from the end until one is an event.
    """
    end = line_start(descriptor, size)
    while end:
        start = line_start(descriptor, end - 1)
        with contextlib.suppress(InvalidEvent):
            return Tail(end, decode(os.pread(descriptor, end - 1 - start, start)))
        end = start
    return Tail(0, None)


def line_start(descriptor: int, before: int) -> int:
    """The offset after the last LF that stands before `before`; 0 where there is none."""
    high = before
    while high:
        low = max(0, high - PROBE_CHUNK_BYTES)
        found = os.pread(descriptor, high - low, low).rfind(b"\n")
        if found >= 0:
            return low + found + 1
        high = low
    return 0


def move_torn_tail(descriptor: int, path: Path, end: int, size: int) -> Repair:
    """Moves the bytes after `end` into a file beside the log. The copy is safe before the log is cut."""
    torn_path = _free_name(path)
    copy = open_for_append(torn_path, new=True)
    try:
        offset = end
        while offset < size:
            offset += os.write(copy, os.pread(descriptor, min(READ_CHUNK_BYTES, size - offset), offset))
        os.fsync(copy)
    finally:
        os.close(copy)
    os.ftruncate(descriptor, end)
    _log.warning("%s ended in %d torn bytes; they are set aside in %s", path.name, size - end, torn_path.name)
    return Repair(torn_path, size - end)


def torn_files(path: Path) -> list[Path]:
    """What was set aside of a log, by name: nobody has to list a folder of a million files to find it."""
    return list(takewhile(Path.exists, _names(path)))


def _free_name(path: Path) -> Path:
    return next(name for name in _names(path) if not name.exists())


def _names(path: Path) -> Iterator[Path]:
    """`<run-id>.torn`, numbered from the second on; never a name that ends in .jsonl."""
    yield path.with_suffix(".torn")
    yield from (path.with_suffix(f".torn-{number}") for number in count(2))
