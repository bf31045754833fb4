"""The providers by their names."""

from __future__ import annotations

from importlib import import_module
from typing import cast

from shopfloor.adapters.providers.apis import API_KEYS, api_normaliser
from shopfloor.errors import ProviderNotFound
from shopfloor.ports import Normaliser, Provider

_HOMES = {
    "claude-code": "claude",
    "claude-sdk": "claude_sdk",
    "codex": "codex",
    "gemini": "gemini",
    "copilot": "copilot",
    "opencode": "opencode",
}
NAMES = tuple(_HOMES)
"""The providers that run as programs."""


def normaliser(name: str, *, resumed: bool | None = None) -> Normaliser:
    """What understands what a provider says: an agent's program, or a model API's answers."""
    if name in API_KEYS:
        return api_normaliser(name)
    if name not in _HOMES:
        raise ProviderNotFound(f"there is no provider {name!r}", hint=f"there are {', '.join((*NAMES, *API_KEYS))}")
    return provider(name).normaliser(resumed=resumed)


def provider(name: str) -> Provider:
    """Each folder is loaded when somebody asks for it, and has its provider as `PROVIDER`."""
    if name not in _HOMES:
        raise ProviderNotFound(f"there is no provider {name!r}", hint=f"there are {', '.join(NAMES)}")
    return cast("Provider", import_module(f"shopfloor.adapters.providers.{_HOMES[name]}").PROVIDER)
