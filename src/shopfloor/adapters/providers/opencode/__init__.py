"""OpenCode, an open agent for the models of many providers."""

from shopfloor.adapters.providers.opencode.launcher import OpenCode as _OpenCode
from shopfloor.ports import Provider as _Provider

__all__ = ["PROVIDER"]

PROVIDER: _Provider = _OpenCode()
