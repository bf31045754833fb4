"""What Codex says of failures: its stream has sentences for them, and no codes."""

from __future__ import annotations

import re

import msgspec

from shopfloor.adapters.providers.lines import json_object
from shopfloor.adapters.providers.reading import error_by_status, run_error, text_at
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
from shopfloor.limits import PROVIDER_WORDS_CHARS
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

_BROKEN = ("stream disconnected", "reading the server response", "rate limit exceeded")


def failure(message: str) -> RunError:
    """What a sentence of Codex's means in our words."""
    words = message[:PROVIDER_WORDS_CHARS]
    status = status_in(message)
    if status is not None:
        return error_by_status(status, words, retry_after=_retry_after(message))
    if message.startswith("{"):
        # For a status 400 it hands on the answer's body as it came.
        said = text_at(json_object(message.encode()) or {}, "error", "message")
        return run_error(RequestRejected, (said or words)[:PROVIDER_WORDS_CHARS])
    lower = message.lower()
    kind = next((kind for phrase, kind in _PHRASES if phrase in lower), AgentFailed)
    return run_error(kind, words, retry_after=_retry_after(message))


def error_note(message: str) -> Note:
    return Note(kind="error", message=message, code=failure(message).code, status=status_in(message))


def retry_note(message: str) -> Note | None:
    """The note of a model call that is made again; None where the message tells of something else."""
    found = _RETRY.fullmatch(message)
    if found is None:
        return None
    number, tries, reason = found.groups()
    again = _count(tries)
    # It counts how often it tries again; the first try is one more.
    note = Note(kind="retry", message=message, try_=_count(number), tries=None if again is None else again + 1)
    if reason is None:
        return note
    code, status, after = failure(reason).code, status_in(reason), _retry_after(reason)
    return msgspec.structs.replace(note, code=code, status=status, retry_after=after)


def broke_off(message: str) -> bool:
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


def _count(digits: str | None) -> int | None:
    return int(digits) if digits is not None else None
