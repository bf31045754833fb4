"""Providers by name: agents that run as programs, and model APIs; and which of them this machine can use."""

from __future__ import annotations

import errno
import os
import re
import shutil
import signal
import subprocess
import threading
import uuid
from collections.abc import Generator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar, cast

from shopfloor.adapters.limits import AGENT_VERSION_SECONDS, PROVIDER_STATUS_SECONDS
from shopfloor.errors import ProviderNotFound, ShopfloorError
from shopfloor.ports import (
    AccessMode,
    AgentRequest,
    Capabilities,
    Normalizer,
    Provider,
    ProviderInfo,
    child_environment,
)

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
_IMPORTING = threading.RLock()
_LOGIN_STATUS = {
    "claude-code": (("auth", "status"), (2, 1, 325)),
    "claude-sdk": (("auth", "status"), (2, 1, 325)),
    "codex": (("login", "status"), (0, 20, 0)),
}
"""The commands by which programs say whether they are logged in, without using a model, and the oldest version of each
that is asked: an older one might take the command for a prompt."""
_REJECTED_KEY, _SERVER_ERRORS = (401, 403), range(500, 600)
_SIGNED_OUT = re.compile(r'not logged in|"loggedIn":\s*false', re.IGNORECASE)
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
    # One thread at a time: the packages import each other's modules, and Python refuses imports that would deadlock.
    with _IMPORTING:
        return cast("Provider", import_module(f"shopfloor.adapters.providers.{_PACKAGES[name]}").PROVIDER)


def discover_providers(
    env: Mapping[str, str], home: Path, *, asks_providers: bool = False, timeout_seconds: float | None = None
) -> list[ProviderInfo]:
    """Return all providers: agents in the order of PROVIDER_NAMES, then APIs.

    Starts each program to ask for its version, all at the same time, because each takes about a second. With
    `asks_providers`, programs and APIs that have credentials are also asked whether they accept them, if that costs
    nothing. Each program has `timeout_seconds` for an answer, by default AGENT_VERSION_SECONDS or
    PROVIDER_STATUS_SECONDS.
    """

    def inspect(name: str) -> ProviderInfo:
        if name in API_KEYS:
            return _api_info(name, env, asks_providers=asks_providers)
        return _agent_info(provider(name), env, home, probes, asks_providers=asks_providers)

    names = (*PROVIDER_NAMES, *API_KEYS)
    with _Probes(env, timeout_seconds).opened() as probes, ThreadPoolExecutor(len(names)) as threads:
        return list(threads.map(inspect, names))


class _Probes:
    """Programs that are being asked, in threads. `kill` kills them and lets no other start."""

    open_probes: ClassVar[set[_Probes]] = set()

    def __init__(self, env: Mapping[str, str], timeout_seconds: float | None) -> None:
        self._env = env
        self._timeout_seconds = timeout_seconds
        self._lock = threading.Lock()
        self._groups: set[int] = set()
        self._is_killed = False

    @contextmanager
    def opened(self) -> Generator[_Probes]:
        """Let `kill_probed_programs` find these probes meanwhile."""
        _Probes.open_probes.add(self)
        try:
            yield self
        finally:
            _Probes.open_probes.discard(self)

    def ask(self, argv: list[str], default_timeout_seconds: float) -> tuple[int | None, str]:
        """Return the exit code and the output of a program; without an exit code, why the program has none."""
        timeout = self._timeout_seconds or default_timeout_seconds
        try:
            with self._start(argv) as process:
                try:
                    output, _ = process.communicate(timeout=timeout)
                except subprocess.TimeoutExpired:
                    _kill_group(process.pid)
                    return None, f"`{' '.join(argv)}` did not answer in {timeout:g} s"
                finally:
                    self._groups.discard(process.pid)
                return process.returncode, output.decode(errors="replace")
        except OSError as error:
            return None, f"`{argv[0]}` cannot be started: {error.strerror or error}"

    def _start(self, argv: list[str]) -> subprocess.Popen[bytes]:
        """Start a program in a group of its own: one that hangs is killed with the processes that it started."""
        with self._lock:
            if self._is_killed:
                raise OSError(errno.ECANCELED, os.strerror(errno.ECANCELED))
            process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=child_environment(self._env),
                process_group=0,
            )
            self._groups.add(process.pid)
            return process

    def kill(self) -> None:
        """Kill the programs that are being asked, and let no other start."""
        with self._lock:
            self._is_killed = True
            for group in [*self._groups]:
                _kill_group(group)


def kill_probed_programs() -> None:
    """Kill the programs that are being asked, before this process ends: they must not outlive it."""
    for probes in [*_Probes.open_probes]:
        probes.kill()


def _agent_info(
    agent: Provider, env: Mapping[str, str], home: Path, probes: _Probes, *, asks_providers: bool
) -> ProviderInfo:
    path = shutil.which(agent.program, path=env.get("PATH"))
    version, problem = _probe_version(path, probes) if path else (None, None)
    login, answers = agent.login(env, home), None
    # A login by variable is not the program's own, and its command knows nothing of that.
    if asks_providers and path and version and login and Path(login).is_absolute() and agent.name in _LOGIN_STATUS:
        arguments, oldest = _LOGIN_STATUS[agent.name]
        if _version_numbers(version) >= oldest:
            answers, problem = _ask_program([path, *arguments], probes)
    return ProviderInfo(
        name=agent.name,
        kind="agent",
        program=agent.program,
        path=path,
        version=version,
        problem=problem,
        login=login,
        access_mode=_access_mode(agent, env) if login else None,
        answers=answers,
        install=agent.install,
        capabilities=agent.capabilities,
    )


def _access_mode(agent: Provider, env: Mapping[str, str]) -> AccessMode | None:
    """Return how a session that starts now is paid for, as its launcher decides it."""
    try:
        return agent.launch(AgentRequest(prompt="", cwd=".", session_id=str(uuid.uuid4())), env).access_mode
    except (ShopfloorError, OSError):
        return None


def _probe_version(path: str, probes: _Probes) -> tuple[str | None, str | None]:
    """Return the version that the program prints, or the problem with the program."""
    code, output = probes.ask([path, "--version"], AGENT_VERSION_SECONDS)
    if code is None:
        return None, output
    match = _VERSION.search(output)
    if code or match is None:
        return None, f"`{path} --version` printed {_first_line(output)!r} (exit code {code})"
    return match[0], None


def _version_numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3])


def _ask_program(argv: list[str], probes: _Probes) -> tuple[bool | None, str | None]:
    """Return whether the program says that it is logged in, and the problem. Any other output says nothing."""
    code, output = probes.ask(argv, PROVIDER_STATUS_SECONDS)
    if code is None:
        return False, output
    if code and _SIGNED_OUT.search(output):
        return False, f"`{' '.join(argv)}` says that it is not logged in"
    return (None if code else True), None


def _kill_group(group: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def _first_line(output: str) -> str:
    return next((line.strip() for line in output.splitlines() if line.strip()), "nothing")[:200]


def _api_info(name: str, env: Mapping[str, str], *, asks_providers: bool) -> ProviderInfo:
    variable = API_KEYS[name]
    login = variable if env.get(variable) else None
    answers, problem = _ask_api(name, env) if asks_providers and login else (None, None)
    return ProviderInfo(
        name=name,
        kind="api",
        problem=problem,
        login=login,
        access_mode="api" if login else None,
        answers=answers,
        install=f"set {variable}",
        capabilities=Capabilities(deltas=True, thinking=True, usage=True, code_generation=True),
    )


def _ask_api(name: str, env: Mapping[str, str]) -> tuple[bool | None, str | None]:
    """Request the list of models, which costs nothing. Return whether the API answers, and the problem."""
    import http.client
    import urllib.error
    import urllib.request

    from shopfloor.adapters.models import resolve_endpoint

    endpoint = resolve_endpoint(name, env)
    if endpoint is None or endpoint.key is None or not endpoint.url.startswith(("http://", "https://")):
        return None, None
    is_anthropic = endpoint.dialect == "anthropic"
    url = f"{endpoint.url.rstrip('/')}{'/v1' if is_anthropic else ''}/models"
    key = {"x-api-key": endpoint.key} if is_anthropic else {"Authorization": f"Bearer {endpoint.key}"}
    try:
        request = urllib.request.Request(url, headers={**key, "anthropic-version": "2023-06-01"})  # noqa: S310 - checked
        with urllib.request.urlopen(request, timeout=PROVIDER_STATUS_SECONDS):  # noqa: S310
            return True, None
    except urllib.error.HTTPError as error:
        error.close()
        if error.code in _REJECTED_KEY:
            return False, f"{url} rejected the key (HTTP status {error.code})"
        if error.code in _SERVER_ERRORS:
            return False, f"{url} failed (HTTP status {error.code})"
        # An endpoint without a list of models, or a limit that has been reached.
        return None, None
    except (OSError, ValueError, http.client.HTTPException) as error:
        return False, f"{url} did not answer: {getattr(error, 'reason', None) or error}"
