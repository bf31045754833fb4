"""Errors of Codex. Its stream has sentences for them and no codes, so the phrases in a sentence decide."""

from __future__ import annotations

import re

from shopfloor.adapters.providers.errors import error_class_for_status, run_error
from shopfloor.adapters.providers.json_access import record_at, text_at
from shopfloor.adapters.providers.jsonl import json_object
from shopfloor.errors import (
    AgentFailed,
    AuthenticationFailed,
    BudgetExceeded,
    ProviderError,
    ProviderOverloaded,
    ProviderTimeout,
    ProviderUnreachable,
    RateLimited,
    RequestRejected,
    RunFailed,
)
from shopfloor.limits import PROVIDER_MESSAGE_CHARS
from shopfloor.log import Note, RunError

_RETRY = re.compile(r"Reconnecting\.\.\. (?:([0-9]{1,6})/([0-9]{1,6})|waiting for network)(?: \((.*)\))?", re.DOTALL)
_STATUS = re.compile(r"\b(?:unexpected status|last status:) ([0-9]{3})\b")
_RETRY_AFTER = re.compile(r"\btry again in ([0-9]{1,9}(?:\.[0-9]{1,9})?) ?(ms|s)\b", re.IGNORECASE)

_CLASS_BY_PHRASE: tuple[tuple[str, type[RunFailed]], ...] = (
    ("usage limit", RateLimited),
    ("rate limit", RateLimited),
    ("quota", RateLimited),
    ("out of credits", RateLimited),
    ("spend cap", RateLimited),
    ("sign in again", AuthenticationFailed),
    ("missing environment variable", AuthenticationFailed),
    ("upgrade to plus", AuthenticationFailed),
    ("context window", RequestRejected),
    ("invalid prompt", RequestRejected),
    ("token budget exhausted", BudgetExceeded),
    ("at capacity", ProviderOverloaded),
    ("timed out", ProviderTimeout),
    ("idle timeout", ProviderTimeout),
    ("connection failed", ProviderUnreachable),
    ("high demand", ProviderError),  # the message for every status 500
    ("stream disconnected", ProviderError),
    ("error while reading the server response", ProviderError),
)
"""The first phrase that occurs in the message decides. None has an apostrophe, because Codex uses two kinds."""

_BODY_START = "{"
"""For a status 400 the message is the body of the response."""
_INTERRUPTED_PHRASES = ("stream disconnected", "reading the server response", "rate limit exceeded")


def parse_error(message: str) -> RunError:
    """Return the run error of a message."""
    text, status = message[:PROVIDER_MESSAGE_CHARS], status_in(message)
    if status is None and message.startswith(_BODY_START):
        api_message = text_at(record_at(json_object(message.encode()) or {}, "error"), "message")
        return run_error(RequestRejected, (api_message or text)[:PROVIDER_MESSAGE_CHARS])
    return run_error(_error_class(message, status), text, retry_after=_retry_after(message))


def _error_class(message: str, status: int | None) -> type[RunFailed]:
    if status is not None:
        return error_class_for_status(status)
    if message.startswith(_BODY_START):
        return RequestRejected
    lower = message.lower()
    return next((kind for phrase, kind in _CLASS_BY_PHRASE if phrase in lower), AgentFailed)


def error_note(message: str) -> Note:
    """Return the note of an error message."""
    status = status_in(message)
    return Note(kind="error", message=message, code=_error_class(message, status).code, status=status)


def retry_note(message: str) -> Note | None:
    """Return the note of a model call that is repeated; None if the message is about something else."""
    match = _RETRY.fullmatch(message)
    if match is None:
        return None
    retry_number, tries, reason = match.groups()
    # Codex counts retries; the first try comes on top.
    try_, tries = (int(retry_number), int(tries) + 1) if retry_number is not None else (None, None)
    if reason is None:
        return Note(kind="retry", message=message, try_=try_, tries=tries)
    status = status_in(reason)
    code, retry_after = _error_class(reason, status).code, _retry_after(reason)
    return Note(
        kind="retry", message=message, code=code, status=status, try_=try_, tries=tries, retry_after=retry_after
    )


def stream_interrupted(message: str) -> bool:
    """Return whether a repeated call may have sent messages before: its stream broke off, or no reason is given."""
    lower = message.lower()
    return "(" not in message or any(phrase in lower for phrase in _INTERRUPTED_PHRASES)


def status_in(message: str) -> int | None:
    """Return the HTTP status that a message names."""
    match = _STATUS.search(message)
    return int(match[1]) if match else None


def _retry_after(message: str) -> float | None:
    match = _RETRY_AFTER.search(message)
    if match is None:
        return None
    return float(match[1]) / (1000 if match[2].lower() == "ms" else 1)
