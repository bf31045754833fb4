"""Providers by name: agents that run as programs, and model APIs; and which of them this machine can use."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import cast

from shopfloor.errors import ProviderNotFound
from shopfloor.limits import AGENT_VERSION_SECONDS
from shopfloor.ports import Capabilities, Normalizer, Provider, ProviderInfo, child_environment

API_KEYS = {"openai": "OPENAI_API_KEY", "anthropic": "ANTHROPIC_API_KEY"}
"""Model APIs that count as providers (no program is started for them), and the variable that holds the key of each."""
_PACKAGES = {
    "claude-code": "claude",
    "claude-sdk": "claude_sdk",
    "codex": "codex",
    "gemini": "gemini",
    "copilot": "copilot",
    "opencode": "opencode",
}
PROVIDER_NAMES = tuple(_PACKAGES)
"""The providers that run as programs."""
_VERSION = re.compile(r"\d+\.\d+\.\d+[\w.+-]*")


_SDK_PACKAGES = {"claude-sdk": "claude_agent_sdk"}
"""Agents whose program is part of a Python package."""
_PROGRAMS = {name: package for name, package in _PACKAGES.items() if name not in _SDK_PACKAGES}
"""The programs of the other agents, which have the names of our packages. Known without importing the packages."""


def installed_providers(env: Mapping[str, str]) -> frozenset[str]:
    """Return the agents whose programs exist and the model APIs that have a key. Takes about a millisecond.

    Does not check whether a program works or is logged in.
    """
    programs = {name for name, program in _PROGRAMS.items() if shutil.which(program, path=env.get("PATH"))}
    packages = {name for name, package in _SDK_PACKAGES.items() if find_spec(package) is not None}
    keys = {
        name
        for name, variable in API_KEYS.items()
        if env.get(variable) or any(env.get(f"SHOPFLOOR_MODEL_{name.upper()}_{part}") for part in ("KEY", "URL"))
    }
    return frozenset(programs | packages | keys)


def api_normalizer(name: str) -> Normalizer:
    """Return the normalizer of a model API's response bodies."""
    from shopfloor.adapters.providers.http import AnthropicNormalizer, OpenAINormalizer

    return AnthropicNormalizer() if name == "anthropic" else OpenAINormalizer()


def normalizer(name: str, *, resumed: bool | None = None) -> Normalizer:
    """Return the normalizer of a provider: of an agent's output, or of a model API's response.

    Raises ProviderNotFound.
    """
    if name in API_KEYS:
        return api_normalizer(name)
    if name not in _PACKAGES:
        raise ProviderNotFound(
            f"there is no provider {name!r}", hint=f"there are {', '.join((*PROVIDER_NAMES, *API_KEYS))}"
        )
    return provider(name).normalizer(resumed=resumed)


def provider(name: str) -> Provider:
    """Import the package of a provider and return its `PROVIDER`. Raises ProviderNotFound."""
    if name not in _PACKAGES:
        raise ProviderNotFound(f"there is no provider {name!r}", hint=f"there are {', '.join(PROVIDER_NAMES)}")
    return cast("Provider", import_module(f"shopfloor.adapters.providers.{_PACKAGES[name]}").PROVIDER)


def discover_providers(env: Mapping[str, str], home: Path) -> list[ProviderInfo]:
    """Return all providers: agents in the order of PROVIDER_NAMES, then APIs.

    Starts each program to ask for its version, all at the same time, because each takes about a second.
    """

    def inspect(name: str) -> ProviderInfo:
        return _agent_info(provider(name), env, home)

    with ThreadPoolExecutor(len(PROVIDER_NAMES)) as threads:
        agents = list(threads.map(inspect, PROVIDER_NAMES))
    return [*agents, *(_api_info(name, env) for name in API_KEYS)]


def _agent_info(agent: Provider, env: Mapping[str, str], home: Path) -> ProviderInfo:
    path = shutil.which(agent.program, path=env.get("PATH"))
    version, problem = _probe_version(path, env) if path else (None, None)
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


def _probe_version(path: str, env: Mapping[str, str]) -> tuple[str | None, str | None]:
    """Return the version that the program prints, or the problem with the program."""
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
    output = (ended.stdout + b"\n" + ended.stderr).decode(errors="replace")
    match = _VERSION.search(output)
    if ended.returncode or match is None:
        first_line = next((line.strip() for line in output.splitlines() if line.strip()), "nothing")
        return None, f"`{path} --version` printed {first_line[:200]!r} (exit code {ended.returncode})"
    return match[0], None


def _api_info(name: str, env: Mapping[str, str]) -> ProviderInfo:
    variable = API_KEYS[name]
    return ProviderInfo(
        name=name,
        kind="api",
        login=variable if env.get(variable) else None,
        install=f"set {variable}",
        capabilities=Capabilities(deltas=True, thinking=True, usage=True, code_generation=True),
    )
