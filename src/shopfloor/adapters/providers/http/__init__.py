"""What model APIs answer, streamed or whole: the bytes of one response's body, as reports."""

from shopfloor.adapters.providers.http.anthropic import AnthropicNormaliser
from shopfloor.adapters.providers.http.openai import OpenAINormaliser

__all__ = ["AnthropicNormaliser", "OpenAINormaliser"]
