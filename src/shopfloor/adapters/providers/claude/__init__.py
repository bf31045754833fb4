"""Claude Code, Anthropic's agent."""

from shopfloor.adapters.providers.claude.launcher import ClaudeCode as _ClaudeCode
from shopfloor.ports import Provider as _Provider

__all__ = ["PROVIDER"]

PROVIDER: _Provider = _ClaudeCode()
