"""The router from a model name to its endpoint: a provider with its address and key, or a script.

`SHOPFLOOR_MODEL_<PROVIDER>_URL` and `SHOPFLOOR_MODEL_<PROVIDER>_KEY` work for every provider and take precedence over
its usual variables. A provider that is not listed here is any OpenAI-compatible endpoint with such an address.

Model clients take seconds to import, so nothing here imports them before the first request; `warm_up` does so early.
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

from shopfloor.adapters.limits import SCRIPT_WORD_SECONDS
from shopfloor.adapters.models.scripted_model import ScriptedModels
from shopfloor.errors import RequestRejected, ShopfloorError, UnknownModel
from shopfloor.ports import ModelRequest, Reply, ReplyDelta

if TYPE_CHECKING:
    from shopfloor.adapters.models.pydantic_ai_models import PydanticAIModels


Dialect = Literal["anthropic", "openai-responses", "openai-chat", "google"]


class ProviderDefaults(msgspec.Struct, frozen=True, kw_only=True):
    """The address and the variables of a provider that is known by name."""

    dialect: Dialect
    url: str
    url_variables: tuple[str, ...] = ()
    key_variables: tuple[str, ...] = ()
    """The usual variables for its key; empty if the provider needs no key."""
    has_native_schemas: bool = True
    """Whether the provider can enforce a JSON schema natively."""


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
    """The address and the key of a provider in this environment."""

    provider: str
    dialect: Dialect
    url: str
    key: str | None
    key_variable: str | None
    """The variable that should contain the key; None if no key is needed."""
    has_native_schemas: bool


def has_configured_provider(env: Mapping[str, str]) -> bool:
    """Return whether the environment has a key or an address of any provider."""
    known = {
        name for defaults in KNOWN_PROVIDERS.values() for name in (*defaults.key_variables, *defaults.url_variables)
    }
    return any(name in known or name.startswith("SHOPFLOOR_MODEL_") for name, value in env.items() if value)


def env_variable_name(provider: str, suffix: Literal["URL", "KEY"]) -> str:
    """Return the name of Shopfloor's variable for the address or the key of a provider."""
    return f"SHOPFLOOR_MODEL_{re.sub(r'[^A-Z0-9]', '_', provider.upper())}_{suffix}"


def resolve_endpoint(provider: str, env: Mapping[str, str]) -> Endpoint | None:
    """Return the endpoint of a provider, or None if the provider is unknown and has no address."""
    url = env.get(env_variable_name(provider, "URL"))
    defaults = KNOWN_PROVIDERS.get(provider)
    if defaults is None:
        if not url:
            return None
        defaults = _COMPATIBLE
    return Endpoint(
        provider=provider,
        dialect=defaults.dialect,
        url=url or _first_value(env, defaults.url_variables) or defaults.url,
        key=_first_value(env, (env_variable_name(provider, "KEY"), *defaults.key_variables)),
        key_variable=next(iter(defaults.key_variables), None),
        has_native_schemas=defaults.has_native_schemas,
    )


def _first_value(env: Mapping[str, str], names: tuple[str, ...]) -> str | None:
    return next((env[name] for name in names if env.get(name)), None)


_INSTALL = "install Shopfloor with its extra `models`"


class ModelRouter:
    """Implements `Models` with the providers that the environment configures, and with scripts."""

    def __init__(
        self,
        scripts: Sequence[Path] = (),
        env: Mapping[str, str] | None = None,
        *,
        script: Path | None = None,
        chunk_seconds: float = SCRIPT_WORD_SECONDS,
    ) -> None:
        """Route by `env`, the environment of the process by default.

        With `script`, that file replies for every model, and no provider is called. `scripts` and `chunk_seconds` are
        passed to `ScriptedModels`.
        """
        self._env = os.environ if env is None else env
        self._script = None if script is None else str(script)
        self._scripted = ScriptedModels(scripts, self._env, chunk_seconds=chunk_seconds)
        self._remote: PydanticAIModels | None = None

    def check(self, model: str) -> None:
        self._route(model, UnknownModel)

    def access_mode(self, model: str) -> Literal["api", "local"]:
        return "local" if self._script is not None or model.startswith("script/") else "api"

    def warm_up(self) -> None:
        """Import the model clients if a provider is configured. Blocks for seconds: call it in a thread."""
        if _is_installed() and has_configured_provider(self._env):
            importlib.import_module("shopfloor.adapters.models.pydantic_ai_models")

    async def reply(self, request: ModelRequest) -> AsyncIterator[ReplyDelta | Reply]:
        endpoint = self._route(request.model, RequestRejected)
        if endpoint is None:
            replies = self._scripted.reply(request, self._script)
        else:
            replies = (await self._connect()).reply(endpoint, request)
        async with aclosing(replies):
            async for item in replies:
                yield item

    async def aclose(self) -> None:
        """Close every connection."""
        if self._remote is not None:
            remote, self._remote = self._remote, None
            await remote.aclose()

    def _route(self, model: str, missing: type[ShopfloorError]) -> Endpoint | None:
        """Return the endpoint of a model; None for a script. Raises `missing` if no model client is installed."""
        provider, slash, name = model.partition("/")
        if not (provider and slash and name):
            raise UnknownModel(f"{model!r} is not a model name", hint=f"use provider/name; {self._providers_hint()}")
        if provider == "script" or self._script is not None:
            self._scripted.check(self._script or name)
            return None
        endpoint = resolve_endpoint(provider, self._env)
        if endpoint is None:
            variable = env_variable_name(provider, "URL")
            raise UnknownModel(
                f"no provider is named {provider!r}",
                hint=f"{self._providers_hint()}; for any OpenAI-compatible endpoint set {variable}",
            )
        if not _is_installed():
            raise missing(f"the client for {provider} is not installed", hint=_INSTALL)
        return endpoint

    def _providers_hint(self) -> str:
        return f"known providers are {', '.join([*KNOWN_PROVIDERS, 'script'])}"

    async def _connect(self) -> PydanticAIModels:
        if self._remote is None:
            await anyio.to_thread.run_sync(self.warm_up)
            from shopfloor.adapters.models.pydantic_ai_models import PydanticAIModels

            # Several tasks may have waited for the import; the first one creates the models.
            self._remote = self._remote or PydanticAIModels(self._env)
        return self._remote


def _is_installed() -> bool:
    return importlib.util.find_spec("pydantic_ai") is not None
