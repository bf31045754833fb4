"""Models that reply in a conversation: model APIs over the network, and scripted models for tests."""

from shopfloor.adapters.models.router import ModelRouter

__all__ = ["ModelRouter"]
