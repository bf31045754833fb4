"""What Gemini CLI says of failures: names of its own errors, sentences, and exit codes made of HTTP statuses."""

from __future__ import annotations

import re

from shopfloor.adapters.providers.errors import describe_exit, error_for_status, run_error
from shopfloor.adapters.providers.json_access import int_at, record_at, text_at
from shopfloor.adapters.providers.jsonl import json_object
from shopfloor.errors import (
    AgentFailed,
    AuthenticationFailed,
    ExecutionCancelled,
    ProviderError,
    ProviderTimeout,
    ProviderUnreachable,
    RateLimited,
    RequestRejected,
    RunFailed,
    TurnsExceeded,
)
from shopfloor.limits import PROVIDER_MESSAGE_CHARS
from shopfloor.log import RunError
from shopfloor.ports import AgentExit

LOOP_DETECTED = "Loop detected"
MAX_TURNS_EXCEEDED = "Maximum session turns exceeded"

_NAMES: dict[str, type[RunFailed]] = {
    "FatalAuthenticationError": AuthenticationFailed,
    "FatalInputError": RequestRejected,
    "FatalConfigError": RequestRejected,
    "FatalTurnLimitedError": TurnsExceeded,
    "FatalCancellationError": ExecutionCancelled,
}
_EXITS: dict[int, type[RunFailed]] = {
    41: AuthenticationFailed,
    42: RequestRejected,
    52: RequestRejected,
    53: TurnsExceeded,
    130: ExecutionCancelled,
}
_PHRASES: tuple[tuple[str, type[RunFailed]], ...] = (
    ("rate limit", RateLimited),
    ("quota", RateLimited),
    ("try again later. to increase your limits", RateLimited),
    ("fetch failed", ProviderUnreachable),
    ("econnrefused", ProviderUnreachable),
    ("enotfound", ProviderUnreachable),
    ("timed out", ProviderTimeout),
    ("timeout", ProviderTimeout),
    ("[api error", ProviderError),
)
"""The first that is in the sentence decides."""

_AFTER = re.compile(r"retry after ([0-9]{1,9}(?:\.[0-9]{1,9})?)s", re.IGNORECASE)
_EIGHT_BITS = 256
_STATUSES = range(400, 2 * _EIGHT_BITS)
_NOISE = ("at ", "}", "[STARTUP]", "Warning:")


def parse_error(name: str | None, message: str, ended: AgentExit | None) -> RunError:
    """What a `result` that is an error means in our words."""
    if name in _NAMES:
        return run_error(_NAMES[name], message[:PROVIDER_MESSAGE_CHARS])
    # Of some statuses it hands on the answer's body as it came.
    begin, end = message.find("{"), message.rfind("}") + 1
    body = (json_object(message[begin:end].encode()) if begin >= 0 else None) or {}
    told = record_at(body, "error")
    words = (text_at(told, "message") or message)[:PROVIDER_MESSAGE_CHARS]
    after = _AFTER.search(message)
    retry_after = float(after[1]) if after else None
    status = int_at(told, "code") or _status(ended)
    if status is not None:
        return error_for_status(status, words, retry_after=retry_after)
    lower = message.lower()
    kind = next((kind for phrase, kind in _PHRASES if phrase in lower), AgentFailed)
    return run_error(kind, words, retry_after=retry_after)


def early_stop_error(message: str) -> RunError | None:
    """Why it went no further, where its last word says that it was stopped; it calls that a success."""
    if message.startswith(LOOP_DETECTED):
        return run_error(AgentFailed, message[:PROVIDER_MESSAGE_CHARS])
    return run_error(TurnsExceeded, message) if message.startswith(MAX_TURNS_EXCEEDED) else None


def invalid_answer_error(message: str | None) -> RunError:
    """An answer that it could not use: what is wrong with it was said before the result, which says nothing of it."""
    if message is None:
        return run_error(ProviderError, "the model gave no answer that gemini could use")
    return run_error(RequestRejected if "blocked" in message else ProviderError, message[:PROVIDER_MESSAGE_CHARS])


def incomplete_stream_error(ended: AgentExit | None, *, started: bool) -> RunError:
    """A stream without its last record."""
    what = "ended in the middle" if started else "did not start"
    message = f"gemini {what}: {describe_exit(ended, ignored_prefixes=_NOISE)}"
    status = _status(ended)
    if status is not None:
        return error_for_status(status, message)
    code = ended.code if ended is not None else None
    return run_error(_EXITS.get(code, AgentFailed) if code is not None else AgentFailed, message)


def _status(ended: AgentExit | None) -> int | None:
    """It exits with the HTTP status that it met, of which a system keeps the last eight bits."""
    code = ended.code if ended is not None else None
    return code + _EIGHT_BITS if code is not None and code + _EIGHT_BITS in _STATUSES else None
