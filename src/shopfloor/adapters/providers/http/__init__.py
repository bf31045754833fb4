"""What model APIs answer, streamed or whole: the bytes of one response's body, as reports."""

from shopfloor.adapters.providers.http.anthropic import AnthropicNormalizer
from shopfloor.adapters.providers.http.openai import OpenAINormalizer

__all__ = ["AnthropicNormalizer", "OpenAINormalizer"]
