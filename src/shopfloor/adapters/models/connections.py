"""One connection pool per provider, and the pydantic-ai model that speaks through it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
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

from shopfloor.adapters.models.router import Endpoint
from shopfloor.errors import AuthenticationFailed
from shopfloor.limits import MODEL_CONNECT_SECONDS, MODEL_CONNECTIONS

_opened: ContextVar[list[httpx2.Response] | None] = ContextVar("opened", default=None)


@contextmanager
def track_responses() -> Generator[list[httpx2.Response]]:
    """The responses that are begun inside, whichever client asks: who opens them can hang up."""
    opened: list[httpx2.Response] = []
    token = _opened.set(opened)
    try:
        yield opened
    finally:
        _opened.reset(token)


class _HungUpAtOnce(httpx2.AsyncByteStream):
    """A body whose reading ends when it is closed.

    Clients read a body through generators that they leave unclosed when nobody listens any more. The innermost of them
    would hold the connection until a garbage collection, in whichever thread that happens to run.
    """

    def __init__(self, body: httpx2.AsyncByteStream) -> None:
        self._body = body
        self._reading: AsyncIterator[bytes] | None = None

    def __aiter__(self) -> AsyncIterator[bytes]:
        self._reading = self._body.__aiter__()
        return _Pieces(self._reading)

    async def aclose(self) -> None:
        if stop := getattr(self._reading, "aclose", None):
            await stop()
        await self._body.aclose()


class _Pieces(AsyncIterator[bytes]):
    """No generator, so that what reads it does not close it a second time."""

    def __init__(self, pieces: AsyncIterator[bytes]) -> None:
        self._pieces = pieces

    async def __anext__(self) -> bytes:
        return await anext(self._pieces)


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
            event_hooks={"request": [self._cap_connecting], "response": [_keep]},
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


async def _keep(response: httpx2.Response) -> None:
    """What the caller listens to can be hung up by the caller."""
    if (opened := _opened.get()) is not None and isinstance(response.stream, httpx2.AsyncByteStream):
        response.stream = _HungUpAtOnce(response.stream)
        opened.append(response)
