"""One connection pool per provider, and the pydantic-ai model that speaks through it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx2
from anthropic import AsyncAnthropic
from google.genai.types import HttpRetryOptions
from openai import AsyncOpenAI
from pydantic_ai.models import Model
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.google import GoogleModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers import Provider
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.google import GoogleProvider
from pydantic_ai.providers.ollama import OllamaProvider
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider

from shopfloor.adapters.models.endpoints import Endpoint
from shopfloor.errors import AuthenticationFailed
from shopfloor.limits import MODEL_CONNECT_SECONDS, MODEL_CONNECTIONS


class Connection:
    """A provider, with its clients' own retries turned off: the engine retries, and writes down that it did."""

    def __init__(self, endpoint: Endpoint, silence: float) -> None:
        if endpoint.key is None and endpoint.key_variable is not None:
            raise AuthenticationFailed(
                f"there is no key for {endpoint.provider}",
                hint=f"set {endpoint.key_variable} in the environment of the host that runs the worker",
            )
        self.endpoint = endpoint
        self._key = endpoint.key or "none"
        self._timeout = httpx2.Timeout(silence, connect=min(silence, MODEL_CONNECT_SECONDS))
        self._http = httpx2.AsyncClient(
            timeout=self._timeout,
            limits=httpx2.Limits(max_connections=MODEL_CONNECTIONS),
            event_hooks={"request": [self._cap_connecting]},
        )
        self._make = self._maker()

    def model(self, name: str) -> Model[Any]:
        return self._make(name)

    async def aclose(self) -> None:
        await self._http.aclose()

    def _maker(self) -> Callable[[str], Model[Any]]:
        """Clients are slow to make, and have no state between requests: one of each is enough."""
        match self.endpoint.dialect:
            case "anthropic":
                anthropic = AnthropicProvider(anthropic_client=self._anthropic())
                return lambda name: AnthropicModel(name, provider=anthropic)
            case "google":
                google = self._google()
                return lambda name: GoogleModel(name, provider=google)
            case "openai-responses":
                openai = OpenAIProvider(openai_client=self._openai())
                return lambda name: OpenAIResponsesModel(name, provider=openai)
            case "openai-chat":
                compatible = self._compatible()
                return lambda name: OpenAIChatModel(name, provider=compatible)

    def _anthropic(self) -> AsyncAnthropic:
        return AsyncAnthropic(
            api_key=self._key,
            base_url=self.endpoint.url,
            http_client=self._http,
            timeout=self._timeout,
            max_retries=0,
        )

    def _openai(self) -> AsyncOpenAI:
        return AsyncOpenAI(
            api_key=self._key,
            base_url=self.endpoint.url,
            http_client=self._http,
            timeout=self._timeout,
            max_retries=0,
        )

    def _google(self) -> GoogleProvider:
        return GoogleProvider(
            api_key=self._key,
            base_url=self.endpoint.url,
            http_client=self._http,
            retry_options=HttpRetryOptions(attempts=1),
        )

    def _compatible(self) -> Provider[AsyncOpenAI]:
        if self.endpoint.provider == "ollama":
            return OllamaProvider(openai_client=self._openai())
        return OpenAICompatibleProvider(self.endpoint.provider, openai_client=self._openai())

    async def _cap_connecting(self, request: httpx2.Request) -> None:
        """Some clients send one number for every phase, which would let a dead address hold a run for minutes."""
        phases: dict[str, float | None] = request.extensions.get("timeout") or {}
        request.extensions = {**request.extensions, "timeout": {**phases, "connect": self._timeout.connect}}
