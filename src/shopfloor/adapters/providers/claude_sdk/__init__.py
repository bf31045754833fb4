"""Claude through Anthropic's `claude-agent-sdk`: sessions that can call a worker's own tools, and have a sandbox."""

from shopfloor.adapters.providers.claude_sdk.launcher import ClaudeSdk as _ClaudeSdk
from shopfloor.ports import Provider as _Provider

__all__ = ["PROVIDER"]

PROVIDER: _Provider = _ClaudeSdk()
