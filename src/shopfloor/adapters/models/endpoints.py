"""Where each provider is, and which variables of the environment name its address and its key.

`SHOPFLOOR_MODEL_<PROVIDER>_URL` and `SHOPFLOOR_MODEL_<PROVIDER>_KEY` hold for every provider and win over its usual
variables. A provider that is not listed here is any OpenAI-compatible endpoint whose address is given that way.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

import msgspec

Dialect = Literal["anthropic", "openai-responses", "openai-chat", "google"]


class Stock(msgspec.Struct, frozen=True, kw_only=True):
    """A provider that is known by name."""

    dialect: Dialect
    url: str
    url_variables: tuple[str, ...] = ()
    key_variables: tuple[str, ...] = ()
    """Its usual names for a key; with none it asks for none."""
    native_schemas: bool = True
    """Whether it can be held to a JSON schema by itself."""


STOCK: dict[str, Stock] = {
    "anthropic": Stock(
        dialect="anthropic",
        url="https://api.anthropic.com",
        url_variables=("ANTHROPIC_BASE_URL",),
        key_variables=("ANTHROPIC_API_KEY",),
    ),
    "openai": Stock(
        dialect="openai-responses",
        url="https://api.openai.com/v1",
        url_variables=("OPENAI_BASE_URL",),
        key_variables=("OPENAI_API_KEY",),
    ),
    "google": Stock(
        dialect="google",
        url="https://generativelanguage.googleapis.com",
        url_variables=("GOOGLE_GEMINI_BASE_URL",),
        key_variables=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    ),
    "ollama": Stock(
        dialect="openai-chat", url="http://localhost:11434/v1", url_variables=("OLLAMA_BASE_URL",), key_variables=()
    ),
    "vllm": Stock(dialect="openai-chat", url="http://localhost:8000/v1"),
}

_COMPATIBLE = Stock(dialect="openai-chat", url="", native_schemas=False)


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    provider: str
    dialect: Dialect
    url: str
    key: str | None
    key_variable: str | None
    """The variable that should have had the key; None where no key is needed."""
    native_schemas: bool


def is_set_up(env: Mapping[str, str]) -> bool:
    """Whether the environment names a key or an address of any provider."""
    usual = {name for stock in STOCK.values() for name in (*stock.key_variables, *stock.url_variables)}
    return any(name in usual or name.startswith("SHOPFLOOR_MODEL_") for name, value in env.items() if value)


def environment_name(provider: str, what: Literal["URL", "KEY"]) -> str:
    return f"SHOPFLOOR_MODEL_{re.sub(r'[^A-Z0-9]', '_', provider.upper())}_{what}"


def endpoint_of(provider: str, env: Mapping[str, str]) -> Endpoint | None:
    """None where nobody of that name is known."""
    url = env.get(environment_name(provider, "URL"))
    stock = STOCK.get(provider)
    if stock is None:
        if not url:
            return None
        stock = _COMPATIBLE
    return Endpoint(
        provider=provider,
        dialect=stock.dialect,
        url=url or _first(env, stock.url_variables) or stock.url,
        key=_first(env, (environment_name(provider, "KEY"), *stock.key_variables)),
        key_variable=next(iter(stock.key_variables), None),
        native_schemas=stock.native_schemas,
    )


def _first(env: Mapping[str, str], names: tuple[str, ...]) -> str | None:
    return next((env[name] for name in names if env.get(name)), None)
