"""Token counts of Codex, which prints the total of a thread at the end of each turn."""

from __future__ import annotations

from typing import cast

from shopfloor.adapters.providers.json_access import Record, count_at
from shopfloor.adapters.providers.usage import NO_USAGE, subtract_usage_clamped
from shopfloor.log import Usage
from shopfloor.views import add_usage


class UsageTracker:
    """Converts the totals that Codex prints for a thread into the usage of this process.

    Codex prints no cost: `engine.agents.transcriber` computes it from the tokens and the price list.

    A resumed or forked thread includes the tokens of earlier processes, and the stream does not show how many, or that
    there are any. Without `resumed` or `prior_usage`, the first total says nothing about this process: only
    the increase of later turns is known, and no sum. No total includes the tokens of sub-agents.
    """

    def __init__(self, *, resumed: bool | None, prior_usage: Usage | None = None) -> None:
        self._total = NO_USAGE if resumed is False else prior_usage
        self._is_prior_usage_known = self._total is not None
        self._process_usage: Usage | None = None

    @property
    def thread_total(self) -> Usage | None:
        """The total of the thread, if the share of this process is not known."""
        return None if self._is_prior_usage_known else self._total

    @property
    def process_usage(self) -> Usage | None:
        """The tokens of this process so far; None if they are not known."""
        return self._process_usage if self._is_prior_usage_known else None

    def thread_changed(self) -> None:
        """Start at zero: a thread that just started has used no tokens."""
        self._total = NO_USAGE

    def read(self, usage: Record) -> Usage | None:
        """Return what a turn added to the total of the thread; None if that is not known."""
        total = parse_usage(usage)
        if total == NO_USAGE:
            # A turn without tokens was not counted.
            return None
        previous, self._total = self._total, total
        if previous is None:
            return None
        increase = subtract_usage_clamped(total, previous)
        self._process_usage = add_usage(increase, self._process_usage)
        return increase


def is_usage(value: object) -> bool:
    """Return whether a value is a valid `usage`: null, or counts by name."""
    counts = cast("dict[str, object]", value).values() if isinstance(value, dict) else ()
    are_counts = all(count is None or (isinstance(count, int) and count >= 0) for count in counts)
    return value is None or (isinstance(value, dict) and are_counts)


def parse_usage(usage: Record) -> Usage:
    """Convert Codex's counts, in which input includes cached tokens, and output includes thinking."""
    cache_read, cache_write = count_at(usage, "cached_input_tokens"), count_at(usage, "cache_write_input_tokens")
    return Usage(
        input=max(0, count_at(usage, "input_tokens") - cache_read - cache_write),
        output=count_at(usage, "output_tokens"),
        cache_read=cache_read,
        cache_write=cache_write,
        reasoning=count_at(usage, "reasoning_output_tokens"),
    )
