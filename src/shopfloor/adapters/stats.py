"""What every store needs to answer statistics."""

from __future__ import annotations

from typing import Final

from shopfloor.errors import InvalidParameter
from shopfloor.log import format_timestamp
from shopfloor.ports import RunFilter, StatsDays
from shopfloor.views import QUARTER_SECONDS

_SUMMED_FIELDS: Final = ("name", "roots")
"""The filters for which sums are kept."""


def has_sums(run_filter: RunFilter) -> bool:
    """Return whether sums are kept for a filter. For any other, statistics are computed from the runs that match."""
    return all(getattr(run_filter, name) is None for name in RunFilter.__struct_fields__ if name not in _SUMMED_FIELDS)


def time_of(quarter: int) -> str:
    """Return the time at which a quarter of an hour begins."""
    return format_timestamp(quarter * QUARTER_SECONDS * 1000)


def time_range(days: StatsDays) -> tuple[str, str]:
    """Return the start and the end of the range, today included."""
    return time_of(min(days.starts[0], days.today[0])), time_of(max(days.starts[-1], days.today[1]))


def check_run_count(count: int, days: StatsDays) -> None:
    """Raise `InvalidParameter` if statistics would have to be computed from too many runs."""
    if count > days.max_runs:
        raise InvalidParameter(
            f"more than {days.max_runs:,} runs match these filters in this range",
            hint="choose fewer days, or filter by worker or roots alone, for which there is no such limit",
        )
