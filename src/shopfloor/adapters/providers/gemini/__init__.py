"""Gemini CLI, Google's agent."""

from shopfloor.adapters.providers.gemini.launcher import Gemini as _Gemini
from shopfloor.ports import Provider as _Provider

__all__ = ["PROVIDER"]

PROVIDER: _Provider = _Gemini()
