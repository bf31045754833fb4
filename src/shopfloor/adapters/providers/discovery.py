"""Model APIs as providers: nothing is started for them, and what they answer can be normalised like the rest."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import cast

from shopfloor.errors import ProviderNotFound
from shopfloor.limits import AGENT_VERSION_SECONDS
from shopfloor.ports import Capabilities, Normalizer, Provider, ProviderInfo, child_environment

API_KEYS = {"openai": "OPENAI_API_KEY", "anthropic": "ANTHROPIC_API_KEY"}
"""The APIs, and the variable that each takes its key from."""


def api_normalizer(name: str) -> Normalizer:
    from shopfloor.adapters.providers.http import AnthropicNormalizer, OpenAINormalizer

    return AnthropicNormalizer() if name == "anthropic" else OpenAINormalizer()


_HOMES = {
    "claude-code": "claude",
    "claude-sdk": "claude_sdk",
    "codex": "codex",
    "gemini": "gemini",
    "copilot": "copilot",
    "opencode": "opencode",
}
PROVIDER_NAMES = tuple(_HOMES)
"""The providers that run as programs."""


def normalizer(name: str, *, resumed: bool | None = None) -> Normalizer:
    """What understands what a provider says: an agent's program, or a model API's answers."""
    if name in API_KEYS:
        return api_normalizer(name)
    if name not in _HOMES:
        raise ProviderNotFound(
            f"there is no provider {name!r}", hint=f"there are {', '.join((*PROVIDER_NAMES, *API_KEYS))}"
        )
    return provider(name).normalizer(resumed=resumed)


def provider(name: str) -> Provider:
    """Each folder is loaded when somebody asks for it, and has its provider as `PROVIDER`."""
    if name not in _HOMES:
        raise ProviderNotFound(f"there is no provider {name!r}", hint=f"there are {', '.join(PROVIDER_NAMES)}")
    return cast("Provider", import_module(f"shopfloor.adapters.providers.{_HOMES[name]}").PROVIDER)


_VERSION = re.compile(r"\d+\.\d+\.\d+[\w.+-]*")


def discover_providers(env: Mapping[str, str], home: Path) -> list[ProviderInfo]:
    """All that there are, in the order in which they are named; asked at the same time, since each takes a second."""

    def look(name: str) -> ProviderInfo:
        return _found(provider(name), env, home)

    with ThreadPoolExecutor(len(PROVIDER_NAMES)) as threads:
        agents = list(threads.map(look, PROVIDER_NAMES))
    return [*agents, *(_api(name, env) for name in API_KEYS)]


def _found(agent: Provider, env: Mapping[str, str], home: Path) -> ProviderInfo:
    path = shutil.which(agent.program, path=env.get("PATH"))
    version, problem = _version(path, env) if path else (None, None)
    return ProviderInfo(
        name=agent.name,
        kind="agent",
        program=agent.program,
        path=path,
        version=version,
        problem=problem,
        login=agent.login(env, home),
        install=agent.install,
        capabilities=agent.capabilities,
    )


def _version(path: str, env: Mapping[str, str]) -> tuple[str | None, str | None]:
    """What it says of its version, or what is wrong with it."""
    try:
        ended = subprocess.run(
            [path, "--version"],
            capture_output=True,
            env=child_environment(env),
            stdin=subprocess.DEVNULL,
            timeout=AGENT_VERSION_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return None, f"`{path} --version` did not answer in {AGENT_VERSION_SECONDS:g} s"
    except OSError as error:
        return None, f"`{path}` cannot be started: {error.strerror or error}"
    said = (ended.stdout + b"\n" + ended.stderr).decode(errors="replace")
    found = _VERSION.search(said)
    if ended.returncode or found is None:
        first = next((line.strip() for line in said.splitlines() if line.strip()), "nothing")
        return None, f"`{path} --version` said {first[:200]!r} (exit code {ended.returncode})"
    return found[0], None


def _api(name: str, env: Mapping[str, str]) -> ProviderInfo:
    key = API_KEYS[name]
    return ProviderInfo(
        name=name,
        kind="api",
        login=key if env.get(key) else None,
        install=f"set {key}",
        capabilities=Capabilities(deltas=True, thinking=True, usage=True, code_generation=True),
    )
