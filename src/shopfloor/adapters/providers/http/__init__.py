"""Normalizers of model APIs: they turn the body of one response, streamed or not, into reports."""

from shopfloor.adapters.providers.http.anthropic import AnthropicNormalizer
from shopfloor.adapters.providers.http.openai import OpenAINormalizer

__all__ = ["AnthropicNormalizer", "OpenAINormalizer"]
