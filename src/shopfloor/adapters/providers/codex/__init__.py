"""Codex, OpenAI's agent."""

from shopfloor.adapters.providers.codex.launcher import Codex as _Codex
from shopfloor.ports import Provider as _Provider

__all__ = ["PROVIDER"]

PROVIDER: _Provider = _Codex()
