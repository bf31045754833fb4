"""Times of the events of a stream from elsewhere: the agent's own where it gives them, and never backwards in a log."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import msgspec

from shopfloor.engine.agents.transcript import Write
from shopfloor.limits import HELD_EVENTS


def timed(writes: Iterable[Write], *, tells_time: bool, clock: Callable[[], str]) -> Iterator[tuple[Write, str]]:
    """Yield each event with its timestamp. Events without a time of the agent's own, or with one before that of the
    event before it, are marked `clock: reader` and get the time of the event before it.

    The first events have none before them: they wait for the first that has a time and get that one; where none comes
    soon, or the agent never tells times, the time of reading is used.
    """
    last: dict[str, str] = {}
    """By log."""
    newest = ""
    """The newest time of the agent's own."""

    def stamp(write: Write) -> tuple[Write, str]:
        nonlocal newest
        before = last.get(write.run_id, "")
        newest = max(newest, write.at or "")
        timestamp = max(before, write.at or newest or clock())
        last[write.run_id] = timestamp
        if timestamp == write.at:
            return write, timestamp
        payload = msgspec.structs.replace(write.payload, clock="reader")
        return msgspec.structs.replace(write, payload=payload), timestamp

    held: list[Write] | None = [] if tells_time else None
    for write in writes:
        if held is not None:
            held.append(write)
            if write.at is None and len(held) < HELD_EVENTS:
                continue
            newest, waiting, held = write.at or "", held, None
            yield from map(stamp, waiting)
        else:
            yield stamp(write)
    yield from map(stamp, held or [])
