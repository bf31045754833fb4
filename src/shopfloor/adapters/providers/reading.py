"""Reading records that somebody else shapes: what is not of the type that was expected is not there."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any, cast

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
from shopfloor.limits import AGENT_DIFF_CHARS, PROVIDER_WORDS_CHARS
from shopfloor.log import FileChange, RunError, timestamp_of
from shopfloor.ports import AgentExit

Record = dict[str, Any]


def record_at(record: Record, *keys: str) -> Record:
    """The object under these keys; an empty one where there is none."""
    value: Any = record
    for key in keys:
        value = cast("Record", value).get(key) if isinstance(value, dict) else None
    return cast("Record", value) if isinstance(value, dict) else {}


def records_at(record: Record, *keys: str) -> list[Record]:
    """The objects in the list under these keys."""
    return [cast("Record", one) for one in list_at(record, *keys) if isinstance(one, dict)]


def _value_at(record: Record, keys: tuple[str, ...]) -> Any:
    # Most ask for one key, and they ask very often.
    return record.get(keys[0]) if len(keys) == 1 else record_at(record, *keys[:-1]).get(keys[-1])


def list_at(record: Record, *keys: str) -> list[Any]:
    value = _value_at(record, keys)
    return cast("list[Any]", value) if isinstance(value, list) else []


def text_at(record: Record, *keys: str) -> str | None:
    value = _value_at(record, keys)
    return value if isinstance(value, str) else None


def int_at(record: Record, *keys: str) -> int | None:
    value = _value_at(record, keys)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def count_at(record: Record, *keys: str) -> int:
    """A number of tokens: 0 where there is none, or one that cannot be."""
    return max(0, int_at(record, *keys) or 0)


def number_at(record: Record, *keys: str) -> float | None:
    value = _value_at(record, keys)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def time_of(value: object) -> str | None:
    """A provider's time, ISO 8601 text or milliseconds since 1970, as the log has it."""
    try:
        if isinstance(value, str):
            moment = datetime.fromisoformat(value)
            moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
            return timestamp_of(round(moment.timestamp() * 1000))
        if isinstance(value, int | float) and not isinstance(value, bool) and value > 0:
            return timestamp_of(round(value))
    except (ValueError, OverflowError, OSError):
        pass
    return None


_BY_STATUS: dict[int, type[RunFailed]] = {
    401: AuthenticationFailed,
    403: AuthenticationFailed,
    408: ProviderTimeout,
    429: RateLimited,
    503: ProviderOverloaded,
    529: ProviderOverloaded,
}
_CLIENT_ERRORS, _SERVER_ERRORS = range(400, 500), range(500, 600)


def error_by_status(status: int | None, message: str, *, retry_after: float | None = None) -> RunError:
    """What an HTTP status that an agent met means in our words."""
    if status in _BY_STATUS:
        kind = _BY_STATUS[status]
    elif status in _CLIENT_ERRORS:
        kind = RequestRejected
    else:
        kind = ProviderError if status in _SERVER_ERRORS else AgentFailed
    return run_error(kind, message, retry_after=retry_after)


def run_error(kind: type[RunFailed], message: str, *, retry_after: float | None = None) -> RunError:
    error = RunError(code=kind.code, message=message, retryable=kind.retryable)
    if retry_after is None:
        return error
    return RunError(code=kind.code, message=message, retryable=kind.retryable, retry_after=retry_after)


_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def how_it_ended(ended: AgentExit | None, *, noise: tuple[str, ...] = ()) -> str:
    """`exit code 1: Error: …`, with the last thing that a program said of an error, or said at all but for `noise`."""
    if ended is None:
        return "nothing more came"
    how = f"killed by {ended.signal}" if ended.signal is not None else f"exit code {ended.code}"
    lines = [_ESCAPE.sub("", line).strip() for line in ended.stderr.splitlines()]
    lines = [line for line in lines if line and not line.startswith(noise)]
    errors = [line for line in lines if line.lower().startswith("error")]
    said = (errors or lines or [""])[-1][:PROVIDER_WORDS_CHARS]
    return f"{how}: {said}" if said else how


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
