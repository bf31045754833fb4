"""GitHub Copilot's command line agent."""

from shopfloor.adapters.providers.copilot.launcher import PROVIDER

__all__ = ["PROVIDER"]
