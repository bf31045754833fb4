"""Whoever answers in a thread: model APIs over the net, and scripts that need nobody."""

from shopfloor.adapters.models.router import ModelRouter

__all__ = ["ModelRouter"]
