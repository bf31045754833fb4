"""Reading records that somebody else shapes: what is not of the type that was expected is not there."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from shopfloor.errors import (
    AgentFailed,
    AuthenticationFailed,
    ProviderError,
    ProviderOverloaded,
    ProviderTimeout,
    RateLimited,
    RequestRejected,
    RunFailed,
)
from shopfloor.limits import AGENT_DIFF_CHARS
from shopfloor.log import FileChange, RunError, format_timestamp
from shopfloor.ports import AgentExit

Record = dict[str, Any]
Json = dict[str, Any] | list[Any] | str | float | bool | None
"""What can stand under a key. To say so costs nothing where a `cast` is a call, and these are asked very often."""


def record_at(record: Record, key: str) -> Record:
    """The object under a key; an empty one where there is none."""
    value: Json = record.get(key)
    return value if isinstance(value, dict) else {}


def records_at(record: Record, key: str) -> list[Record]:
    """The objects in the list under a key."""
    found: list[Json] = list_at(record, key)
    return [one for one in found if isinstance(one, dict)]


def list_at(record: Record, key: str) -> list[Any]:
    value: Json = record.get(key)
    return value if isinstance(value, list) else []


def text_at(record: Record, key: str) -> str | None:
    value = record.get(key)
    return value if isinstance(value, str) else None


def int_at(record: Record, key: str) -> int | None:
    value = record.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def count_at(record: Record, key: str) -> int:
    """A number of tokens: 0 where there is none, or one that cannot be."""
    value = record.get(key)
    return value if isinstance(value, int) and value > 0 and value is not True else 0


def number_at(record: Record, key: str) -> float | None:
    value = record.get(key)
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


_AS_LOGGED = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T(?:[01][0-9]|2[0-3])(?::[0-9]{2}){2}\.[0-9]{3}Z").fullmatch
"""Matches a time as the log has it. Most agents write theirs so."""


def parse_timestamp(value: object) -> str | None:
    """A provider's time, ISO 8601 text or milliseconds since 1970, as the log has it."""
    try:
        if isinstance(value, str):
            moment = datetime.fromisoformat(value)
            if _AS_LOGGED(value):
                return value
            moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
            return _from_ms(round(moment.timestamp() * 1000))
        if isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0:
            return _from_ms(round(value))
    except (ValueError, OverflowError, OSError):
        pass
    return None


def _from_ms(ms: int) -> str:
    return f"{_second(ms // 1000)}.{ms % 1000:03d}Z"


@lru_cache(maxsize=2)
def _second(second: int) -> str:
    """What comes within a second mostly comes in a row."""
    return format_timestamp(second * 1000).removesuffix(".000Z")


_BY_STATUS: dict[int, type[RunFailed]] = {
    401: AuthenticationFailed,
    403: AuthenticationFailed,
    408: ProviderTimeout,
    429: RateLimited,
    503: ProviderOverloaded,
    529: ProviderOverloaded,
}
_CLIENT_ERRORS, _SERVER_ERRORS = range(400, 500), range(500, 600)


def error_class_for_status(status: int | None) -> type[RunFailed]:
    """What an HTTP status that an agent met means in our words."""
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    if status in _CLIENT_ERRORS:
        return RequestRejected
    return ProviderError if status in _SERVER_ERRORS else AgentFailed


def error_for_status(status: int | None, message: str, *, retry_after: float | None = None) -> RunError:
    return run_error(error_class_for_status(status), message, retry_after=retry_after)


def run_error(kind: type[RunFailed], message: str, *, retry_after: float | None = None) -> RunError:
    error = RunError(code=kind.code, message=message, retryable=kind.retryable)
    if retry_after is None:
        return error
    return RunError(code=kind.code, message=message, retryable=kind.retryable, retry_after=retry_after)


def describe_exit(ended: AgentExit | None, *, ignored_prefixes: tuple[str, ...] = ()) -> str:
    """How a program ended, in words; `ignored_prefixes` is how lines of its stderr begin that say nothing."""
    return "nothing more came" if ended is None else ended.description(ignored_prefixes=ignored_prefixes)


def changed_file(path: str, action: object, diff: str | None = None) -> FileChange:
    """A change, its lines counted from its diff where there is one."""
    known = action if action in ("create", "modify", "delete") else "modify"
    if diff is None:
        return FileChange(path=path, action=known)
    lines = diff.splitlines()
    return FileChange(
        path=path,
        action=known,
        lines_added=sum(line.startswith("+") and not line.startswith("+++") for line in lines),
        lines_removed=sum(line.startswith("-") and not line.startswith("---") for line in lines),
        diff=diff if len(diff) <= AGENT_DIFF_CHARS else f"{diff[:AGENT_DIFF_CHARS]}\n… (cut)",
    )
