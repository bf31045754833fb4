"""The rules of what may be appended to a log, and with which time; the same for every adapter that writes logs."""

from __future__ import annotations

from typing import Any, cast

import msgspec
from msgspec.structs import replace

from shopfloor.decoding import convert
from shopfloor.errors import InvalidEvent, LogBusy, RunEnded
from shopfloor.log.masking import Hook
from shopfloor.log.payloads import Payload, RunStarted


def check_next(run_id: str, seq: int, payload: Payload, *, has_ended: bool) -> None:
    """Raise where this event cannot follow the event `seq`, the last of the log so far."""
    if has_ended:
        raise RunEnded(f"the run {run_id} has its outcome; nothing can follow it")
    if not seq and not isinstance(payload, RunStarted):
        raise InvalidEvent(f"a log begins with run.started, not with {payload.event_type}")


def event_time(newest: str, now: str, at: str | None, payload: Payload) -> tuple[str, Payload]:
    """The time of an event, and its payload. Times never run backwards in a log, also if our clock was set back.

    `newest` is the time of the event before it. Where `at` is earlier than that, or later than `now`, our clock's time
    is used, and the payload says so.
    """
    now = max(now, newest)
    if at is None:
        return now, payload
    return (at, payload) if newest <= at <= now else (now, replace(payload, clock="reader"))


def masked(hook: Hook, payload: Payload) -> Payload:
    """The payload as the hook wants it written. Raises `InvalidEvent` where the hook breaks it."""
    data = cast("dict[str, Any]", msgspec.to_builtins(payload, str_keys=True))
    changed = hook(data)
    try:
        return payload if changed == data else convert(changed, type(payload))
    except msgspec.ValidationError as error:
        raise InvalidEvent(f"masking broke a {payload.event_type} event: {error}") from error


def log_busy(run_id: str) -> LogBusy:
    """The error for a second writer."""
    return LogBusy(
        f"another process is writing the log of {run_id}",
        hint="a log has one writer; read it with `shopfloor tail` or wait until the run ends",
    )
