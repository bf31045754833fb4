"""Where each provider is, and which variables of the environment name its address and its key.

`SHOPFLOOR_MODEL_<PROVIDER>_URL` and `SHOPFLOOR_MODEL_<PROVIDER>_KEY` hold for every provider and win over its usual
variables. A provider that is not listed here is any OpenAI-compatible endpoint whose address is given that way.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import anyio
import msgspec

from shopfloor.adapters.models.scripted_model import ScriptedModels
from shopfloor.errors import RequestRejected, ShopfloorError, UnknownModel
from shopfloor.limits import SCRIPT_WORD_SECONDS
from shopfloor.ports import ModelRequest, Reply, ReplyDelta

if TYPE_CHECKING:
    from shopfloor.adapters.models.pydantic_ai_models import PydanticAIModels


Dialect = Literal["anthropic", "openai-responses", "openai-chat", "google"]


class ProviderDefaults(msgspec.Struct, frozen=True, kw_only=True):
    """A provider that is known by name."""

    dialect: Dialect
    url: str
    url_variables: tuple[str, ...] = ()
    key_variables: tuple[str, ...] = ()
    """Its usual names for a key; with none it asks for none."""
    has_native_schemas: bool = True
    """Whether it can be held to a JSON schema by itself."""


KNOWN_PROVIDERS: dict[str, ProviderDefaults] = {
    "anthropic": ProviderDefaults(
        dialect="anthropic",
        url="https://api.anthropic.com",
        url_variables=("ANTHROPIC_BASE_URL",),
        key_variables=("ANTHROPIC_API_KEY",),
    ),
    "openai": ProviderDefaults(
        dialect="openai-responses",
        url="https://api.openai.com/v1",
        url_variables=("OPENAI_BASE_URL",),
        key_variables=("OPENAI_API_KEY",),
    ),
    "google": ProviderDefaults(
        dialect="google",
        url="https://generativelanguage.googleapis.com",
        url_variables=("GOOGLE_GEMINI_BASE_URL",),
        key_variables=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    ),
    "ollama": ProviderDefaults(
        dialect="openai-chat", url="http://localhost:11434/v1", url_variables=("OLLAMA_BASE_URL",), key_variables=()
    ),
    "vllm": ProviderDefaults(dialect="openai-chat", url="http://localhost:8000/v1"),
}

_COMPATIBLE = ProviderDefaults(dialect="openai-chat", url="", has_native_schemas=False)


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    provider: str
    dialect: Dialect
    url: str
    key: str | None
    key_variable: str | None
    """The variable that should have had the key; None where no key is needed."""
    has_native_schemas: bool


def has_configured_provider(env: Mapping[str, str]) -> bool:
    """Whether the environment names a key or an address of any provider."""
    usual = {name for stock in KNOWN_PROVIDERS.values() for name in (*stock.key_variables, *stock.url_variables)}
    return any(name in usual or name.startswith("SHOPFLOOR_MODEL_") for name, value in env.items() if value)


def env_variable_name(provider: str, what: Literal["URL", "KEY"]) -> str:
    return f"SHOPFLOOR_MODEL_{re.sub(r'[^A-Z0-9]', '_', provider.upper())}_{what}"


def resolve_endpoint(provider: str, env: Mapping[str, str]) -> Endpoint | None:
    """None where nobody of that name is known."""
    url = env.get(env_variable_name(provider, "URL"))
    stock = KNOWN_PROVIDERS.get(provider)
    if stock is None:
        if not url:
            return None
        stock = _COMPATIBLE
    return Endpoint(
        provider=provider,
        dialect=stock.dialect,
        url=url or _first(env, stock.url_variables) or stock.url,
        key=_first(env, (env_variable_name(provider, "KEY"), *stock.key_variables)),
        key_variable=next(iter(stock.key_variables), None),
        has_native_schemas=stock.has_native_schemas,
    )


def _first(env: Mapping[str, str], names: tuple[str, ...]) -> str | None:
    return next((env[name] for name in names if env.get(name)), None)


_INSTALL = "install Shopfloor with its extra `models`"


class ModelRouter:
    """The models that this process can ask: by the keys in its environment, and by scripts."""

    def __init__(
        self,
        scripts: Sequence[Path] = (),
        env: Mapping[str, str] | None = None,
        *,
        script: Path | None = None,
        chunk_seconds: float = SCRIPT_WORD_SECONDS,
    ) -> None:
        """With `script`, that file answers for every model; no model is asked. See `ScriptedModels` for the pause."""
        self._env = os.environ if env is None else env
        self._script = None if script is None else str(script)
        self._scripted = ScriptedModels(scripts, self._env, chunk_seconds=chunk_seconds)
        self._remote: PydanticAIModels | None = None

    def check(self, model: str) -> None:
        self._route(model, UnknownModel)

    def warm_up(self) -> None:
        """Loads what is slow to load, where models are set up. Blocks for seconds: for a thread of its own."""
        if _installed() and has_configured_provider(self._env):
            importlib.import_module("shopfloor.adapters.models.pydantic_ai_models")

    async def reply(self, request: ModelRequest) -> AsyncIterator[ReplyDelta | Reply]:
        endpoint = self._route(request.model, RequestRejected)
        if endpoint is None:
            replies = self._scripted.reply(request, self._script)
        else:
            replies = (await self._connected()).reply(endpoint, request)
        async with aclosing(replies):
            async for piece in replies:
                yield piece

    async def aclose(self) -> None:
        """Closes every connection."""
        if self._remote is not None:
            remote, self._remote = self._remote, None
            await remote.aclose()

    def _route(self, model: str, missing: type[ShopfloorError]) -> Endpoint | None:
        """Where that model is asked; None for a script."""
        provider, slash, name = model.partition("/")
        if not (provider and slash and name):
            raise UnknownModel(f"{model!r} is not a model's name", hint=f"write provider/name; {self._providers()}")
        if provider == "script" or self._script is not None:
            self._scripted.check(self._script or name)
            return None
        endpoint = resolve_endpoint(provider, self._env)
        if endpoint is None:
            variable = env_variable_name(provider, "URL")
            raise UnknownModel(
                f"no provider is named {provider!r}",
                hint=f"{self._providers()}; for any OpenAI-compatible endpoint set {variable}",
            )
        if not _installed():
            raise missing(f"the client that asks {provider} is not installed", hint=_INSTALL)
        return endpoint

    def _providers(self) -> str:
        return f"providers are {', '.join([*KNOWN_PROVIDERS, 'script'])}"

    async def _connected(self) -> PydanticAIModels:
        if self._remote is None:
            await anyio.to_thread.run_sync(self.warm_up)
            from shopfloor.adapters.models.pydantic_ai_models import PydanticAIModels

            # Several may have waited for the import: the first of them has made it.
            self._remote = self._remote or PydanticAIModels(self._env)
        return self._remote


def _installed() -> bool:
    return importlib.util.find_spec("pydantic_ai") is not None
