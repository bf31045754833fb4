"""Masking of secrets: an opt-in hook of the log writer, so that a secret never reaches the log.

The hook sees one event at a time, so it cannot find a secret that is split between two. Therefore
`engine.command_output` and `engine.partial_message_writer` hold back the beginning of a possible secret until its rest
arrives, and `engine.agents.agent_process` masks the standard error of an agent before it truncates the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, Final, cast

from shopfloor.errors import InvalidSecret
from shopfloor.limits import MASK_LOOKBACK_BYTES, SECRET_MIN_CHARS

MASK: Final = "[masked]"

MaskHook = Callable[[dict[str, Any]], dict[str, Any]]
"""Takes a payload as plain data and returns the data to write instead."""

_KEY_SHAPES: Final[dict[str, str]] = {
    "Anthropic key": r"sk-ant-[A-Za-z0-9_-]{16,}",
    "OpenAI key": r"sk-(?:proj-|svcacct-)?[A-Za-z0-9_-]{20,}",
    "GitHub token": r"gh[pousr]_[A-Za-z0-9]{36,}|github_pat_[A-Za-z0-9_]{22,}",
    "GitLab token": r"glpat-[A-Za-z0-9_-]{20,}",
    "AWS access key": r"(?:AKIA|ASIA)[A-Z0-9]{16}",
    "Google API key": r"AIza[A-Za-z0-9_-]{35}",
    "Slack token": r"xox[abeoprs]-[A-Za-z0-9-]{10,}",
    "Stripe key": r"[rs]k_live_[A-Za-z0-9]{16,}",
    "JSON web token": r"eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}",
    "private key": r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)",
}

# Prefixes of the shapes above, to recognize an incomplete key at the end of a text that still grows.
_KEY_PREFIXES: Final = (
    *(b"sk-", b"ghp_", b"gho_", b"ghu_", b"ghs_", b"ghr_", b"github_pat_", b"glpat-", b"AKIA", b"ASIA", b"AIza"),
    *(b"xoxa-", b"xoxb-", b"xoxe-", b"xoxo-", b"xoxp-", b"xoxr-", b"xoxs-", b"sk_live_", b"rk_live_", b"eyJ"),
    b"-----BEGIN ",
)
_INCOMPLETE_KEY: Final = re.compile(
    rb"(?<![A-Za-z0-9])(?:(?:%b)\S*|-----BEGIN (?:(?!-----END [A-Z ]*PRIVATE KEY-----).)*)\Z"
    % b"|".join(map(re.escape, _KEY_PREFIXES[:-1])),
    re.DOTALL,
)

# Fields with words of the format: masking them would make an event unreadable and hide nothing.
_FORMAT_FIELDS: Final = frozenset({"type", "fidelity", "role", "kind", "status", "stream", "executor"})
# Fields with arbitrary content of tools and workers, in which keys are masked too.
_FREE_FORM_FIELDS: Final = frozenset(
    {"input", "output", "result", "tool_input", "tool_content", "definition", "capabilities", "rate_limits"}
)


class Masking:
    """A mask hook that replaces the given values and, with `key_shapes`, text that looks like a known kind of key."""

    def __init__(self, values: Iterable[str] = (), *, key_shapes: bool = False) -> None:
        secrets = sorted({_validate_secret(value) for value in values}, key=len, reverse=True)
        patterns = [re.escape(secret) for secret in secrets]
        if key_shapes:
            # Not in the middle of a word: `task-…` contains `sk-…` but is not a key.
            patterns.append(rf"(?<![A-Za-z0-9])(?:{'|'.join(_KEY_SHAPES.values())})")
        pattern = "|".join(patterns) or r"(?!)"
        self._replace = re.compile(pattern, re.DOTALL).sub
        self._find_secrets = re.compile(pattern.encode("utf-8", "surrogateescape"), re.DOTALL).finditer
        self._prefixes = [secret.encode("utf-8", "surrogateescape") for secret in secrets]
        if key_shapes:
            self._prefixes.extend(_KEY_PREFIXES)
        self._incomplete_key = _INCOMPLETE_KEY if key_shapes else None

    def __call__(self, payload: dict[str, Any]) -> dict[str, Any]:
        return cast("dict[str, Any]", self._mask_value(payload, free_form=False))

    def text(self, text: str) -> str:
        """Return the text with every secret replaced by `MASK`."""
        return self._replace(MASK, text)

    def mask_stable_prefix(self, text: str) -> str:
        """Mask the start of a text that still grows. Omits an end that later text could complete to a secret."""
        return self.text(text[: self._stable_chars(text)])

    def mask_truncated(self, text: str) -> str:
        """Mask a text that was interrupted. An end that may be the start of a secret is masked too."""
        return self.mask_stable_prefix(text) + (MASK if self._stable_chars(text) < len(text) else "")

    def pending_secret_chars(self, text: str) -> int:
        """Return how many characters at the end of a text that still grows may be the start of a secret."""
        end = text[-MASK_LOOKBACK_BYTES:]
        return len(end) - self._stable_chars(end)

    def _stable_chars(self, text: str) -> int:
        data = text.encode("utf-8", "surrogatepass")
        # The cut is between two characters, but a text can end with one surrogate of a pair: "ignore" drops it.
        return len(data[: len(data) - self.pending_secret_bytes(data, len(data))].decode("utf-8", "ignore"))

    def pending_secret_bytes(self, data: bytes, lookback_bytes: int = MASK_LOOKBACK_BYTES) -> int:
        """Return how many bytes at the end of `data` may be the start of a secret whose rest has not arrived yet."""
        data = data[-lookback_bytes:]
        match = self._incomplete_key.search(data) if self._incomplete_key else None
        pending = len(data) - match.start() if match else 0
        for secret in self._prefixes:
            pending = max(pending, next((n for n in range(len(secret) - 1, 0, -1) if data.endswith(secret[:n])), 0))
        # The end of a secret can be the start of another: never split a complete secret.
        split = len(data) - pending
        starts = (found.start() for found in self._find_secrets(data) if found.end() > split)
        return len(data) - min([split, *starts])

    def _mask_value(self, value: Any, *, free_form: bool) -> Any:
        match value:
            case str():
                return self.text(value)
            case dict():
                fields = cast("dict[str, Any]", value)
                if free_form:
                    return {self.text(key): self._mask_value(item, free_form=True) for key, item in fields.items()}
                return {
                    key: item if key in _FORMAT_FIELDS else self._mask_value(item, free_form=key in _FREE_FORM_FIELDS)
                    for key, item in fields.items()
                }
            case list() | tuple():
                return [self._mask_value(item, free_form=free_form) for item in cast("list[Any]", value)]
            case _:
                return value


def _validate_secret(value: str) -> str:
    if len(value) < SECRET_MIN_CHARS:
        raise InvalidSecret(
            f"a secret of {len(value)} characters cannot be masked: it would match ordinary words",
            hint=f"use secrets of at least {SECRET_MIN_CHARS} characters",
        )
    return value
