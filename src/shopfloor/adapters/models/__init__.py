"""Whoever answers in a thread: model APIs over the net, and scripts that need nobody."""

from shopfloor.adapters.models.local import LocalModels

__all__ = ["LocalModels"]
