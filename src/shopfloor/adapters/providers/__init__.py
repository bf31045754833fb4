"""Agents that Shopfloor can run and understand, each in a folder of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shopfloor.lazy import lazily as _lazily

if TYPE_CHECKING:
    from shopfloor.adapters.providers.apis import API_KEYS
    from shopfloor.adapters.providers.found import found_providers
    from shopfloor.adapters.providers.prices import price
    from shopfloor.adapters.providers.registry import NAMES, normaliser, provider

__all__ = ["API_KEYS", "NAMES", "found_providers", "normaliser", "price", "provider"]

__getattr__ = _lazily(
    __name__,
    {
        "apis": ("API_KEYS",),
        "found": ("found_providers",),
        "prices": ("price",),
        "registry": ("NAMES", "normaliser", "provider"),
    },
)
