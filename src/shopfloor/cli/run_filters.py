"""The options that select runs, for `list` and `stats`."""

from __future__ import annotations

import contextlib
import os
import time
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from zoneinfo import ZoneInfo

from shopfloor.cli.arguments import duration_seconds
from shopfloor.cli.client_session import API_COMPLETED, resolve_run_id
from shopfloor.errors import InvalidParameter

if TYPE_CHECKING:
    from shopfloor.client import Api

ADVANCED: Final = ("--type", "--channel", "--provider", "--max-cost", "--min-duration", "--max-duration", "--error")
"""The options that only `--help-all` shows."""
TIMES: Final = "2h, 7d, 2026-11-15 or 2026-11-15T10:00:00Z"
_ZONES: Final = "zoneinfo/"


def add_filter_options(parser: ArgumentParser, statuses: tuple[str, ...]) -> None:
    """Add the options, except those for the time."""
    parser.add_argument("--owner", metavar="NAME", help="only runs of this owner")
    parser.add_argument(
        "--status",
        choices=(*statuses, API_COMPLETED),
        default="all",
        metavar="STATUS",
        help=f"one of {', '.join(statuses)}",
    )
    parser.add_argument("--worker", metavar="NAME", help="only runs of this worker")
    parser.add_argument("--model", metavar="NAME", help="only runs of this model")
    parser.add_argument("--provider", metavar="NAME", help="only runs of this provider, e.g. codex")
    parser.add_argument("--type", metavar="NAME", help="only runs of this worker type, e.g. command")
    parser.add_argument("--channel", metavar="ID", help="only runs from this channel")
    parser.add_argument("--parent", metavar="RUN", help="only sub-runs of this run")
    parser.add_argument("--error", metavar="CODE", help="only runs that ended with this error, e.g. tool_failed")
    parser.add_argument("--min-cost", type=_amount, metavar="USD", help="only runs that cost at least this")
    parser.add_argument("--max-cost", type=_amount, metavar="USD", help="only runs that cost at most this")
    parser.add_argument("--min-duration", type=_milliseconds, metavar="TIME", help="only runs of at least TIME: 5m")
    parser.add_argument("--max-duration", type=_milliseconds, metavar="TIME", help="only runs of at most TIME: 45s")
    parser.add_argument("--search", metavar="WORDS", help='only runs with all these words and "phrases"')


async def filter_parameters(api: Api, args: Namespace) -> dict[str, Any]:
    """Return the parameters of the API for the options. Raises `RunNotFound` if the run in `--parent` is unknown."""
    return {
        "agent_id": args.owner,
        "status": API_COMPLETED if args.status == "completed" else args.status,
        "worker": args.worker,
        "model": args.model,
        "provider": args.provider,
        "worker_type": args.type,
        "channel_id": args.channel,
        "parent": args.parent and await resolve_run_id(api, args, args.parent),
        "error": args.error,
        "min_cost": args.min_cost,
        "max_cost": args.max_cost,
        "min_duration_ms": args.min_duration,
        "max_duration_ms": args.max_duration,
        "q": args.search,
    }


def add_zone_option(parser: ArgumentParser, help: str) -> None:  # noqa: A002 - as in `add_argument`
    """Add the option for the time zone of dates."""
    parser.add_argument("--tz", metavar="ZONE", help=f"{help}, e.g. Europe/Berlin (default: yours)")


def moment(text: str) -> datetime:
    """Parse a point in time, without a time zone if it has none; a duration means that long ago."""
    with contextlib.suppress(ArgumentTypeError):
        return datetime.fromtimestamp(time.time() - duration_seconds(text), UTC)
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise ArgumentTypeError(f"must be a time such as {TIMES}, got {text!r}") from None


def time_parameter(at: datetime | None, zone: str) -> str | None:
    """Return a time for the API. A time without a time zone is in this one; a date is its start."""
    if at is None:
        return None
    at = at.replace(tzinfo=_parse_zone(zone)) if at.tzinfo is None else at
    try:
        return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except OverflowError as error:
        raise InvalidParameter(f"the time {at.isoformat()} is too early or too late") from error


def local_zone() -> str:
    """Return the name of the local time zone, or else its offset."""
    name = os.environ.get("TZ", "").removeprefix(":")
    if not name:
        target = os.path.realpath("/etc/localtime")
        name = target.partition(_ZONES)[2] if _ZONES in target else ""
    if name and Path("/usr/share/zoneinfo", name).is_file():
        return name
    offset = time.strftime("%z")
    return f"{offset[:3]}:{offset[3:5]}" if offset else "UTC"


def _parse_zone(name: str) -> tzinfo:
    """Return the time zone of a name or an offset. Raises `InvalidParameter`."""
    with contextlib.suppress(ValueError):
        return datetime.strptime(name, "%z").tzinfo or UTC
    try:
        return ZoneInfo(name)
    except (OSError, ValueError, KeyError):
        raise InvalidParameter(
            f"tz: unknown time zone {name!r}", hint="use a name such as Europe/Berlin, an offset such as +02:00, or UTC"
        ) from None


def _amount(text: str) -> float:
    try:
        amount = float(text.removeprefix("$"))
    except ValueError:
        amount = -1.0
    if not 0 <= amount < float("inf"):
        raise ArgumentTypeError(f"must be an amount in US dollars such as 0.50, got {text!r}")
    return amount


def _milliseconds(text: str) -> int:
    return int(duration_seconds(text) * 1000)
