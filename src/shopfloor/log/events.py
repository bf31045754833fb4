"""The envelope of an event, events and entries of a log, run ids and timestamps."""

from __future__ import annotations

import os
import re
import time
from functools import lru_cache

import msgspec

from shopfloor.errors import InvalidRunId
from shopfloor.log.payloads import Payload, UnknownPayload

FORMAT = 1
"""The version of the format, carried by the first `run.started`."""


class Envelope(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The fields of every line, in the order in which they are written."""

    seq: int
    """From 1, without gaps."""
    run_id: str
    """The run: a UUID v4, the same on every line and in the file's name."""
    parent_run_id: str | None = None
    """The run that called this one; on every event of a sub-run, and nowhere else."""
    child_run_id: str | None = None
    """The run that is called; on `step.call_workflow` events, and nowhere else."""
    type: str
    """One of the ten event types; it decides the shape of the payload."""
    path: str
    """The step, dot-separated, with the indexes of enclosing loops (`each.3.build`); empty at run level."""
    iteration: int
    """The iteration of the innermost loop, from 0."""
    timestamp: str
    """When the event was written: RFC 3339, UTC, milliseconds."""


class Line(Envelope, frozen=True, kw_only=True, gc=False):
    """An event about to be written."""

    payload: Payload
    """The fields of the event type."""


class Event(Envelope, frozen=True, kw_only=True):
    """An event that was read. `problems` lists the parts that were not understood; their data is kept."""

    payload: Payload | UnknownPayload
    problems: tuple[str, ...] = ()


class Entry(msgspec.Struct, frozen=True, gc=False):
    """One event of a log as readers and subscribers get it: the bytes of the log, without the LF."""

    seq: int
    type: str
    raw: bytes


class Reset(msgspec.Struct, frozen=True):
    """The log was truncated before the reader's position. The reader continues after `last`, the log's last `seq`."""

    last: int


class Gap(msgspec.Struct, frozen=True, rename={"first": "from", "last": "to"}):
    """Events that were dropped for a subscriber, first and last included. The log has them."""

    first: int
    last: int


UUID4 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
TIMESTAMP = re.compile(
    r"[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]\.[0-9]{3}Z"
)


def new_run_id() -> str:
    """Return a random UUID (version 4) as text. `uuid.uuid4` takes several times as long."""
    digits = os.urandom(16).hex()
    variant = "89ab"[int(digits[16], 16) & 3]
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:]}"


def is_run_id(text: str) -> bool:
    """Return whether `text` is a UUID v4 in lower case."""
    return UUID4.fullmatch(text) is not None


def validate_run_id(text: str) -> str:
    """Return `text` if it is a run id, else raise `InvalidRunId`: ids become file names, so no other text may pass."""
    if not is_run_id(text):
        raise InvalidRunId(f"{text!r} is not a run id", hint="a run id is a UUID v4 in lower case")
    return text


def format_timestamp(ms: int) -> str:
    """Format milliseconds since 1970 as RFC 3339 in UTC."""
    seconds, rest = divmod(ms, 1000)
    return f"{_format_second(seconds)}.{rest:03d}Z"


_DURATION = re.compile(r"(\d{1,12}(?:\.\d{1,6})?)(ms|s|m|h|d|w)?", re.ASCII)
_UNIT_SECONDS = {"ms": 0.001, "": 1, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


def parse_duration(text: str) -> float | None:
    """Return the seconds of a duration such as `90`, `45s`, `1.5h` or `2d`; None if the text is none, or is 0."""
    found = _DURATION.fullmatch(text.strip())
    return float(found[1]) * _UNIT_SECONDS[found[2] or ""] or None if found else None


@lru_cache(maxsize=2)
def _format_second(seconds: int) -> str:
    # Not with strftime, which looks up the time zone each time.
    year, month, day, hour, minute, second, *_ = time.gmtime(seconds)
    return f"{year:04d}-{month:02d}-{day:02d}T{hour:02d}:{minute:02d}:{second:02d}"


def now(shift_seconds: float = 0) -> str:
    """Return the current time as a timestamp, or the time that many seconds from now."""
    return format_timestamp(time.time_ns() // 1_000_000 + int(shift_seconds * 1000))
