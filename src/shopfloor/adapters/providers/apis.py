"""Model APIs as providers: nothing is started for them, and what they answer can be normalised like the rest."""

from __future__ import annotations

from shopfloor.ports import Normaliser

API_KEYS = {"openai": "OPENAI_API_KEY", "anthropic": "ANTHROPIC_API_KEY"}
"""The APIs, and the variable that each takes its key from."""


def api_normaliser(name: str) -> Normaliser:
    from shopfloor.adapters.providers.http import AnthropicNormaliser, OpenAINormaliser

    return AnthropicNormaliser() if name == "anthropic" else OpenAINormaliser()
