"""Masking: an opt-in hook at the one writer, so that a secret is never in the log at all."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, Final, cast

from shopfloor.errors import InvalidSecret
from shopfloor.limits import MASK_LOOKBACK_BYTES, SECRET_MIN_CHARS

MASK: Final = "[masked]"

MaskHook = Callable[[dict[str, Any]], dict[str, Any]]
"""Takes a payload as plain data, gives what is to be written instead."""

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

# How the shapes above begin, for what arrives in pieces: all of it, and any first part of it.
_KEY_BEGINNINGS: Final = (
    *(b"sk-", b"ghp_", b"gho_", b"ghu_", b"ghs_", b"ghr_", b"github_pat_", b"glpat-", b"AKIA", b"ASIA", b"AIza"),
    *(b"xoxa-", b"xoxb-", b"xoxe-", b"xoxo-", b"xoxp-", b"xoxr-", b"xoxs-", b"sk_live_", b"rk_live_", b"eyJ"),
    b"-----BEGIN ",
)
_BEGUN_KEY: Final = re.compile(
    rb"(?<![A-Za-z0-9])(?:(?:%b)\S*|-----BEGIN (?:(?!-----END [A-Z ]*PRIVATE KEY-----).)*)\Z"
    % b"|".join(map(re.escape, _KEY_BEGINNINGS[:-1])),
    re.DOTALL,
)

# The words that give an event its shape: masking them would make it unreadable and hide nothing.
_STRUCTURE: Final = frozenset({"type", "fidelity", "role", "kind", "status", "stream", "executor"})
# Below these there is no shape of ours, but whatever a tool or a worker says.
_FREE: Final = frozenset(
    {"input", "output", "result", "tool_input", "tool_content", "definition", "capabilities", "rate_limits"}
)


class Masking:
    """A hook that replaces given values and, if asked, what looks like a known kind of key."""

    def __init__(self, values: Iterable[str] = (), *, key_shapes: bool = False) -> None:
        secrets = sorted({_checked(value) for value in values}, key=len, reverse=True)
        patterns = [re.escape(secret) for secret in secrets]
        if key_shapes:
            # Not in the middle of a word: `task-…` is no key.
            patterns.append(rf"(?<![A-Za-z0-9])(?:{'|'.join(_KEY_SHAPES.values())})")
        pattern = "|".join(patterns) or r"(?!)"
        self._replace = re.compile(pattern, re.DOTALL).sub
        self._found_in = re.compile(pattern.encode("utf-8", "surrogateescape"), re.DOTALL).finditer
        self._beginnings = [secret.encode("utf-8", "surrogateescape") for secret in secrets]
        if key_shapes:
            self._beginnings.extend(_KEY_BEGINNINGS)
        self._begun = _BEGUN_KEY if key_shapes else None

    def __call__(self, payload: dict[str, Any]) -> dict[str, Any]:
        return cast("dict[str, Any]", self._masked(payload, free=False))

    def text(self, text: str) -> str:
        return self._replace(MASK, text)

    def mask_stable_prefix(self, text: str) -> str:
        """The masked beginning of a text that still grows: what no later text can turn out to be part of a secret."""
        return self.text(text[: self._settled_chars(text)])

    def cut_off(self, text: str) -> str:
        """The masked text of which no more will come. An end that may be the beginning of a secret is masked too."""
        return self.mask_stable_prefix(text) + (MASK if self._settled_chars(text) < len(text) else "")

    def _settled_chars(self, text: str) -> int:
        data = text.encode("utf-8", "surrogatepass")
        # Beginnings of secrets are whole characters, but a text can end with a part of the one after.
        return len(data[: len(data) - self.pending_secret_bytes(data, len(data))].decode("utf-8", "ignore"))

    def pending_secret_bytes(self, data: bytes, most: int = MASK_LOOKBACK_BYTES) -> int:
        """How many bytes at the end of `data` may be the beginning of a secret whose rest is still to come."""
        data = data[-most:]
        begun = self._begun.search(data) if self._begun else None
        pending_secret_bytes = len(data) - begun.start() if begun else 0
        for secret in self._beginnings:
            pending_secret_bytes = max(
                pending_secret_bytes, next((n for n in range(len(secret) - 1, 0, -1) if data.endswith(secret[:n])), 0)
            )
        # What ends a secret can begin another: never cut one that is whole.
        cut = len(data) - pending_secret_bytes
        return len(data) - min([cut, *(found.start() for found in self._found_in(data) if found.end() > cut)])

    def _masked(self, value: Any, *, free: bool) -> Any:
        match value:
            case str():
                return self.text(value)
            case dict():
                fields = cast("dict[str, Any]", value)
                if free:
                    return {self.text(key): self._masked(item, free=True) for key, item in fields.items()}
                return {
                    key: item if key in _STRUCTURE else self._masked(item, free=key in _FREE)
                    for key, item in fields.items()
                }
            case list() | tuple():
                return [self._masked(item, free=free) for item in cast("list[Any]", value)]
            case _:
                return value


def _checked(value: str) -> str:
    if len(value) < SECRET_MIN_CHARS:
        raise InvalidSecret(
            f"a secret of {len(value)} characters cannot be masked: it would hit ordinary words",
            hint=f"secrets have at least {SECRET_MIN_CHARS} characters",
        )
    return value
