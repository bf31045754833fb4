"""Errors of Gemini CLI, which reports them by name, as sentences, and as exit codes derived from HTTP statuses."""

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

_CLASS_BY_NAME: dict[str, type[RunFailed]] = {
    "FatalAuthenticationError": AuthenticationFailed,
    "FatalInputError": RequestRejected,
    "FatalConfigError": RequestRejected,
    "FatalTurnLimitedError": TurnsExceeded,
    "FatalCancellationError": ExecutionCancelled,
}
_CLASS_BY_EXIT_CODE: dict[int, type[RunFailed]] = {
    41: AuthenticationFailed,
    42: RequestRejected,
    52: RequestRejected,
    53: TurnsExceeded,
    130: ExecutionCancelled,
}
_CLASS_BY_PHRASE: tuple[tuple[str, type[RunFailed]], ...] = (
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
"""The first phrase that occurs in the message decides."""

_RETRY_AFTER = re.compile(r"retry after ([0-9]{1,9}(?:\.[0-9]{1,9})?)s", re.IGNORECASE)
_EXIT_CODES = 256
_STATUSES = range(400, 2 * _EXIT_CODES)
_IGNORED_STDERR = ("at ", "}", "[STARTUP]", "Warning:")


def parse_error(name: str | None, message: str, ended: AgentExit | None) -> RunError:
    """Return the error of a `result` that is an error."""
    if name in _CLASS_BY_NAME:
        return run_error(_CLASS_BY_NAME[name], message[:PROVIDER_MESSAGE_CHARS])
    # For some statuses the message contains the body of the response.
    begin, end = message.find("{"), message.rfind("}") + 1
    body = (json_object(message[begin:end].encode()) if begin >= 0 else None) or {}
    api_error = record_at(body, "error")
    text = (text_at(api_error, "message") or message)[:PROVIDER_MESSAGE_CHARS]
    match = _RETRY_AFTER.search(message)
    retry_after = float(match[1]) if match else None
    status = int_at(api_error, "code") or _status_from_exit(ended)
    if status is not None:
        return error_for_status(status, text, retry_after=retry_after)
    lower = message.lower()
    kind = next((kind for phrase, kind in _CLASS_BY_PHRASE if phrase in lower), AgentFailed)
    return run_error(kind, text, retry_after=retry_after)


def early_stop_error(message: str) -> RunError | None:
    """Return the error of a session that Gemini CLI stopped early, by its last message; None if it was not stopped.

    Gemini CLI reports such a session as a success.
    """
    if message.startswith(LOOP_DETECTED):
        return run_error(AgentFailed, message[:PROVIDER_MESSAGE_CHARS])
    return run_error(TurnsExceeded, message) if message.startswith(MAX_TURNS_EXCEEDED) else None


def invalid_answer_error(message: str | None) -> RunError:
    """Return the error of an answer that Gemini CLI could not use.

    The reason is in a message before the result (`message`); the result itself has none.
    """
    if message is None:
        return run_error(ProviderError, "the model gave no answer that gemini could use")
    return run_error(RequestRejected if "blocked" in message else ProviderError, message[:PROVIDER_MESSAGE_CHARS])


def incomplete_stream_error(ended: AgentExit | None, *, started: bool) -> RunError:
    """Return the error of a stream without a result."""
    ending = "ended in the middle" if started else "did not start"
    message = f"gemini {ending}: {describe_exit(ended, ignored_prefixes=_IGNORED_STDERR)}"
    status = _status_from_exit(ended)
    if status is not None:
        return error_for_status(status, message)
    code = ended.code if ended is not None else None
    return run_error(_CLASS_BY_EXIT_CODE.get(code, AgentFailed) if code is not None else AgentFailed, message)


def _status_from_exit(ended: AgentExit | None) -> int | None:
    """Return the HTTP status that Gemini CLI exited with. The operating system keeps only its low eight bits."""
    code = ended.code if ended is not None else None
    return code + _EXIT_CODES if code is not None and code + _EXIT_CODES in _STATUSES else None
