"""Counting tokens. Mostly one of two counts is nothing yet, and then there is nothing to count."""

from __future__ import annotations

from msgspec.structs import astuple

from shopfloor.log import Usage
from shopfloor.views import added

NOTHING = Usage()


def plus(one: Usage, other: Usage) -> Usage:
    return other if one == NOTHING else added(one, other)


def less(total: Usage, part: Usage) -> Usage:
    """What a total has beyond a part of it; never below nothing."""
    if part == NOTHING:
        return total
    counts = zip(Usage.__struct_fields__, astuple(total), astuple(part), strict=True)
    return Usage(**{name: max(0, count - taken) for name, count, taken in counts})
