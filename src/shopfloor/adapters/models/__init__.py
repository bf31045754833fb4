"""Models that reply in a conversation: model APIs over the network, and scripted models for tests."""

from shopfloor.adapters.models.router import ModelRouter, resolve_endpoint

__all__ = ["ModelRouter", "resolve_endpoint"]
