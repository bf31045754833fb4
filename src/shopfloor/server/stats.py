"""Operation that returns statistics of runs: days, tools, failures, and the costliest and slowest runs."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo

from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from shopfloor.errors import InvalidParameter
from shopfloor.limits import STATS_DAYS, STATS_DEFAULT_DAYS
from shopfloor.log import format_timestamp
from shopfloor.ports import StatsDays
from shopfloor.server.openapi import Operations
from shopfloor.server.parameters import StatsParams, to_utc
from shopfloor.server.response_models import statuses_for_filter, to_wire_status
from shopfloor.server.responses import describe_json, get_services, json_response
from shopfloor.server.waiting import find_interrupted, needs_person_after
from shopfloor.views import QUARTER_SECONDS, RankedRun, Stats, StatsRange, build_stats

_OFFSET = re.compile(r"([+-])(\d{2}):?(\d{2})")
_TZ_HINT = "use a name such as Europe/Berlin, an offset such as +02:00, or UTC"
_DAY = timedelta(days=1)
_LARGEST_OFFSET = timedelta(hours=14)

operations = Operations()


@operations("GET", "/api/stats", describe_json(Stats, "The statistics."), StatsParams)
async def get_stats(request: Request, params: StatsParams) -> Response:
    """Return statistics of runs: what happened on each day of a range, and what happens now.

    Spending belongs to the day, the model and the provider that spent it, and each run counts its own. An agent's
    session counts on the day it ended, for the model of its newest message. A run is counted on the day it started, a
    failure on the day the run ended. The sums are kept for all runs, for `worker` and for `roots`; with any other
    filter they are computed from the runs that match and were open in the range, which must be at most 100,000.
    """
    zone, zone_name = _parse_zone(params.tz)
    today = datetime.now(zone).date()
    first, last = _range(params, zone, today)
    try:
        days = [first + number * _DAY for number in range((last - first).days + 1)]
        starts = [_start_of(day, zone) for day in (*days, last + _DAY)]
        days_of_store = StatsDays(
            tuple(at // QUARTER_SECONDS for at in starts),
            (_start_of(today, zone) // QUARTER_SECONDS, _start_of(today + _DAY, zone) // QUARTER_SECONDS),
            needs_person_after=needs_person_after(),
        )
    except (OverflowError, ValueError) as error:
        raise InvalidParameter(f"since, until: {first} to {last} is not a range of days") from error
    wanted = params.run_filter(statuses=statuses_for_filter(params.status), since=None, until=None)
    services = get_services(request)
    stored = await services.store.stats(wanted, days_of_store)
    interrupted = await find_interrupted(services, wanted)
    since = [found.since for found in interrupted] + [at for at in (stored.longest_waiting_since,) if at is not None]
    stored = replace(stored, waiting=stored.waiting + len(interrupted), longest_waiting_since=min(since, default=None))
    stored = replace(stored, costliest=_with_wire_status(stored.costliest), slowest=_with_wire_status(stored.slowest))
    stats_range = StatsRange(format_timestamp(starts[0] * 1000), format_timestamp(starts[-1] * 1000), zone_name)
    return json_response(build_stats(stored, stats_range, [day.isoformat() for day in days]))


def _range(params: StatsParams, zone: tzinfo, today: date) -> tuple[date, date]:
    """Return the first and the last day. Raises `InvalidParameter` if there are too many, or none."""
    try:
        last = today if params.until is None else _date_of("until", params.until, zone)
        first = (
            last - (STATS_DEFAULT_DAYS - 1) * _DAY if params.since is None else _date_of("since", params.since, zone)
        )
    except OverflowError as error:
        raise InvalidParameter("since, until: the time is too early or too late") from error
    if first > last:
        raise InvalidParameter(f"since: {first} is after {last}, the last day", hint="send an earlier time")
    if (last - first).days >= STATS_DAYS:
        raise InvalidParameter(
            f"since: statistics have at most {STATS_DAYS} days, got {(last - first).days + 1:,}",
            hint="send a later `since`, or an earlier `until`",
        )
    return first, last


def _date_of(name: str, text: str, zone: tzinfo) -> date:
    return datetime.fromisoformat(to_utc(name, text) or "").astimezone(zone).date()


def _start_of(day: date, zone: tzinfo) -> int:
    """Return the second at which a day begins in a time zone."""
    return int(datetime(day.year, day.month, day.day, tzinfo=zone).timestamp())


def _parse_zone(text: str) -> tuple[tzinfo, str]:
    """Return the time zone of a name or an offset, and its name. Raises `InvalidParameter`."""
    # In a query, a plus sign that is not encoded is a space.
    name = f"+{text[1:]}" if text[:1] == " " else text
    if name in ("", "UTC", "Z"):
        return UTC, "UTC"
    if found := _OFFSET.fullmatch(name):
        offset = timedelta(hours=int(found[2]), minutes=int(found[3]))
        if offset <= _LARGEST_OFFSET and int(found[3]) % 15 == 0:
            return timezone(-offset if found[1] == "-" else offset), "".join((found[1], found[2], ":", found[3]))
        raise InvalidParameter(f"tz: {name} is the offset of no time zone", hint=_TZ_HINT)
    from zoneinfo import ZoneInfo

    try:
        return ZoneInfo(name), name
    except (OSError, ValueError, KeyError) as error:
        raise InvalidParameter(f"tz: unknown time zone {name!r}", hint=_TZ_HINT) from error


def _with_wire_status(runs: list[RankedRun]) -> list[RankedRun]:
    return [replace(run, status=to_wire_status(run.status)) for run in runs]
