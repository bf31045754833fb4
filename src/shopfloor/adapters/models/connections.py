"""One connection pool per provider, and the pydantic-ai models that use it."""

from __future__ import annotations

import functools
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

from shopfloor.adapters.limits import MODEL_CONNECT_SECONDS, MODEL_CONNECTIONS
from shopfloor.adapters.models.router import Endpoint
from shopfloor.errors import AuthenticationFailed

_opened: ContextVar[list[httpx2.Response] | None] = ContextVar("opened", default=None)


@contextmanager
def track_responses() -> Generator[list[httpx2.Response]]:
    """Collect the HTTP responses opened within the context, by any client, so that the caller can close them."""
    opened: list[httpx2.Response] = []
    token = _opened.set(opened)
    try:
        yield opened
    finally:
        _opened.reset(token)


# Loading the certificates of the system takes 25 ms of processor time: once for all providers.
_tls_context = functools.cache(httpx2.create_ssl_context)


class _ClosableBody(httpx2.AsyncByteStream):
    """A response body whose iteration ends when the body is closed.

    Clients read a body through generators that they leave unclosed when their reader stops. The innermost generator
    would hold the connection until a garbage collection, in whichever thread that runs.
    """

    def __init__(self, body: httpx2.AsyncByteStream) -> None:
        self._body = body
        self._iterator: AsyncIterator[bytes] | None = None

    def __aiter__(self) -> AsyncIterator[bytes]:
        self._iterator = self._body.__aiter__()
        return _Chunks(self._iterator)

    async def aclose(self) -> None:
        if close := getattr(self._iterator, "aclose", None):
            await close()
        await self._body.aclose()


class _Chunks(AsyncIterator[bytes]):
    """A plain iterator, not a generator, so that its reader cannot close the body a second time."""

    def __init__(self, chunks: AsyncIterator[bytes]) -> None:
        self._chunks = chunks

    async def __anext__(self) -> bytes:
        return await anext(self._chunks)


class Connection:
    """The connection pool of a provider. Retries of the clients are off: the engine retries and logs each retry."""

    def __init__(self, endpoint: Endpoint, read_timeout: float) -> None:
        """Set up the client. Raises `AuthenticationFailed` if the provider needs a key and has none."""
        if endpoint.key is None and endpoint.key_variable is not None:
            raise AuthenticationFailed(
                f"there is no key for {endpoint.provider}",
                hint=f"set {endpoint.key_variable} in the environment of the process that executes the run: "
                "this shell, or the server's",
            )
        self.endpoint = endpoint
        self._key = endpoint.key or "none"
        self._timeout = httpx2.Timeout(read_timeout, connect=min(read_timeout, MODEL_CONNECT_SECONDS))
        self._http = httpx2.AsyncClient(
            verify=_tls_context(),
            timeout=self._timeout,
            limits=httpx2.Limits(max_connections=MODEL_CONNECTIONS),
            event_hooks={"request": [self._limit_connect_timeout], "response": [_track_response]},
        )
        self._create_model = self._model_factory()

    def model(self, name: str) -> Model[Any]:
        """Return the pydantic-ai model of that name."""
        return self._create_model(name)

    async def aclose(self) -> None:
        await self._http.aclose()

    def _model_factory(self) -> Callable[[str], Model[Any]]:
        """Return a function that creates models. They share a client, which is slow to create and has no state."""
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

    async def _limit_connect_timeout(self, request: httpx2.Request) -> None:
        """Reset the connect timeout: clients that use one timeout for all phases would wait long for a dead address."""
        phases: dict[str, float | None] = request.extensions.get("timeout") or {}
        request.extensions = {**request.extensions, "timeout": {**phases, "connect": self._timeout.connect}}


async def _track_response(response: httpx2.Response) -> None:
    """Make the body closable and add the response to those of `track_responses`."""
    if (opened := _opened.get()) is not None and isinstance(response.stream, httpx2.AsyncByteStream):
        response.stream = _ClosableBody(response.stream)
        opened.append(response)
