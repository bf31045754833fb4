"""What Codex says of failures: its stream has sentences for them, and no codes."""

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
_AFTER = re.compile(r"\btry again in ([0-9]{1,9}(?:\.[0-9]{1,9})?) ?(ms|s)\b", re.IGNORECASE)

_PHRASES: tuple[tuple[str, type[RunFailed]], ...] = (
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
    ("high demand", ProviderError),  # what it says of any status 500
    ("stream disconnected", ProviderError),
    ("error while reading the server response", ProviderError),
)
"""The first that is in the sentence decides. None has an apostrophe: Codex uses two kinds."""

_BODY = "{"
"""For a status 400 it hands on the answer's body as it came."""
_BROKEN = ("stream disconnected", "reading the server response", "rate limit exceeded")


def parse_error(message: str) -> RunError:
    """What a sentence of Codex's means in our words."""
    words, status = message[:PROVIDER_MESSAGE_CHARS], status_in(message)
    if status is None and message.startswith(_BODY):
        said = text_at(record_at(json_object(message.encode()) or {}, "error"), "message")
        return run_error(RequestRejected, (said or words)[:PROVIDER_MESSAGE_CHARS])
    return run_error(_kind(message, status), words, retry_after=_retry_after(message))


def _kind(message: str, status: int | None) -> type[RunFailed]:
    if status is not None:
        return error_class_for_status(status)
    if message.startswith(_BODY):
        return RequestRejected
    lower = message.lower()
    return next((kind for phrase, kind in _PHRASES if phrase in lower), AgentFailed)


def error_note(message: str) -> Note:
    status = status_in(message)
    return Note(kind="error", message=message, code=_kind(message, status).code, status=status)


def retry_note(message: str) -> Note | None:
    """The note of a model call that is made again; None where the message tells of something else."""
    found = _RETRY.fullmatch(message)
    if found is None:
        return None
    number, tries, reason = found.groups()
    # It counts how often it tries again; the first try is one more.
    try_, tries = (int(number), int(tries) + 1) if number is not None else (None, None)
    if reason is None:
        return Note(kind="retry", message=message, try_=try_, tries=tries)
    status = status_in(reason)
    code, after = _kind(reason, status).code, _retry_after(reason)
    return Note(kind="retry", message=message, code=code, status=status, try_=try_, tries=tries, retry_after=after)


def stream_interrupted(message: str) -> bool:
    """Whether a call that is made again may have said something before: then its stream broke, or no reason is told."""
    lower = message.lower()
    return "(" not in message or any(phrase in lower for phrase in _BROKEN)


def status_in(message: str) -> int | None:
    """The HTTP status that a sentence names."""
    found = _STATUS.search(message)
    return int(found[1]) if found else None


def _retry_after(message: str) -> float | None:
    found = _AFTER.search(message)
    if found is None:
        return None
    return float(found[1]) / (1000 if found[2].lower() == "ms" else 1)
