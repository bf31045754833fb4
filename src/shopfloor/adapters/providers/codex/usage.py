"""Tokens: Codex tells a thread's total at the end of each turn, and we tell what was added."""

from __future__ import annotations

from typing import cast

from shopfloor.adapters.providers.json_access import Record, count_at
from shopfloor.adapters.providers.usage import NO_USAGE, subtract_usage
from shopfloor.log import Usage
from shopfloor.views import add_usage


class UsageTracker:
    """Reads totals of a thread.

    A thread that is resumed or forked brings the tokens of earlier processes along, and the stream says nowhere how
    many they were, nor that there were any. Where that is not known otherwise (`resumed`, `before`), its first total
    tells nothing about this process: only what later turns add is known, and there is no sum. What sub-agents spend is
    in none of the totals.
    """

    def __init__(self, *, resumed: bool | None, before: Usage | None = None) -> None:
        self._total = NO_USAGE if resumed is False else before
        self._whole = self._total is not None
        self._spent: Usage | None = None

    @property
    def thread_total(self) -> Usage | None:
        """What the thread has spent, where it is not known how much of that is this process's."""
        return None if self._whole else self._total

    @property
    def process_usage(self) -> Usage | None:
        """What this process spent, as far as it was told; None where that is not known."""
        return self._spent if self._whole else None

    def thread_changed(self) -> None:
        """A thread that just began has spent nothing yet."""
        self._total = NO_USAGE

    def read(self, usage: Record) -> Usage | None:
        """What a turn added to the thread's total; None where that cannot be known."""
        total = parse_usage(usage)
        if total == NO_USAGE:
            # A turn without any tokens is one that nobody counted.
            return None
        before, self._total = self._total, total
        if before is None:
            return None
        more = subtract_usage(total, before)
        self._spent = add_usage(more, self._spent)
        return more


def is_usage(value: object) -> bool:
    """Whether this can be what Codex says of tokens: nothing, or counts by name."""
    counts = cast("dict[str, object]", value).values() if isinstance(value, dict) else ()
    of_counts = all(one is None or (isinstance(one, int) and one >= 0) for one in counts)
    return value is None or (isinstance(value, dict) and of_counts)


def parse_usage(usage: Record) -> Usage:
    """Codex counts cached tokens as input too, and thinking as output."""
    read, written = count_at(usage, "cached_input_tokens"), count_at(usage, "cache_write_input_tokens")
    return Usage(
        input=max(0, count_at(usage, "input_tokens") - read - written),
        output=count_at(usage, "output_tokens"),
        cache_read=read,
        cache_write=written,
        reasoning=count_at(usage, "reasoning_output_tokens"),
    )
