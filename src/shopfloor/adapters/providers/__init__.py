"""Providers: the agents that Shopfloor can run, one package each, and the model APIs whose responses it can read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shopfloor.lazy import lazy_getattr as _lazy_getattr

if TYPE_CHECKING:
    from shopfloor.adapters.providers.discovery import (
        API_KEYS,
        PROVIDER_NAMES,
        discover_providers,
        installed_providers,
        kill_probed_programs,
        normalizer,
        provider,
    )
    from shopfloor.adapters.providers.usage import price

__all__ = [
    "API_KEYS",
    "PROVIDER_NAMES",
    "discover_providers",
    "installed_providers",
    "kill_probed_programs",
    "normalizer",
    "price",
    "provider",
]

__getattr__ = _lazy_getattr(
    __name__,
    {
        "discovery": (
            "API_KEYS",
            "PROVIDER_NAMES",
            "discover_providers",
            "installed_providers",
            "kill_probed_programs",
            "normalizer",
            "provider",
        ),
        "usage": ("price",),
    },
)
