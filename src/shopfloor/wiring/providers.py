"""Agents and models on this machine: their names, discovery, validation and transcripts."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from shopfloor.limits import PROVIDERS_REFRESH_SECONDS
from shopfloor.ports import AgentExit, HostOffer, ProviderInfo

if TYPE_CHECKING:
    from shopfloor.engine import Definition, ValidationContext, Worker


def provider_names() -> tuple[str, ...]:
    """Return the names of the agents and model APIs that can run a task without a worker."""
    from shopfloor.adapters.providers import API_KEYS, PROVIDER_NAMES

    return (*PROVIDER_NAMES, *API_KEYS)


def local_validation_context(workers: Iterable[Worker]) -> ValidationContext:
    """Return the models, agents and workers of this machine, to validate definitions against."""
    from shopfloor.adapters.models import ModelRouter
    from shopfloor.adapters.providers import PROVIDER_NAMES, price, provider
    from shopfloor.engine import ValidationContext, check_agent_options, provider_worker_definitions

    found: dict[str, Definition | None] = {
        definition.slug: definition for definition in provider_worker_definitions(PROVIDER_NAMES)
    }
    for worker in workers:
        found[worker.definition.slug] = None if worker.problems else worker.definition
    return ValidationContext(
        check_model=ModelRouter().check,
        check_agent=partial(check_agent_options, provider, prices=price, env=os.environ),
        workers=found,
    )


class LocalOffer:
    """What this process offers to runs. Each call returns the current offer and takes at most a millisecond."""

    def __init__(
        self,
        labels: Mapping[str, str],
        env: Mapping[str, str],
        find_disabled: Callable[[], Collection[str]] = tuple,
    ) -> None:
        """Create the offer. `find_disabled` returns the providers that an operator has disabled."""
        self._labels = dict(labels)
        self._env = env
        self._offer = HostOffer(labels=self._labels)
        self._checked_at = -math.inf
        self._find_disabled = find_disabled

    def __call__(self) -> HostOffer:
        if time.monotonic() - self._checked_at >= PROVIDERS_REFRESH_SECONDS:
            from shopfloor.adapters.providers import installed_providers

            self._offer = HostOffer(labels=self._labels, providers=installed_providers(self._env))
            self._checked_at = time.monotonic()
        disabled = frozenset(self._find_disabled())
        return replace(self._offer, disabled=disabled) if disabled else self._offer


def find_providers(asks_providers: bool = False) -> list[ProviderInfo]:  # noqa: FBT001, FBT002 - passed as a function
    """Return the providers that this machine has. Blocks for a second or two: each program is run for its version.

    With `asks_providers`, those with credentials are asked whether they answer, if that costs nothing.
    """
    from shopfloor.adapters.providers import discover_providers

    return discover_providers(os.environ, Path.home(), asks_providers=asks_providers)


def stop_probes() -> None:
    """Kill the programs that `find_providers` is asking."""
    from shopfloor.adapters.providers import kill_probed_programs

    kill_probed_programs()


def transcribe_output(
    provider: str, chunks: Iterable[bytes], *, source: str | None, ended: AgentExit | None, resumed: bool | None = None
) -> Iterator[bytes]:
    """Return the lines of the transcript of an agent's output. `resumed` is None if that is not known."""
    from shopfloor.adapters.providers import normalizer, price
    from shopfloor.engine import transcribe

    lines = normalizer(provider, resumed=resumed)
    return transcribe(provider, lines, chunks, prices=price, source=source, ended=ended)
