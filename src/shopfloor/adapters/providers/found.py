"""Which agents this machine has: their programs, versions, and by what they could log in."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from shopfloor.adapters.providers.apis import API_KEYS
from shopfloor.adapters.providers.registry import NAMES, provider
from shopfloor.limits import AGENT_VERSION_SECONDS
from shopfloor.ports import Capabilities, Provider, ProviderInfo, child_environment

_VERSION = re.compile(r"\d+\.\d+\.\d+[\w.+-]*")


def found_providers(env: Mapping[str, str], home: Path) -> list[ProviderInfo]:
    """All that there are, in the order in which they are named; asked at the same time, since each takes a second."""

    def look(name: str) -> ProviderInfo:
        return _found(provider(name), env, home)

    with ThreadPoolExecutor(len(NAMES)) as threads:
        agents = list(threads.map(look, NAMES))
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
